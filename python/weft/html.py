"""How results look in a notebook."""
from html import escape


def of_text(text):
    return f"<pre>{escape(text)}</pre>"


def table(head, rows):
    def line(cells, tag):
        return "<tr>" + "".join(f"<{tag}>{escape(str(cell))}</{tag}>" for cell in cells) + "</tr>"

    return ("<table><thead>" + line(head, "th") + "</thead><tbody>" + "".join(line(row, "td") for row in rows) +
            "</tbody></table>")


def seconds(value):
    for unit, scale in (("s", 1), ("ms", 1e3), ("µs", 1e6)):
        if abs(value) * scale >= 1:
            return f"{value * scale:.4g} {unit}"
    return f"{value * 1e9:.4g} ns"


def gibibytes(value):
    return f"{value / 2**30:.1f} GiB"


def of_simulation(simulation):
    whole = sum(simulation.breakdown_s.values()) if simulation.breakdown_s else 0
    parts = [(name.replace("_", " "), seconds(value), f"{100 * value / whole:.1f} %")
             for name, value in (simulation.breakdown_s or {}).items() if value]
    memory = [(row["pipeline_rank"], *(gibibytes(row[kind]) for kind in
                                       ("parameters", "gradients", "optimizer", "activations", "buffers",
                                        "device_bytes")), row["verdict"]) for row in simulation.memory]
    return (f"<p><b>{escape(simulation.model)}</b> on <b>{escape(simulation.cluster)}</b>, "
            f"{escape(simulation.strategy.text)}<br>step {seconds(simulation.step_time_s)}, "
            f"MFU {100 * simulation.mfu:.1f} %, memory: {escape(simulation.memory_verdict)}</p>" +
            table(("where the time goes", "", ""), parts) +
            table(("stage", "weights", "gradients", "optimizer", "activations", "buffers", "device", ""), memory))


def of_search(search):
    if not search.feasible:
        return of_text(str(search))
    rows = [(plan.strategy.text, seconds(plan.step_time_s), f"{100 * plan.mfu:.1f} %", gibibytes(plan.device_bytes),
             plan.memory_verdict) for plan in search.best]
    gap = "" if search.gap is None else f", gap ≤ {100 * search.gap:.1f} %"
    return (f"<p>{search.considered:,} plans considered, {search.simulated} simulated{gap}</p>"
            + table(("plan", "step", "MFU", "fullest device", ""), rows))


def of_run(run):
    rows = [(step.step, f"{step.loss:.6f}", "" if step.time_s is None else seconds(step.time_s)) for step in run.steps]
    return (f"<p><b>{escape(run.model)}</b>, {escape(run.strategy)}, {run.ranks} ranks</p>" +
            table(("step", "loss", "time"), rows))

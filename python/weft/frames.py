"""Data frames of results; pandas is imported when the first one is asked for."""
from ._core import Error


def pandas():
    try:
        import pandas as imported
    except ImportError:
        raise Error("pandas cannot be imported: install python3-pandas; arrays and to_dict() need none") from None
    return imported


def of_timeline(timeline):
    pd = pandas()
    named = {"operation": timeline.operations, "activity": timeline.activities, "stream": timeline.streams,
             "body": timeline.bodies}
    columns = {name: getattr(timeline, name) for name in ("rank", "pipeline_rank", "micro_batch")}
    for name, values in named.items():
        columns[name] = pd.Categorical.from_codes(getattr(timeline, name), values)
    for name in ("issued", "start", "work", "end"):
        columns[f"{name}_s"] = getattr(timeline, f"{name}_ps") * 1e-12
    return pd.DataFrame(columns)


def of_search(search):
    figures = ("step_time_s", "samples_per_s", "tokens_per_s", "mfu", "device_bytes", "capacity_bytes",
               "memory_verdict")
    rows = [{"strategy": plan.strategy.text, **{name: getattr(plan, name) for name in figures}} for plan in search.best]
    return pandas().DataFrame(rows, columns=["strategy", *figures])


def of_validation(validation):
    rows = [{key: value for key, value in row.items() if not isinstance(value, (dict, list))}
            for row in validation.to_dict()["predictions"]]
    return pandas().DataFrame(rows)


def of_run(run):
    frame = pandas().DataFrame([vars(step) for step in run.steps], columns=["step", "loss", "time_s"])
    return frame.drop(columns="time_s") if frame["time_s"].isna().all() else frame

#!/usr/bin/env python3
"""How well runs on this machine's cores are predicted: a profile of two ranks, then many strategies on more.

  tools/run_accuracy.py [--weft build/release/bin/weft] [--ranks 4,8,16] [--steps 12] [--seconds 600] [--out FILE]

For each number of ranks every model's plans are profiled (two ranks are timed, the others keep the cores busy), then each
plan is run and compared with its prediction from that profile. The table goes to --out (Markdown) or to the terminal:
step predicted and measured, the spread of measured steps, a naive prediction (the busiest rank's computing plus the
bytes of the busiest link over its bandwidth), and the share of its time that a rank computes, both ways.
"""
import argparse
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile

# Model, tokens a sample, samples a step for each rank, strategies (by what they need: a number of ranks N).
MODELS = [
    ("gpt", "gpt2-124m:layers=4,hidden=256,heads=8,vocab=2048,dropout=0", 128, 2,
     ["dp={n}", "dp={n},zero=1", "dp={n},zero=3", "tp={n}", "tp=2,dp={n/2}", "tp=2,sp=1,dp={n/2}", "pp=2,dp={n/2}",
      "pp=4,dp={n/4}", "tp=2,pp=2,dp={n/4}"]),
    ("llama", "llama2-7b:layers=4,hidden=256,heads=8,kv_heads=4,ffn=768,vocab=2048", 256, 1,
     ["dp={n}", "dp={n},zero=2", "tp=4,dp={n/4}", "cp=2,dp={n/2}", "cp=2,tp=2,dp={n/4}", "pp=2,tp=2,dp={n/4}"]),
    ("bert", "bert-base:layers=4,hidden=256,heads=8,vocab=2048,dropout=0", 128, 2,
     ["dp={n}", "tp=2,dp={n/2}", "dp={n},recompute=full", "pp=2,dp={n/2},schedule=gpipe"]),
    ("moe", "mixtral-8x7b:layers=2,hidden=256,heads=8,kv_heads=4,ffn=512,experts=8,vocab=2048,capacity_factor=1.25", 128, 1,
     ["dp={n}", "ep=4,dp={n}", "ep=2,dp={n},zero=1"]),
    ("resnet", "resnet18:image=64,classes=100", None, 4, ["dp={n}", "dp={n},zero=1", "dp={n/2},h=2"]),
    ("lstm", "nmt:layers=2,hidden=256,vocab=2048", 16, 4, ["dp={n}", "pp=2,dp={n/2}"]),
]


def strategies(patterns, ranks):
    """The patterns that this number of ranks fills."""
    for pattern in patterns:
        words, whole = [], True
        for word in pattern.split(","):
            key, value = word.split("=")
            if value.startswith("{"):
                divisor = int(value[1:-1].split("/")[1]) if "/" in value else 1
                whole = whole and ranks % divisor == 0
                value = str(ranks // divisor)
            words.append(f"{key}={value}")
        if whole:
            yield ",".join(words)


def tau(pairs):
    """Kendall's rank correlation."""
    score = count = 0
    for (a, b), (c, d) in itertools.combinations(pairs, 2):
        score += (a > c) - (a < c) == (b > d) - (b < d)
        count += 1
    return 2 * score / count - 1 if count else 1.0


class Figures:
    def __init__(self, arguments):
        self.arguments = arguments
        self.rows = []

    def call(self, *words):
        done = subprocess.run([self.arguments.weft, *words], capture_output=True, text=True)
        if done.returncode != 0:
            print(f"weft {' '.join(words)}: {done.stderr.strip()}", file=sys.stderr)
            return None
        return done.stdout

    def words(self, model, strategy, tokens, samples, ranks):
        words = ["--model", model, "--strategy", strategy, "--global-batch", str(samples * ranks)]
        return words + (["--seq", str(tokens)] if tokens else [])

    def measure(self, ranks, directory):
        database, cluster = f"{directory}/{ranks}.db", f"{directory}/{ranks}.yaml"
        for _, model, tokens, samples, patterns in MODELS:
            chosen = list(strategies(patterns, ranks))
            words = ["--model", model, "--global-batch", str(samples * ranks)]
            words += ["--seq", str(tokens)] if tokens else []
            for strategy in chosen:
                words += ["--strategy", strategy]
            self.call("profile", "measure", *words, "--devices", str(ranks), "--ranks", str(ranks), "--db", database,
                      "--cluster-out", cluster, "--budget", f"{self.arguments.seconds}s")
        return database, cluster

    def run(self, ranks, database, cluster):
        for name, model, tokens, samples, patterns in MODELS:
            for strategy in strategies(patterns, ranks):
                words = self.words(model, strategy, tokens, samples, ranks)
                predicted = ["--cluster", cluster, "--stack", "weft", "--dtype", "fp32", "--cost", "measured", "--db", database]
                ran = self.call("run", *words, *predicted, "--ranks", str(ranks), "--steps", str(self.arguments.steps),
                                "--compare", "--json")
                simulated = self.call("simulate", *words, *predicted, "--devices", str(ranks), "--json")
                if ran is None or simulated is None:
                    continue
                compared, links = json.loads(ran)["comparison"], json.loads(simulated).get("links", [])
                busiest = max(rank["predicted_s"]["busy"] for rank in compared["ranks"])
                sent = links[0]["bytes"] / links[0]["bytes_per_s"] if links and links[0]["bytes_per_s"] else 0
                steps = sorted(compared["measured_steps_s"])
                p, m = compared["predicted_step_s"], compared["measured_step_s"]
                parts = [(rank["predicted_s"], rank["measured_s"]) for rank in compared["ranks"]]
                self.rows.append({
                    "model": name, "ranks": ranks, "strategy": strategy, "predicted": p, "measured": m,
                    "spread": (steps[int(len(steps) * 0.75)] - steps[int(len(steps) * 0.25)]) / m,
                    "naive": busiest + sent,
                    "busy": (statistics.mean(a["busy"] / p for a, _ in parts), statistics.mean(b["busy"] / m for _, b in parts)),
                    "busy_error": statistics.mean(abs(a["busy"] / p - b["busy"] / m) for a, b in parts),
                    "memory": statistics.mean(r["predicted_peak_bytes"] / r["measured_peak_bytes"] - 1 for r in compared["ranks"]
                                              if r["measured_peak_bytes"]),
                    "parted": [(i["name"], i["sort"], i["measured_s"] - i["predicted_s"]) for i in compared["instructions"][:4]]})
                row = self.rows[-1]
                print(f"{name:7} {ranks:3} {strategy:28} predicted {p * 1e3:8.1f} ms  measured {m * 1e3:8.1f} ms  "
                      f"{p / m - 1:+6.1%}  ±{row['spread']:.1%}  naive {row['naive'] / m - 1:+6.1%}  "
                      f"busy {row['busy'][0]:.0%} / {row['busy'][1]:.0%}  memory {row['memory']:+.1%}", flush=True)
                if self.arguments.parted:
                    for at, sort, seconds in row["parted"]:
                        print(f"          {seconds * 1e3:+8.2f} ms  {at} ({sort})")

    def table(self):
        lines = ["| model | ranks | strategy | predicted ms | measured ms | error | spread | naive error | busy predicted / measured |",
                 "|---|---|---|---|---|---|---|---|---|"]
        for r in self.rows:
            lines.append(f"| {r['model']} | {r['ranks']} | `{r['strategy']}` | {r['predicted'] * 1e3:.1f} | {r['measured'] * 1e3:.1f} | "
                         f"{r['predicted'] / r['measured'] - 1:+.1%} | {r['spread']:.1%} | {r['naive'] / r['measured'] - 1:+.1%} | "
                         f"{r['busy'][0]:.0%} / {r['busy'][1]:.0%} |")
        return lines

    def summary(self):
        rows = self.rows
        error = lambda key: statistics.mean(abs(r[key] / r["measured"] - 1) for r in rows)
        groups = {}
        for r in rows:
            groups.setdefault((r["model"], r["ranks"]), []).append(r)
        order = [tau([(r["predicted"], r["measured"]) for r in group]) for group in groups.values() if len(group) > 2]
        talk = sum(r["busy"][1] <= 0.8 for r in rows)
        spread = [max(r["measured"] for r in g) / min(r["measured"] for r in g) for g in groups.values()]
        return [f"{len(rows)} plans of {len(set(r['model'] for r in rows))} models on {sorted(set(r['ranks'] for r in rows))} ranks, "
                f"{talk} of them with a fifth of the time or more not computing; steps of a model differ up to {max(spread):.1f}-fold.",
                f"Mean error of step times {error('predicted'):.1%} (naive {error('naive'):.1%}); of the share that a rank computes "
                f"{statistics.mean(r['busy_error'] for r in rows):.1%}; tau {tau([(r['predicted'], r['measured']) for r in rows]):.2f} over all, "
                f"{statistics.mean(order) if order else 1:.2f} within a model; memory "
                f"{statistics.mean(abs(r['memory']) for r in rows):.1%}. Measured steps vary by {statistics.median(r['spread'] for r in rows):.1%} "
                f"(median of the middle half's width)."]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--weft", default="build/release/bin/weft")
    parser.add_argument("--ranks", default="4,8,16")
    parser.add_argument("--models", default="", help="of them only these, by name: gpt,bert")
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--seconds", type=int, default=60, help="of profiling for each model and number of ranks")
    parser.add_argument("--parted", action="store_true", help="also the instructions where each plan parts most")
    parser.add_argument("--keep", default="", help="a directory for profiles; they are used again")
    parser.add_argument("--out", default="")
    arguments = parser.parse_args()
    if not os.path.exists(arguments.weft):
        sys.exit(f"{arguments.weft}: not built; make release, or --weft PATH")
    if arguments.models:
        MODELS[:] = [m for m in MODELS if m[0] in arguments.models.split(",")]
    figures = Figures(arguments)
    with tempfile.TemporaryDirectory() as directory:
        if arguments.keep:
            directory = arguments.keep
            os.makedirs(directory, exist_ok=True)
        for ranks in map(int, arguments.ranks.split(",")):
            figures.run(ranks, *figures.measure(ranks, directory))
    if not figures.rows:
        sys.exit("no plan was run")
    print("\n" + "\n".join(figures.summary()))
    if arguments.out:
        with open(arguments.out, "w", encoding="utf-8") as file:
            file.write("\n".join(figures.summary() + [""] + figures.table()) + "\n")


if __name__ == "__main__":
    main()

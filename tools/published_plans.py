#!/usr/bin/env python3
"""What Weft would run instead of plans that people published: tools/published_plans.json.

  tools/published_plans.py [--weft build/release/bin/weft] [NAME...]

Of each (or those whose name contains NAME) the published plan is simulated, and the best plan is searched for the same
model, cluster, batch, sequence and stack. Prints a table in Markdown.
"""
import argparse
import json
import pathlib
import resource
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent


def call(weft, command, problem, *more):
    """The JSON that a command prints, and its CPU seconds."""
    words = [str(weft), command, *(w for key, value in problem.items() for w in (f"--{key}", str(value))), *more, "--json"]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(words, capture_output=True, text=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    if done.returncode == 2 or not done.stdout:
        sys.exit(f"{' '.join(words)}\n{done.stderr.strip()}")
    return json.loads(done.stdout), seconds


def seconds(value):
    return f"{value:.3g} s" if value >= 1 else f"{1e3 * value:.3g} ms"


def row(weft, each):
    published, _ = call(weft, "simulate", each["problem"], "--strategy", each["plan"])
    found, cpu = call(weft, "plan", each["problem"])
    best = {**found["best"], **found["candidates"][0]}
    lacks = {"fits": "", "tight": " (tight)"}.get(published["memory_verdict"], " (does not fit)")
    cells = [each["name"], f"`{each['plan']}`", seconds(published["step_time_s"]) + lacks,
             f"{100 * published['mfu']:.1f} %", each["reported"], f"`{best['strategy']}`", seconds(best["step_time_s"]),
             f"{100 * best['mfu']:.1f} %", f"{100 * found['gap']:.1f} %", f"{cpu:.1f}"]
    return "| " + " | ".join(cells) + " |"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--weft", default=HERE.parent / "build/release/bin/weft", type=pathlib.Path)
    parser.add_argument("names", nargs="*")
    asked = parser.parse_args()
    print("| problem | published plan | simulated | MFU | reported | found | takes | MFU | gap | CPU s |")
    print("|" + "---|" * 10)
    for each in json.loads((HERE / "published_plans.json").read_text()):
        if not asked.names or any(name.lower() in each["name"].lower() for name in asked.names):
            print(row(asked.weft, each), flush=True)


if __name__ == "__main__":
    main()

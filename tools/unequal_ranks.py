#!/usr/bin/env python3
"""Unequal devices for real: two ranks on two cores, one of which busy loops share, planned and run.

    python3 tools/unequal_ranks.py --weft build/release/bin/weft --loops 1 --repeats 5

Measures both devices (weft profile measure, --beside), writes them as one cluster file, lets weft plan find a program on measured costs,
and runs that plan and even data parallelism in turn (weft run --beside), the same samples, several times. Of the steps of each
the least counts: what else runs on the machine only adds. Prints a table, and exits with 1 where the two trained differently.

Other work on the two cores disturbs it. Figures: docs/unequal_ranks.md.
"""
import argparse, json, os, subprocess, sys, tempfile

MODEL = "gpt2-124m:layers=2,hidden=256,heads=4,vocab=512,dropout=0"


def weft(words, arguments):
    run = subprocess.run([arguments.weft, *words], capture_output=True, text=True)
    if run.returncode != 0:
        sys.exit(f"weft {' '.join(words)}: {run.stderr.strip()}")
    return run.stdout


def joined(whole, shared):
    """The two devices in one machine: the sections of the first, the device of the second beside its own."""
    lines, other = open(whole).read().splitlines(), open(shared).read().splitlines()
    begin, end = other.index("devices:") + 1, other.index("links:")
    at = lines.index("links:")
    lines[at:at] = other[begin:end]
    for i, line in enumerate(lines):
        if line.lstrip().startswith("vertices:"):
            lines[i] = "    vertices: {core0: wholecore, core1: sharedcore, socket0: socket}"
        if line.lstrip().startswith("- [core0"):
            lines[i] = "      - [core0..1, socket0, gloo-loopback]"
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--weft", default="build/release/bin/weft")
    parser.add_argument("--model", default=MODEL)
    parser.add_argument("--batch", type=int, default=24, help="samples per step")
    parser.add_argument("--seq", type=int, default=128)
    parser.add_argument("--loops", type=int, default=1, help="busy loops on the second core: 1 halves its speed")
    parser.add_argument("--cores", default="0,1", help="of the two ranks")
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--budget", default="20s", help="of each of the two measurements")
    parser.add_argument("--keep", help="a directory for plans and the database")
    arguments = parser.parse_args()
    directory = arguments.keep or tempfile.mkdtemp(prefix="weft-unequal-")
    os.makedirs(directory, exist_ok=True)
    at = lambda name: os.path.join(directory, name)
    problem = ["--model", arguments.model, "--global-batch", str(arguments.batch), "--seq", str(arguments.seq), "--dtype", "fp32",
               "--stack", "weft"]
    per_rank = arguments.batch // 2
    even = f"dp=2,mbs={per_rank}"
    for name, loops in (("wholecore", 0), ("sharedcore", arguments.loops)):
        weft(["profile", "measure", *problem, "--strategy", "dp=2", "--micro-batch", str(per_rank), "--ranks", "2", "--db", at("db"),
              "--device-name", name, "--beside", str(loops), "--cluster-out", at(name + ".yaml"), "--budget", arguments.budget], arguments)
    with open(at("unequal.yaml"), "w") as file:
        file.write(joined(at("wholecore.yaml"), at("sharedcore.yaml")))
    costs = ["--cluster", at("unequal.yaml"), "--cost", "measured", "--db", at("db")]
    weft(["plan", *problem, *costs, "--search", "hap", "--out", at("found")], arguments)
    predicted = {"uneven, found": json.loads(weft(["simulate", at("found/plan.json"), "--cost", "measured", "--db", at("db"), "--json"], arguments)),
                 "even": json.loads(weft(["simulate", *problem, *costs, "--strategy", even, "--json"], arguments))}
    ranks = ["--pin", arguments.cores, "--beside", f"0,{arguments.loops}", "--steps", str(arguments.steps), "--json", "--timing"]
    runs = {"uneven, found": [at("found/plan.json")], "even": [*problem, "--strategy", even, "--ranks", "2"]}
    least, losses = {}, {}
    for _ in range(arguments.repeats):
        for name, words in runs.items():
            steps = json.loads(weft(["run", *words, *ranks], arguments))["steps"]
            least[name] = min([least.get(name, 1e9)] + [step["time_s"] for step in steps])
            losses[name] = [step["loss"] for step in steps]
    print(f"| plan | predicted, s | measured, s (least of {arguments.repeats * arguments.steps} steps) |\n|---|---|---|")
    for name in runs:
        print(f"| {name} | {predicted[name]['step_time_s']:.3f} | {least[name]:.3f} |")
    gains = [seconds["even"] / seconds["uneven, found"] for seconds in ({n: p["step_time_s"] for n, p in predicted.items()}, least)]
    print(f"| even over uneven | {gains[0]:.2f} | {gains[1]:.2f} ({100 * (gains[1] / gains[0] - 1):+.0f} %) |")
    apart = max(abs(a - b) for a, b in zip(*losses.values()))
    print(f"\nlosses of the same samples differ by {apart:.1e} at most")
    return 0 if apart < 1e-4 else 1


if __name__ == "__main__":
    sys.exit(main())

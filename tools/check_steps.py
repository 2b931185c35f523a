#!/usr/bin/env python3
"""Measured steps of one device beside what `weft simulate` predicts of them: step time and peak memory, row by row.

  tools/check_steps.py [--weft build/release/bin/weft] [--cluster dgx-h200:1] [--kinds MODEL] [measurements/h200/steps.csv]

The rows are those of tools/measure_steps.py; what ran is said in Weft's words below: the modules that the zoo's models have and the
measured ones lack, what PyTorch ran, and nothing that a row could be fitted by. `--cluster` names the host, too (host=2: twice as slow
to issue work as a usual one).
"""
import argparse
import csv
import json
import subprocess
import sys

MODELS = {"llama-1b": "llama3.2-1b", "llama-7b-8-layers": "llama2-7b:layers=8", "vit-b-16": "vit-b", "gpt2-124m": "gpt2-124m:activation=gelu",
          "gpt2-355m": "gpt2-355m:activation=gelu"}
# PyTorch 2.11 runs cuDNN's attention on Hopper (steps_kernels.csv); the script clips no gradients and reads no loss. The products of
# linear layers add their biases.
KNOBS = "attention_generation=3,clip_gradients=false,sync_on_norm=false"
STACKS = {"bf16": "pytorch-bf16", "amp": "pytorch-ddp", "tf32": "pytorch-ddp"}


def predict(weft, cluster, row, extra):
    precision = row["precision"]
    knobs = f"{KNOBS},channels_last={'true' if row['layout'] == 'nhwc' or precision == 'bf16' else 'false'}" + extra
    words = [weft, "simulate", "--model", MODELS.get(row["model"], row["model"]), "--cluster", cluster, "--devices", "1", "--strategy", "dp=1",
             "--dtype", "amp-bf16" if precision == "amp" else precision, "--stack", f"{STACKS[precision]}:{knobs}",
             "--global-batch", row["batch"], "--micro-batch", row["batch"], "--json"]
    if row["sequence"] and row["model"] != "vit-b-16":
        words += ["--seq", row["sequence"]]
    done = subprocess.run(words, capture_output=True, text=True)
    if done.returncode not in (0, 1) or not done.stdout:
        sys.exit(f"{' '.join(words)}\n{done.stderr}")
    return json.loads(done.stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--weft", default="build/release/bin/weft")
    parser.add_argument("--cluster", default="dgx-h200:1")
    parser.add_argument("--knobs", default="", help="more of the stack's: host_per_operator=20us")
    parser.add_argument("--json", action="store_true", help="the predictions as they are, one object a row")
    parser.add_argument("steps", nargs="?", default="measurements/h200/steps.csv")
    options = parser.parse_args()
    rows = list(csv.DictReader(open(options.steps, newline="")))
    errors = {"time": [], "memory": []}
    if not options.json:
        print(f"{'one device':<20}{'batch':>6} {'type':<5}{'step ms':>9}{'predicted':>10}{'%':>7}{'peak GB':>9}{'predicted':>10}{'%':>7}  waits for the host")
    for row in rows:
        made = predict(options.weft, options.cluster, row, "," + options.knobs if options.knobs else "")
        if options.json:
            print(json.dumps({**row, "predicted": made}))
            continue
        step, peak = float(row["step_ms"]), int(row["peak_bytes"]) / 1e9
        time, memory = made["step_time_s"] * 1e3, max(each["peak_bytes"] for each in made["memory"]) / 1e9
        errors["time"].append(time / step - 1)
        errors["memory"].append(memory / peak - 1)
        print(f"{row['model']:<20}{row['batch']:>6} {row['precision']:<5}{step:>9.2f}{time:>10.2f}{100 * errors['time'][-1]:>+7.1f}"
              f"{peak:>9.2f}{memory:>10.2f}{100 * errors['memory'][-1]:>+7.1f}  {'yes' if float(row['kernel_ms']) < 0.85 * step else ''}")
    for name, values in errors.items():
        if values:
            mean, bias = (100 * sum(f(v) for v in values) / len(values) for f in (abs, float))
            print(f"{name}: mean error {mean:.1f} %, bias {bias:+.1f} %, worst {100 * max(values, key=abs):+.1f} %, {len(values)} rows")


if __name__ == "__main__":
    main()

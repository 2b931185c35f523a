#!/usr/bin/env python3
"""How well one GPU's steps and memory are predicted from a profile of other models.

  tools/gpu_accuracy.py [--weft build/release/bin/weft] [--cluster dgx-h200:1] [--seconds 240] [--out FILE]

The operators of PROFILED are timed on the GPU one by one (weft profile measure --device cuda); then each model of TRIED,
none of which was profiled, trains for a few steps, and its step time and peak memory stand beside what that profile
predicts.
"""
import argparse
import json
import statistics
import subprocess
import sys
import tempfile

# Model, tokens a sample (None: the model has none), samples a step.
PROFILED = [
    ("gpt2-124m:layers=2,hidden=512,heads=8", 1024, 4), ("gpt2-124m:layers=2,hidden=1024,heads=16", 512, 8),
    ("gpt2-124m:layers=2,hidden=2048,heads=16", 1024, 2), ("gpt2-124m:layers=2,hidden=1536,heads=24", 1024, 16),
    ("llama2-7b:layers=2,hidden=1024,heads=16,ffn=2816", 1024, 2), ("llama2-7b:layers=2,hidden=4096,heads=32,ffn=11008", 1024, 2),
    ("llama3-8b:layers=1,hidden=2048,heads=16,kv_heads=4,ffn=7168", 2048, 4), ("bert-base:layers=2", 512, 4),
    ("bert-base:layers=2,hidden=1536,heads=24", 256, 32), ("vit-b:layers=2", None, 16), ("resnet34", None, 64),
    ("resnet101", None, 16),
]
TRIED = [
    ("gpt2-124m", 1024, 8), ("gpt2-355m", 1024, 4), ("gpt2-774m", 1024, 4), ("gpt2-1.5b", 1024, 2),
    ("llama2-7b:layers=4", 2048, 1), ("llama3-8b:layers=4", 4096, 1), ("llama2-7b:layers=16,hidden=2048,heads=16,ffn=5632", 2048, 2),
    ("bert-base", 512, 16), ("bert-large", 512, 8), ("vit-l", None, 32), ("resnet50", None, 64), ("resnet18", None, 128),
]


def call(weft, *words):
    done = subprocess.run([weft, *words], capture_output=True, text=True)
    if done.returncode != 0:
        print(f"weft {' '.join(words)}: {done.stderr.strip()[:400]}", file=sys.stderr, flush=True)
        return None
    return done.stdout


def words_of(model, tokens, samples):
    words = ["--model", model, "--global-batch", str(samples), "--micro-batch", str(samples), "--dtype", "bf16"]
    return words + (["--seq", str(tokens)] if tokens else [])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--weft", default="build/release/bin/weft")
    parser.add_argument("--cluster", default="dgx-h200:1")
    parser.add_argument("--seconds", type=int, default=240, help="of profiling")
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--db", default="", help="a profile to use and add to")
    parser.add_argument("--out", default="")
    arguments = parser.parse_args()
    place = ["--cluster", arguments.cluster, "--stack", "weft-cuda"]
    rows = []
    with tempfile.TemporaryDirectory() as directory:
        database = arguments.db or f"{directory}/gpu.db"
        for model, tokens, samples in PROFILED:
            call(arguments.weft, "profile", "measure", *words_of(model, tokens, samples), *place, "--strategy", "dp=1", "--devices", "1",
                 "--ranks", "1", "--device", "cuda", "--db", database, "--budget", f"{arguments.seconds // len(PROFILED)}s")
        for model, tokens, samples in TRIED:
            ran = call(arguments.weft, "run", *words_of(model, tokens, samples), *place, "--strategy", "dp=1", "--ranks", "1",
                       "--device", "cuda", "--steps", str(arguments.steps), "--compare", "--cost", "measured", "--db", database, "--json")
            if ran is None:
                continue
            compared = json.loads(ran)["comparison"]
            rank = compared["ranks"][0]
            rows.append((model, tokens, samples, compared["predicted_step_s"], compared["measured_step_s"],
                         rank["predicted_peak_bytes"], rank["measured_peak_bytes"]))
            m, t, n, p, s, a, b = rows[-1]
            print(f"{m:52} {t or '':>5} x {n:<4} predicted {p * 1e3:8.2f} ms  measured {s * 1e3:8.2f} ms  {p / s - 1:+6.1%}   "
                  f"memory {a / 2**30:6.2f} GiB  {b / 2**30:6.2f} GiB  {a / b - 1 if b else 0:+6.1%}", flush=True)
    if not rows:
        sys.exit("no model was run")
    summary = (f"{len(rows)} models, mean error of step times {statistics.mean(abs(r[3] / r[4] - 1) for r in rows):.1%}, "
               f"of memory {statistics.mean(abs(r[5] / r[6] - 1) for r in rows if r[6]):.1%}")
    print(summary)
    if arguments.out:
        with open(arguments.out, "w", encoding="utf-8") as file:
            file.write(summary + "\n\n| model | tokens | samples | predicted ms | measured ms | error | predicted GiB | measured GiB | error |\n"
                       "|---|---|---|---|---|---|---|---|---|\n")
            for m, t, n, p, s, a, b in rows:
                file.write(f"| `{m}` | {t or ''} | {n} | {p * 1e3:.2f} | {s * 1e3:.2f} | {p / s - 1:+.1%} | {a / 2**30:.2f} | {b / 2**30:.2f} | "
                           f"{a / b - 1 if b else 0:+.1%} |\n")


if __name__ == "__main__":
    main()

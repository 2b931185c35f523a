#!/usr/bin/env python3
"""Trains a small GPT on this repository's own documents, byte by byte, under several strategies, and compares
their loss curves with that of one device: they are one function, so the curves may part by rounding alone.

usage: convergence.py [--steps N] [--bound B] [--dtype T] [--lr R] [--strategies S ...] [--out FILE.csv]

Prints, of every strategy, the largest relative deviation of the loss over all steps; exits with 1 where one is above the
bound. WEFT_BIN names the binary (default: build/release/bin/weft).
"""
import argparse
import array
import json
import os
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
WEFT = os.environ.get("WEFT_BIN", str(ROOT / "build/release/bin/weft"))

MODEL = "gpt2-124m:layers=2,hidden=64,heads=4,vocab=256,dropout=0"  # a word is a byte; no stack pads 256 rows
SEQUENCE, BATCH = 64, 8
STRATEGIES = ["dp=2", "tp=2", "tp=2,sp=0", "pp=2,mbs=2", "dp=2,zero=3", "cp=2"]


def write_tokens(path):
    """The documents as tokens of 16 bits, one a byte."""
    text = b"".join(file.read_bytes() for file in sorted([ROOT / "README.md", *ROOT.glob("docs/*.md")]))
    tokens = array.array("H", list(text))
    if sys.byteorder == "big":
        tokens.byteswap()
    path.write_bytes(tokens.tobytes())
    return len(tokens)


def ranks_of(strategy):
    ranks = 1
    for word in strategy.split(","):
        name, value = word.split("=")
        if name in ("dp", "tp", "pp", "cp"):
            ranks *= int(value)
    return ranks


def losses(strategy, arguments, tokens):
    words = [WEFT, "run", "--model", MODEL, "--strategy", strategy, "--ranks", str(ranks_of(strategy)), "--seq",
             str(SEQUENCE), "--global-batch", str(BATCH), "--dtype", arguments.dtype, "--steps", str(arguments.steps), "--lr",
             str(arguments.lr), "--data", str(tokens), "--json"]  # fmt: skip
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join(words)}\n{done.stderr}")
    return [step["loss"] for step in json.loads(done.stdout)["steps"]]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--bound", type=float, default=1e-3, help="of the relative deviation at every step")
    parser.add_argument("--dtype", default="fp32")
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--strategies", nargs="+", default=STRATEGIES)
    parser.add_argument("--out", help="the curves as a table: a column for each strategy")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        tokens = pathlib.Path(directory) / "tokens"
        count = write_tokens(tokens)
        print(f"{MODEL}, {arguments.steps} steps of {BATCH} x {SEQUENCE} of {count} tokens, {arguments.dtype}, lr {arguments.lr}")
        curves = {each: losses(each, arguments, tokens) for each in ["dp=1", *arguments.strategies]}
    one = curves["dp=1"]
    print(f"{'strategy':<14} {'ranks':>5} {'first loss':>10} {'last loss':>10} {'deviation':>10}  at step")
    good = True
    for strategy, curve in curves.items():
        apart = [abs(a - b) / abs(b) for a, b in zip(curve, one)]
        worst = max(apart)
        within = len(curve) == len(one) and worst <= arguments.bound
        good = good and within
        print(f"{strategy:<14} {ranks_of(strategy):>5} {curve[0]:>10.6f} {curve[-1]:>10.6f} {worst:>10.1e}"
              f"  {apart.index(worst) + 1}{'' if within else '  ABOVE THE BOUND'}")  # fmt: skip
    if not one[-1] < one[0]:
        good = False
        print("one device has not learned anything")
    if arguments.out:
        rows = [",".join(["step", *(f'"{each}"' for each in curves)])]
        rows += [",".join([str(i + 1), *(repr(curve[i]) for curve in curves.values())]) for i in range(len(one))]
        pathlib.Path(arguments.out).write_text("\n".join(rows) + "\n", encoding="utf-8")
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()

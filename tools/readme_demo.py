#!/usr/bin/env python3
"""Puts what `make demo` prints into README.md, between the two marks of its demo block."""
import pathlib
import subprocess

root = pathlib.Path(__file__).resolve().parent.parent
weft = root / "build/release/bin/weft"
commands = ["plan --model llama3-70b --cluster dgx-h100:16 --global-batch 1024 --seq 8192 --tokens 1T".split(),
            "show strategy --model llama3-8b --cluster dgx-h100:2 --strategy tp=4,pp=2,dp=2,zero=1".split(),
            "simulate --model llama3-8b --cluster dgx-h100:2 --strategy tp=4,pp=2,dp=2,zero=1".split()]
printed = "\n".join("$ weft " + " ".join(c) + "\n" + subprocess.run([weft, *c], capture_output=True, text=True, check=True).stdout for c in commands)
readme = (root / "README.md").read_text()
before, rest = readme.split("`make demo` prints:\n\n```\n", 1)
after = rest.split("```\n", 1)[1]
(root / "README.md").write_text(before + "`make demo` prints:\n\n```\n" + printed.rstrip("\n") + "\n```\n" + after)

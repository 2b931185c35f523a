#!/usr/bin/env python3
"""Compare what two builds of weft answer: tools/same_answers.py OLD NEW [--jobs 2] [--only TEXT]

Asks both binaries the same requests (simulate, plan, show; --json) over models, clusters, strategies, stacks and number
types, and prints those whose bytes or exit codes differ. Exit code 1 if any does. For changes that must not change answers.
"""
import argparse
import concurrent.futures
import difflib
import itertools
import json
import subprocess
import sys

LANGUAGE = ["llama3-8b", "gpt3-1.3b", "gpt2-xl", "bert-large", "t5-large", "mixtral-8x7b", "deepseek-v2-lite", "llama2-7b"]
OTHERS = ["resnet50", "inception_v3", "alexnet", "vgg16", "dlrm", "rnnlm", "nmt"]


def requests():
    """Every request as a list of words, without --json."""
    dense = ["tp=4,pp=2,dp=2,zero=1", "dp=16,zero=3,mbs=1", "tp=8,pp=2,sp=0", "pp=4,dp=4,vpp=2,ga=8", "tp=2,cp=2,dp=4,zero=2",
             "tp=2,pp=4,dp=2,recompute=full", "tp=4,dp=4,recompute=selective,zero=1", "cp=4,dp=4,cp_mode=ring",
             "pp=4,dp=4,schedule=zb-h1,ga=8", "fsdp=8,replicate=2", "tp=2,dp=8,offload=optimizer", "tp=1,pp=16,dp=1"]
    for model, strategy in itertools.product(["llama3-8b", "gpt3-1.3b", "llama2-7b"], dense):
        yield ["simulate", "--model", model, "--cluster", "dgx-h100:2", "--strategy", strategy, "--seq", "4096"]
    for model, strategy in itertools.product(["bert-large", "t5-large", "gpt2-xl"], dense[:8]):
        yield ["simulate", "--model", model, "--cluster", "dgx-a100:2", "--strategy", strategy, "--seq", "512"]
    experts = ["ep=8,dp=16,zero=1", "tp=2,ep=4,dp=8", "tp=4,etp=1,ep=8,dp=4", "tp=2,pp=2,ep=4,dp=4,zero=2", "cp=2,ep=8,dp=8"]
    for model, strategy in itertools.product(["mixtral-8x7b", "deepseek-v2-lite"], experts):
        yield ["simulate", "--model", model, "--cluster", "dgx-h100:2", "--strategy", strategy, "--seq", "4096"]
    for model, strategy in itertools.product(OTHERS, ["dp=8", "dp=4,pp=2,ga=4", "dp=8,zero=1"]):
        yield ["simulate", "--model", model, "--cluster", "dgx-a100:1", "--strategy", strategy]
    for stack, dtype in itertools.product(["megatron-lm", "pytorch-fsdp", "pytorch-ddp", "megatron-deepspeed", "nemo-24.09", "torchtitan"],
                                          ["bf16", "fp32", "tf32", "fp16"]):
        for strategy in ["dp=8,zero=3", "tp=4,dp=2"]:
            yield ["simulate", "--model", "gpt3-1.3b", "--cluster", "dgx-a100:1", "--strategy", strategy, "--stack", stack,
                   "--dtype", dtype, "--seq", "1024", "--global-batch", "32"]
    for cluster in ["p100x4:4", "k80x4:2", "a40x4:4", "gb200-nvl72:1", "dgx-h200:2", "dgx-b200:2", "dgx1-v100-32:2", "dgx-h100:1+dgx-a100:1"]:
        for model, strategy in [("gpt2-124m", "dp=8,mbs=1"), ("resnet50", "dp=8"), ("gpt2-124m", "tp=2,pp=2,dp=2,mbs=1")]:
            yield ["simulate", "--model", model, "--cluster", cluster, "--strategy", strategy, "--devices", "8"]
    for network, fold in itertools.product(["fair", "fifo"], [[], ["--no-fold"]]):
        for strategy in dense[:6]:
            yield ["simulate", "--model", "gpt2-xl", "--cluster", "dgx-a100:2", "--strategy", strategy, "--network", network, *fold,
                   "--seq", "1024", "--global-batch", "64"]
    for model, strategy in itertools.product(["llama3-8b", "mixtral-8x7b", "resnet50"], ["dp=8,zero=1", "tp=2,dp=4"]):
        yield ["show", "strategy", "--model", model, "--cluster", "dgx-h100:1", "--strategy", strategy]
        yield ["show", "program", "--model", model, "--cluster", "dgx-h100:1", "--strategy", strategy]
        yield ["simulate", "--model", model, "--cluster", "dgx-h100:1", "--strategy", strategy, "--cost", "symbolic"]
    for model, cluster, batch in [("llama3-8b", "dgx-h100:1", 64), ("llama3-8b", "dgx-h100:4", 256), ("llama3-70b", "dgx-h100:8", 512),
                                  ("gpt3-1.3b", "a40x4:4", 64), ("mixtral-8x7b", "dgx-h100:4", 256), ("gpt3-13b", "dgx-a100:4", 512),
                                  ("bert-large", "dgx-a100:2", 256), ("t5-large", "dgx-a100:1", 128), ("deepseek-v2-lite", "dgx-h100:2", 256)]:
        for more in [[], ["--stack", "pytorch-fsdp"], ["--dtype", "fp32"], ["--headroom", "20"]]:
            yield ["plan", "--model", model, "--cluster", cluster, "--global-batch", str(batch), "--seq", "2048", *more, "--budget", "8"]
    for model in ["resnet50", "alexnet", "dlrm", "rnnlm"]:
        for search in ["auto", "mcmc", "exact", "symbolic"]:
            yield ["plan", "--model", model, "--cluster", "p100x4:1", "--global-batch", "128", "--search", search, "--budget", "60"]
    for model in ["gpt2-124m", "llama2-7b"]:
        yield ["plan", "--model", model, "--cluster", "dgx-a100:1", "--global-batch", "32", "--seq", "1024", "--search", "layerwise"]


def answer(binary, words):
    done = subprocess.run([binary, *words, "--json"], capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


def differences(old, new):
    """The keys of the two JSON answers that differ, or the first lines."""
    try:
        a, b = json.loads(old), json.loads(new)
    except ValueError:
        return [line for line in difflib.unified_diff(old.splitlines(), new.splitlines(), lineterm="", n=0)][2:8]
    found = []

    def walk(x, y, path):
        if len(found) >= 6:
            return
        if isinstance(x, dict) and isinstance(y, dict):
            for key in sorted(set(x) | set(y)):
                walk(x.get(key), y.get(key), f"{path}.{key}")
        elif isinstance(x, list) and isinstance(y, list) and len(x) == len(y):
            for i, (one, other) in enumerate(zip(x, y)):
                walk(one, other, f"{path}[{i}]")
        elif x != y:
            found.append(f"{path}: {str(x)[:100]} -> {str(y)[:100]}")

    walk(a, b, "")
    return found or ["the order of keys"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("old")
    parser.add_argument("new")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--only", default="", help="requests that have this text")
    arguments = parser.parse_args()
    asked = [words for words in requests() if arguments.only in " ".join(words)]
    differing = refused = 0
    with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
        both = pool.map(lambda words: (words, answer(arguments.old, words), answer(arguments.new, words)), asked)
        for words, old, new in both:
            refused += old[0] == 2
            if old == new:
                continue
            differing += 1
            print("weft", *words, f"(exit {old[0]} -> {new[0]})" if old[0] != new[0] else "")
            for line in differences(old[1], new[1]):
                print("   ", line)
            sys.stdout.flush()
    print(f"{len(asked)} requests ({refused} refused), {differing} differ")
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())

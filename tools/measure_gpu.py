#!/usr/bin/env python3
"""Measures the operators of training steps on one GPU, and how they slow down beside communication-like kernels.

    python3 tools/measure_gpu.py --out measured --minutes 9                         # everything
    python3 tools/measure_gpu.py --out measured --minutes 9 --only interference     # one family (or several: a,b)
    python3 tools/measure_gpu.py --out measured --quick                             # a smoke test, a minute

Writes OUT/operators.csv (interference: OUT/interference.csv), a row per point as soon as it is measured, and OUT/provenance.json.
Rows that are already there are not measured again, so a run that was cut short goes on where it stopped. Needs PyTorch, and
the folder `measuring` beside it, which has the cases and how they are timed.

A row is an operator of Weft (src/graph/operators.h) with its attributes, the types of its inputs and the product that was timed
(`forward`, or a gradient's name), so that cost models can be asked for the same. `variant` says which kernel PyTorch was made to
use. Times are of the device, by CUDA events around one call; the host is kept ahead, so that its own time does not show. `cold`
rows: the L2 cache is filled with other, clean data before each call. Data are random, because zeros draw less power.
"""
import argparse, os, random, time

import torch

from measuring.device import Device
from measuring.images import convolutions, vision
from measuring.interference import interference
from measuring.load import host_time, sustained
from measuring.passes import copies, embeddings, norms, optimizers, pointwise, softmaxes
from measuring.products import batched, grouped, products
from measuring.records import BEGIN, BESIDE, Table, progress, provenance
from measuring.sequences import attention, recurrent

FAMILIES = {  # with the share of the time that each may take; what one leaves over, the next ones have
    "gemm": (products, 30), "gemm_batched": (batched, 5), "grouped": (grouped, 6), "attention": (attention, 18), "norm": (norms, 8),
    "pointwise": (pointwise, 14), "softmax": (softmaxes, 5), "embedding": (embeddings, 4), "convolution": (convolutions, 30),
    "vision": (vision, 8), "optimizer": (optimizers, 4), "lstm": (recurrent, 5), "copy": (copies, 4),
}


def run_family(device, table, name, seconds, rng):
    options = device.options
    cases = list(FAMILIES[name][0](rng))
    rng.shuffle(cases)  # a family that is cut short is still a fair sample
    if options.quick:
        cases = cases[: options.quick_cases]
    until = time.monotonic() + seconds
    done = 0
    for case in cases:
        if time.monotonic() > until:
            progress(f"{name}: out of time after {done} of {len(cases)} cases")
            break
        wanted = [cache for cache in ("cold", "warm") if cache == "cold" or case.warm]
        if case.operator in ("nothing", "zero"):
            wanted = ["warm"]
        if all(table.has(case.key(cache)) for cache in wanted) or (not device.cuda and case.bytes() > 4e6):
            continue
        call = None
        torch.backends.cuda.matmul.allow_tf32 = case.dtype != "f32"
        try:
            call = case.make(*[device.tensor(s, case.high) for s in case.shapes])
            for cache in wanted:
                table.add(case.key(cache), device.measure(call, cache == "cold"))
            done += 1
        except Exception as problem:  # one case that this machine cannot run must not end the others
            table.fail(case.key("cold"), problem)
            if "CUDA error" in str(problem):
                raise
        call = None
        if done % 50 == 0 and device.cuda:
            torch.cuda.empty_cache()
    progress(f"{name}: {done} cases")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", default="measured", help="folder for the results")
    parser.add_argument("--only", default="", help="families, separated by commas: " + ", ".join([*FAMILIES, "host", "sustained", "interference"]))
    parser.add_argument("--skip", default="", help="families to leave out")
    parser.add_argument("--minutes", type=float, default=9, help="stop after about this long")
    parser.add_argument("--quick", action="store_true", help="a few cases of every family, few repeats")
    parser.add_argument("--quick-cases", type=int, default=6, help="cases of a family in a quick run")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--point-ms", type=float, default=25, help="time that the repeats of one point take together")
    options = parser.parse_args()
    options.fewest, options.most = (3, 5) if options.quick else (9, 60)
    torch.manual_seed(options.seed)
    torch.backends.cuda.matmul.allow_tf32 = True
    torch.backends.cudnn.allow_tf32 = True
    torch.backends.cudnn.benchmark = True
    device = Device(options)
    os.makedirs(options.out, exist_ok=True)
    tables = {"operators": Table(os.path.join(options.out, "operators.csv"), device)}
    wanted = [n for n in [*FAMILIES, "host", "sustained", "interference"] if not options.only or n in options.only.split(",")]
    wanted = [n for n in wanted if n not in options.skip.split(",")]
    end = BEGIN + 60 * options.minutes
    try:
        if "host" in wanted:
            host_time(device, tables["operators"])
            progress("host: done")
        if "sustained" in wanted:
            sustained(device, tables["operators"])
            progress("sustained: done")
        if "interference" in wanted:
            tables["interference"] = Table(os.path.join(options.out, "interference.csv"), device, BESIDE)
            interference(device, tables["interference"], end)
        left = [n for n in wanted if n in FAMILIES]
        for index, name in enumerate(left):
            weights = [FAMILIES[n][1] for n in left[index:]]
            remaining = max(0.0, end - time.monotonic())
            # The case generator's numbers depend on the seed and the family alone, not on what ran before.
            run_family(device, tables["operators"], name, remaining * weights[0] / sum(weights) * 1.15, random.Random(f"{options.seed} {name}"))
    finally:
        provenance(device, options, tables, os.path.join(options.out, "provenance.json"))
    progress("rows: " + ", ".join(f"{name} {table.rows}, failed {len(table.failures)}" for name, table in tables.items()))


if __name__ == "__main__":
    main()

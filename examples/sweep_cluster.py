#!/usr/bin/env python3
"""Sweep a cluster: how fast a model trains on more and more nodes, and how well they are used.

    sweep_cluster.py [MODEL PRESET [GLOBAL_BATCH]]
"""
import sys

import weft


def main(model: str = "llama3-8b", preset: str = "dgx-h100", batch: str = "512") -> None:
    print("nodes   tokens/s  per device    MFU  plan")
    for nodes in (1, 2, 4, 8):
        found = weft.plan(model, f"{preset}:{nodes}", global_batch=int(batch), top=1)
        if not found.feasible:
            print(f"{nodes:5}  nothing fits; closest: {found.closest}")
            continue
        best = found.best[0]
        devices = weft.Cluster(f"{preset}:{nodes}").devices
        print(f"{nodes:5} {best.tokens_per_s:10,.0f} {best.tokens_per_s / devices:11,.0f}  {100 * best.mfu:4.1f} %  "
              f"{best.strategy.text}")


main(*sys.argv[1:])

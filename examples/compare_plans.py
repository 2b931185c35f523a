#!/usr/bin/env python3
"""Compare two plans: where the slower one loses its time, by activity and by operation.

    compare_plans.py [MODEL CLUSTER STRATEGY STRATEGY [GLOBAL_BATCH]]
"""
import sys

import weft


def by_activity(step: weft.Simulation) -> "dict[str, float]":
    """Seconds of work of rank 0, by activity; those that overlap count each."""
    timeline = step.timeline([0])
    spent = {}
    for activity, name in enumerate(timeline.activities):
        own = timeline.activity == activity
        spent[name] = float((timeline.end_ps[own] - timeline.work_ps[own]).sum()) * 1e-12
    return spent


def main(model: str = "llama3-8b", cluster: str = "dgx-h100:2", one: str = "tp=2,dp=8,zero=1",
         other: str = "tp=8,dp=2,zero=1", batch: str = "256") -> None:
    steps = [weft.simulate(model, cluster, strategy, global_batch=int(batch)) for strategy in (one, other)]
    fast, slow = sorted(steps, key=lambda each: each.step_time_ps)
    print(f"{slow.strategy.text}: {slow.step_time_s:.3f} s, {fast.strategy.text}: {fast.step_time_s:.3f} s")
    for what, seconds in slow.losses(fast).items():
        print(f"  {what:45} {seconds:+8.3f} s")
    work = [by_activity(step) for step in (fast, slow)]
    for name in work[0]:
        if work[0][name] or work[1][name]:
            print(f"  {name:12} works {work[0][name]:8.3f} s and {work[1][name]:8.3f} s")


main(*sys.argv[1:])

#!/usr/bin/env python3
"""Plan a language model: the best strategies, what the others lose to the best, where its time goes.

    plan_llm.py [MODEL CLUSTER [GLOBAL_BATCH]]
"""
import sys

import weft


def main(model: str = "llama3-8b", cluster: str = "dgx-h100:2", batch: str = "256") -> None:
    found = weft.plan(model, cluster, global_batch=int(batch))
    if not found.feasible:
        sys.exit(str(found))
    best = found.best[0]
    for plan in found.best:
        lost = [f"{what} {seconds:+.3f} s" for what, seconds in plan.losses(best).items() if seconds > 0][:2]
        print(f"{plan.step_time_s:8.3f} s  {100 * plan.mfu:5.1f} %  {plan.strategy.text}  {', '.join(lost)}")
    step = best.simulate()
    for part, seconds in sorted(step.breakdown_s.items(), key=lambda each: -each[1]):
        if seconds > 0:
            print(f"  {part.replace('_', ' '):24} {100 * seconds / step.step_time_s:5.1f} %")


main(*sys.argv[1:])

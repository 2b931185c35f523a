"""Weft finds how to train a model on a cluster and predicts every device's time and memory.

    import weft
    found = weft.plan("llama3-8b", "dgx-h100:2", global_batch=256)
    best = found.best[0].simulate()
    best.step_time_s, best.mfu, best.timeline().frame()

Models, clusters and strategies are named as on the command line, and arguments are its options. What does not work is a
weft.Error, whose message says what and how to mend it; that a plan does not fit is an answer, `feasible`.
"""
from ._core import (Cluster, Error, FoundPlan, Launch, Model, Progress, Search, Simulation, Strategy, Timeline, Validation,
                    __version__, build_info, clusters, devices, models, plan, read_launch, simulate, simulate_file, validate)
from .runs import Run, RunStep, read_run, run

__all__ = ["Cluster", "Error", "FoundPlan", "Launch", "Model", "Progress", "Run", "RunStep", "Search", "Simulation",
           "Strategy", "Timeline", "Validation", "build_info", "clusters", "devices", "models", "plan", "read_launch",
           "read_run", "run", "simulate", "simulate_file", "validate"]

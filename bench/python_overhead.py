#!/usr/bin/env python3
"""What Python adds to the CPU time of a simulation, and what importing the module takes.

    bench/python_overhead.py [BUILD]        default build/release; needs its ask_bench and the Python module

The requests are those of src/ask/ask_bench.cpp. Both sides simulate for some seconds, in turn, and their least CPU time per
simulation is compared: other load on the machine makes times longer, never shorter.
"""
import json
import os
import pathlib
import resource
import subprocess
import sys

REQUESTS = {
    "small": ("gpt2-124m", "dgx-a100:1", "tp=2,dp=4", 64),
    "large": ("llama3-70b", "dgx-h100:16", "tp=8,pp=4,dp=4,zero=1", 128),
}


def cpu_seconds():
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def of_python(name, calls):
    import weft
    model, cluster, strategy, batch = REQUESTS[name]
    for _ in range(2):
        weft.simulate(model, cluster, strategy, global_batch=batch)
    begin = cpu_seconds()
    for _ in range(calls):
        weft.simulate(model, cluster, strategy, global_batch=batch).step_time_s
    print((cpu_seconds() - begin) / calls)


def of_library(build, name):
    out = subprocess.run([build / "bin/ask_bench", f"--benchmark_filter=simulate_words/{name}$", "--benchmark_format=json",
                          "--benchmark_min_time=1"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True).stdout
    result, = json.loads(out)["benchmarks"]
    return result["cpu_time"] / 1e3, result["iterations"]


def main(build):
    env = {**os.environ, "PYTHONPATH": str(build / "lib/python")}
    for name in REQUESTS:
        library, python = [], []
        for _ in range(5):
            time, calls = of_library(build, name)
            library.append(time)
            words = [sys.executable, __file__, "--one", name, str(calls)]
            python.append(float(subprocess.run(words, env=env, stdout=subprocess.PIPE, check=True).stdout))
        print(f"{name}: library {1e3 * min(library):.3f} ms, Python {1e3 * min(python):.3f} ms, "
              f"{100 * (min(python) / min(library) - 1):+.1f} %")
    times = {}
    for what in ("pass", "import weft"):
        runs = []
        for _ in range(10):
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            subprocess.run([sys.executable, "-c", what], env=env, check=True)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            runs.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
        times[what] = min(runs)
    print(f"import weft: {1e3 * (times['import weft'] - times['pass']):.0f} ms of CPU")


if sys.argv[1:2] == ["--one"]:
    of_python(sys.argv[2], int(sys.argv[3]))
else:
    main(pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "build/release").resolve())

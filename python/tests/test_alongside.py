"""The module alongside threads, forks, signals and callbacks."""
import concurrent.futures
import gc
import multiprocessing
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time

import pytest
import weft
from conftest import CLUSTER, MODEL, SMALL

STRATEGIES = ["dp=8", "tp=2,dp=4", "tp=4,dp=2", "tp=2,dp=4,zero=1", "pp=2,dp=4", "pp=4,dp=2", "tp=2,pp=2,dp=2", "dp=8,zero=3"]


def step(strategy):
    return weft.simulate(MODEL, CLUSTER, strategy, **SMALL).step_time_ps


def search(_=None):
    return [plan.step_time_ps for plan in weft.plan(MODEL, CLUSTER, budget=8, **SMALL).best]


def test_threads_simulate_and_search_at_once_and_get_the_same():
    alone = {strategy: step(strategy) for strategy in STRATEGIES}
    found = search()
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        searches = [pool.submit(search) for _ in range(3)]
        assert dict(zip(STRATEGIES * 3, pool.map(step, STRATEGIES * 3))) == alone
        assert all(each.result() == found for each in searches)


def test_other_threads_run_during_a_search():
    ticks, over = [], threading.Event()

    def tick():
        while not over.wait(0.001):
            ticks.append(1)

    thread = threading.Thread(target=tick)
    thread.start()
    weft.plan("gpt3-1.3b", "dgx-a100:2", global_batch=64, budget=20)
    over.set()
    thread.join()
    assert len(ticks) > 5


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_processes_that_were_forked_or_spawned_go_on(method):
    expected = {strategy: step(strategy) for strategy in STRATEGIES[:4]}
    found = search()  # the pool of threads has been used before the fork
    with multiprocessing.get_context(method).Pool(2) as pool:
        assert dict(zip(expected, pool.map_async(step, list(expected)).get(timeout=100))) == expected
        assert pool.map_async(search, range(2)).get(timeout=100) == [found, found]


def test_progress_is_told_and_may_stop_the_search():
    told = []
    found = weft.plan("gpt3-1.3b", "dgx-a100:2", global_batch=64, progress=told.append)
    assert found.stopped_by == "done"
    assert told and all(isinstance(each, weft.Progress) and each.done >= 0 for each in told)
    assert told[-1].best_s > 0

    stopped = weft.plan("gpt3-175b", "dgx-a100:64", global_batch=512, progress=lambda now: False)
    assert stopped.stopped_by == "cancelled"


def test_what_progress_raises_comes_out():
    class Mine(Exception):
        pass

    def fail(now):
        raise Mine(now.done)

    with pytest.raises(Mine):
        weft.plan("gpt3-1.3b", "dgx-a100:2", global_batch=64, progress=fail)
    assert search()


CHILD = """
import weft
begun = lambda now=None: print("begun", flush=True)
try:
    {call}
    print("done")
except KeyboardInterrupt:
    print("interrupted", weft.simulate("gpt2-124m", "dgx-a100:1", "dp=8", global_batch=16, seq=128).feasible, flush=True)
"""
LONG = {
    "a search": 'weft.plan("gpt3-175b", "dgx-a100:128", global_batch=1536, progress=begun)',
    "a search of what takes long to simulate": 'begun(); weft.plan("gpt3-175b", "dgx-h100:1024", global_batch=8192)',
    "a simulation": 'begun(); weft.simulate("gpt3-175b", "dgx-h100:32", "tp=8,pp=8", global_batch=256, fold=False)',
}


@pytest.mark.parametrize("call", LONG.values(), ids=list(LONG))
def test_control_c_ends_a_call_and_leaves_nothing_broken(call):
    child = subprocess.Popen([sys.executable, "-c", CHILD.format(call=call)], stdout=subprocess.PIPE, text=True)
    assert child.stdout.readline() == "begun\n"
    time.sleep(0.1)
    child.send_signal(signal.SIGINT)
    # It is heard before the call would have ended, and the interpreter ends by itself and well.
    rest = child.communicate(timeout=200)[0].splitlines()
    assert rest[-1] == "interrupted True" and child.returncode == 0


def test_a_second_control_c_does_not_wait_for_an_interrupted_call():
    child = subprocess.Popen([sys.executable, "-c", CHILD.format(call=LONG["a simulation"])], stdout=subprocess.PIPE,
                             text=True)
    assert child.stdout.readline() == "begun\n"
    time.sleep(0.1)
    child.send_signal(signal.SIGINT)
    assert child.stdout.readline() == "interrupted True\n"
    time.sleep(0.1)
    child.send_signal(signal.SIGINT)
    assert child.wait(timeout=200) in (0, 130, -signal.SIGINT)


def test_results_give_their_memory_back():
    def resident():
        pages = int(pathlib.Path("/proc/self/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")

    for _ in range(20):
        step("tp=2,pp=2,dp=2")
    gc.collect()
    before = resident()
    for _ in range(200):
        weft.simulate(MODEL, CLUSTER, "tp=2,pp=2,dp=2", **SMALL).timeline().end_ps.sum()
    gc.collect()
    # A simulation with its timeline holds some 2 MiB; 200 of them would be 400.
    assert resident() - before < 64 << 20


def test_import_needs_neither_numpy_nor_pandas():
    words = "import sys, weft; sys.exit(any(name in sys.modules for name in ('numpy', 'pandas', 'json.tool')))"
    assert subprocess.run([sys.executable, "-c", words]).returncode == 0

"""weft.run trains by real ranks, tells of every step, and leaves nothing behind where it is stopped."""
import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest
import weft

TINY = "gpt2-124m:layers=2,hidden=32,heads=4,vocab=128,context=32,dropout=0"


@pytest.fixture(autouse=True)
def ranks_can_be_started(command):
    if not os.access(pathlib.Path(command).with_name("weft-rank"), os.X_OK):
        pytest.skip("built without libtorch: no weft-rank")


def processes_with(word):
    """Command lines of processes that have a word."""
    found = []
    for path in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = path.read_bytes().decode(errors="replace").replace("\0", " ")
        except OSError:
            continue
        if word in line:
            found.append(line)
    return found


def test_a_run_is_what_the_command_prints(command):
    told = []
    done = weft.run(TINY, "tp=2,sp=0", ranks=2, steps=3, global_batch=4, progress=told.append)
    printed = subprocess.run([command, "run", "--model", TINY, "--strategy", "tp=2,sp=0", "--ranks", "2", "--steps", "3",
                              "--global-batch", "4", "--json"], stdout=subprocess.PIPE, check=True)
    (weft_file := pathlib.Path("run.json")).write_bytes(printed.stdout)
    assert done.losses.tolist() == weft.read_run(weft_file).losses.tolist()
    assert [step.step for step in told] == [1, 2, 3]
    assert [step.loss for step in told] == pytest.approx(done.losses.tolist(), rel=1e-5)
    assert weft.run(weft.Model(TINY), weft.Strategy(tp=2, sp=0), ranks=2, steps=1, global_batch=4, check=True).passed


def test_what_does_not_work_is_the_commands_message():
    with pytest.raises(weft.Error, match="lower a degree"):
        weft.run(TINY, "tp=3", ranks=2)
    with pytest.raises(weft.Error, match="did you mean"):
        weft.run("gpt2-123m", "dp=1", ranks=1)
    with pytest.raises(TypeError, match="progress"):
        weft.run(TINY, "dp=1", ranks=1, progress=3)


def test_progress_stops_a_run():
    assert weft.run(TINY, "dp=2", ranks=2, steps=100000, global_batch=4, seed=77001, progress=lambda step: step.step < 2) is None
    assert not processes_with("77001")


def test_ctrl_c_ends_every_rank():
    words = (f"import weft; print('go', flush=True); "
             f"weft.run({TINY!r}, 'dp=2', ranks=2, steps=100000, global_batch=4, seed=77002, "
             f"progress=lambda step: print(step.step, flush=True))")
    process = subprocess.Popen([sys.executable, "-c", words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    for _ in range(3):  # go, 1, 2: it trains
        assert process.stdout.readline()
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert "KeyboardInterrupt" in errors
    for _ in range(100):
        if not processes_with("77002"):
            break
        time.sleep(0.1)
    assert not processes_with("77002")

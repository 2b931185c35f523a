"""Bad input is an exception with a message; nothing crashes."""
import math

import pytest
import weft
from conftest import CLUSTER, MODEL, SMALL


@pytest.mark.parametrize("words, message", [
    (("gpt2-124", CLUSTER, "dp=8"), "did you mean gpt2-124m"),
    ((MODEL, "dgx-a10:1", "dp=8"), "dgx-a100"),
    ((MODEL, CLUSTER, "tq=8"), "tq"),
    ((MODEL, CLUSTER, "tp=3"), "3"),
    ((MODEL, CLUSTER, ""), "--strategy: empty"),
    (("", CLUSTER, "dp=8"), ""),
    ((MODEL, "", "dp=8"), ""),
    ((MODEL, "nowhere.yaml", "dp=8"), "nowhere.yaml"),
    (("nowhere.onnx", CLUSTER, "dp=8"), "nowhere.onnx"),
    ((MODEL, CLUSTER, "nowhere.yaml"), "nowhere.yaml"),
])
def test_unknown_names_and_files_are_errors_that_say_so(words, message):
    with pytest.raises(weft.Error) as raised:
        weft.simulate(*words, **SMALL)
    assert message in str(raised.value)


@pytest.mark.parametrize("options, message", [
    (dict(headroom=math.nan), "--headroom nan"),
    (dict(headroom=-1.0), "--headroom -1"),
    (dict(headroom=math.inf), "--headroom inf"),
    (dict(global_batch=0), "batch"),
    (dict(global_batch=-5), "batch"),
    (dict(global_batch=17), "17"),
    (dict(micro_batch=0), "--micro-batch 0"),
    (dict(seq=-1), "seq"),
    (dict(devices=0), "devices"),
    (dict(dtype="bf61"), "--dtype 'bf61'"),
    (dict(stack="megatron"), "stack"),
    (dict(cost="guess"), "--cost 'guess'"),
    (dict(cost="measured"), "--db"),
    (dict(db="nowhere.db"), "--db nowhere.db"),
    (dict(calibration="nowhere.yaml"), "nowhere.yaml"),
    (dict(network="fast"), "--network 'fast'"),
    (dict(freeze="nothing"), "--freeze"),
])
def test_bad_values_are_errors_that_name_the_option(options, message):
    with pytest.raises(weft.Error) as raised:
        weft.simulate(MODEL, CLUSTER, "dp=8", **{**SMALL, **options})
    assert message in str(raised.value)


@pytest.mark.parametrize("options, message", [
    (dict(search="enumerat"), "did you mean enumerate"),
    (dict(budget="-3"), "--budget"),
    (dict(budget="soon"), "--budget 'soon'"),
    (dict(budget=0), "--budget 0"),
    (dict(tokens="many"), "--tokens"),
    (dict(schedules=["zb"]), "--schedules 'zb'"),
    (dict(top=0), "--top 0"),
    (dict(threads=-1), "--threads -1"),
    (dict(headroom=math.nan), "--headroom nan"),
])
def test_bad_values_of_a_search_too(options, message):
    with pytest.raises(weft.Error) as raised:
        weft.plan(MODEL, CLUSTER, **{**SMALL, **options})
    assert message in str(raised.value)


@pytest.mark.parametrize("call", [
    lambda: weft.simulate(),
    lambda: weft.simulate(1, CLUSTER, "dp=8"),
    lambda: weft.simulate(MODEL, None, "dp=8"),
    lambda: weft.simulate(MODEL, CLUSTER, ["dp=8"]),
    lambda: weft.simulate(b"gpt2-124m", CLUSTER, "dp=8"),
    lambda: weft.simulate(weft.Cluster(CLUSTER), CLUSTER, "dp=8"),
    lambda: weft.simulate(MODEL, CLUSTER, "dp=8", 16),
    lambda: weft.simulate(MODEL, CLUSTER, "dp=8", global_batch="16"),
    lambda: weft.simulate(MODEL, CLUSTER, "dp=8", global_batch=math.nan),
    lambda: weft.simulate(MODEL, CLUSTER, "dp=8", global_batch=2**64),
    lambda: weft.simulate(MODEL, CLUSTER, "dp=8", batch=16),
    lambda: weft.simulate(MODEL, CLUSTER, "dp=8", headroom="much"),
    lambda: weft.plan(MODEL, CLUSTER, budget=1.5),
    lambda: weft.plan(MODEL, CLUSTER, budget=math.nan),
    lambda: weft.plan(MODEL, CLUSTER, progress=3),
    lambda: weft.plan(MODEL, CLUSTER, seed=math.nan),
    lambda: weft.validate(3),
    lambda: weft.validate([3]),
    lambda: weft.Strategy(tp=2.5),
    lambda: weft.Strategy("tp=2", pp=2),
    lambda: weft.Model(None),
    lambda: weft.Simulation(),
    lambda: weft.Timeline(),
])
def test_wrong_types_are_type_errors(call):
    with pytest.raises(TypeError):
        call()


def test_more_of_what_is_not_there():
    for path in ("nowhere.csv", ["nowhere.csv"]):
        with pytest.raises(weft.Error, match="nowhere.csv"):
            weft.validate(path)
    with pytest.raises(weft.Error, match="plan.json"):
        weft.simulate_file("nowhere/plan.json")
    simulated = weft.simulate(MODEL, CLUSTER, "dp=8", **SMALL)
    with pytest.raises(weft.Error, match="rank 8: the plan has ranks 0 to 7"):
        simulated.timeline([8])
    with pytest.raises(weft.Error, match="nowhere"):
        simulated.trace("/nowhere/t.json")
    with pytest.raises(weft.Error):
        simulated.trace("t.json", ranks=[-1])
    with pytest.raises(weft.Error, match="most_tasks"):
        simulated.trace("t.json", most_tasks=-1)
    with pytest.raises(ValueError, match="null"):
        weft.Model("gpt2\0")
    with pytest.raises(weft.Error):
        weft.Strategy.from_yaml("mesh: [", "mine.yaml")
    with pytest.raises(weft.Error):
        weft.Strategy()


def test_an_error_is_a_value_error():
    assert issubclass(weft.Error, ValueError)

"""The module gives what the command gives, as Python's own objects."""
import json
import pickle
import subprocess

import numpy
import pytest
import weft
from conftest import CLUSTER, MODEL, ROOT, SMALL


def answer(command, *words):
    return json.loads(subprocess.run([command, *words, "--json"], stdout=subprocess.PIPE, check=True).stdout)


def test_a_simulation_is_what_the_command_prints(command):
    simulated = weft.simulate(MODEL, CLUSTER, "tp=2,pp=2,dp=2", **SMALL)
    printed = answer(command, "simulate", "--model", MODEL, "--cluster", CLUSTER, "--strategy", "tp=2,pp=2,dp=2",
                     "--global-batch", "16", "--seq", "128")
    assert simulated.to_dict() == printed
    for name in ("step_time_s", "samples_per_s", "tokens_per_s", "mfu", "mfu_causal", "hfu", "feasible",
                 "memory_verdict", "assumptions", "breakdown_s", "memory", "links", "critical_path"):
        assert getattr(simulated, name) == printed[name]
    assert simulated.step_time_ps == round(simulated.step_time_s * 1e12)
    assert simulated.interval_s[0] < simulated.step_time_s < simulated.interval_s[1]
    assert (simulated.devices, simulated.global_batch) == (8, 16)


def test_a_search_is_what_the_command_prints(command):
    found = weft.plan(MODEL, CLUSTER, budget=8, **SMALL)
    printed = answer(command, "plan", "--model", MODEL, "--cluster", CLUSTER, "--global-batch", "16", "--seq", "128",
                     "--budget", "8")
    assert found.to_dict() == printed
    assert found.feasible and found.search == printed["search"]
    assert found.best[0].step_time_s == printed["best"]["step_time_s"]
    assert found.best[0].strategy.text == printed["shorthand"]
    assert [plan.step_time_ps for plan in found.best] == sorted(plan.step_time_ps for plan in found.best)
    assert found.stopped_by in ("done", "evaluations") and found.considered >= found.simulated > 0


def test_a_found_plan_is_simulated_to_the_same_picosecond(tmp_path):
    found = weft.plan(MODEL, CLUSTER, budget=8, top=3, **SMALL)
    for plan in found.best:
        again = plan.simulate()
        assert again.step_time_ps == plan.step_time_ps
        assert weft.simulate(MODEL, CLUSTER, plan.strategy, **SMALL).step_time_ps == plan.step_time_ps
    found.save(tmp_path / "found")
    from_file = weft.simulate_file(tmp_path / "found/plan.json")
    assert from_file.step_time_ps == found.best[0].step_time_ps
    assert from_file.to_dict()["plan_file"]["same_program"]


def test_what_two_plans_differ_by_is_where_the_slower_one_loses():
    fast = weft.simulate(MODEL, CLUSTER, "dp=8", **SMALL)
    slow = weft.simulate(MODEL, CLUSTER, "tp=4,dp=2", **SMALL)
    lost = slow.losses(fast)
    assert sum(lost.values()) == pytest.approx(slow.step_time_s - fast.step_time_s, rel=0.05)
    assert list(lost.values()) == sorted(lost.values(), reverse=True)
    assert fast.losses(fast) == {} or set(fast.losses(fast).values()) == {0}


def test_a_validation_is_what_the_command_prints(command, tmp_path):
    table = tmp_path / "runs.csv"
    table.write_text("model,cluster,strategy,global_batch,seq,measured_step_s\n"
                     "gpt2-124m:layers=4,dgx-a100:1,dp=8,16,128,0.01\n"
                     "gpt2-124m:layers=4,dgx-a100:1,\"tp=4,dp=2\",16,128,0.02\n"
                     "nothing-like-it,dgx-a100:1,tp=8,16,128,0.02\n")
    validation = weft.validate(table)
    assert validation.to_dict() == answer(command, "validate", str(table))
    assert validation.rows == 2 and validation.mape > 0 and -1 <= validation.kendall_tau <= 1
    (file, line, reason), = validation.skipped
    assert file == str(table) and line == 4 and "nothing-like-it" in reason
    frame = validation.frame()
    assert list(frame["measured_s"]) == [0.01, 0.02] if "measured_s" in frame else len(frame) == 2
    validation.plot(tmp_path / "plot.html")
    assert "<svg" in (tmp_path / "plot.html").read_text()


def test_a_model_and_a_cluster_say_what_they_are():
    model = weft.Model("llama3-8b", seq=2048)
    assert (model.name, model.layers, model.seq, model.kind) == ("llama3-8b", 32, 2048, "language")
    assert model.parameters == 8_030_261_248  # Meta's model card: 8.03 B
    assert model.to_dict()["parameters"] == model.parameters
    cluster = weft.Cluster("dgx-h100:2")
    assert (cluster.devices, cluster.nodes, cluster.homogeneous) == (16, 2, True)
    assert weft.Cluster("dgx1-v100:1+p100x8:1").homogeneous is False
    assert "llama3-8b" in weft.models() and "dgx-h100" in weft.clusters() and len(weft.devices()) > 10


def test_a_cluster_file_is_the_cluster(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text(weft.Cluster("dgx-a100:1").yaml())
    assert weft.simulate(MODEL, path, "dp=8", **SMALL).step_time_ps == \
        weft.simulate(MODEL, weft.Cluster(CLUSTER), "dp=8", **SMALL).step_time_ps


def test_a_models_sequence_is_that_of_the_simulation_unless_it_has_one():
    model = weft.Model(MODEL, seq=128)
    by_model = weft.simulate(model, CLUSTER, "dp=8", global_batch=16)
    assert by_model.step_time_ps == weft.simulate(MODEL, CLUSTER, "dp=8", **SMALL).step_time_ps
    longer = weft.simulate(model, CLUSTER, "dp=8", global_batch=16, seq=256)
    assert longer.step_time_ps == weft.simulate(MODEL, CLUSTER, "dp=8", global_batch=16, seq=256).step_time_ps


def test_a_strategy_is_written_in_one_line_by_name_or_as_a_tree(tmp_path):
    assert weft.Strategy(tp=2, pp=2, sp=True, stages=[3, 1]).text == "tp=2,pp=2,sp=1,stages=3+1"
    assert weft.Strategy("tp=2") == weft.Strategy(tp=2) != weft.Strategy(tp=4)
    assert len({weft.Strategy("tp=2"), weft.Strategy(tp=2)}) == 1
    assert weft.Strategy("tp=2").yaml is None
    found = weft.plan("lenet", "p100x4:1", global_batch=64, search="exact")
    tree = found.best[0].strategy
    assert tree.yaml.startswith("mesh:")
    (tmp_path / "tree.yaml").write_text(tree.yaml)
    read = weft.Strategy(tmp_path / "tree.yaml")
    times = {weft.simulate("lenet", "p100x4:1", each, global_batch=64).step_time_ps
             for each in (tree, read, str(tmp_path / "tree.yaml"), weft.Strategy.from_yaml(tree.yaml))}
    assert times == {found.best[0].step_time_ps}


def test_a_timeline_is_read_only_arrays_of_every_task():
    simulated = weft.simulate(MODEL, CLUSTER, "pp=2,tp=2,dp=2", **SMALL)
    timeline = simulated.timeline(ranks=range(8))
    assert set(timeline.rank) == set(range(8))
    assert timeline.end_ps.max() == simulated.step_time_ps
    assert (timeline.issued_ps <= timeline.start_ps).all() and (timeline.start_ps <= timeline.work_ps).all()
    assert (timeline.work_ps <= timeline.end_ps).all()
    assert timeline.end_ps.dtype == numpy.int64 and len(timeline) == len(timeline.end_ps)
    with pytest.raises(ValueError):
        timeline.end_ps[0] = 0
    # On a stream one task at a time: none begins before the one before it has ended.
    for rank in range(8):
        for stream in set(timeline.stream):
            own = (timeline.rank == rank) & (timeline.stream == stream)
            assert (timeline.start_ps[own][1:] >= timeline.end_ps[own][:-1]).all()


def test_arrays_outlive_what_they_came_from():
    ends = weft.simulate(MODEL, CLUSTER, "dp=8", **SMALL).timeline().end_ps
    copy = ends.copy()
    for _ in range(3):
        weft.simulate(MODEL, CLUSTER, "tp=4,dp=2", **SMALL)
    assert (ends == copy).all()


def test_frames_name_what_arrays_number():
    pandas = pytest.importorskip("pandas")
    simulated = weft.simulate(MODEL, CLUSTER, "tp=2,dp=4", **SMALL)
    frame = simulated.timeline().frame()
    assert isinstance(frame, pandas.DataFrame)
    busy = frame[frame.stream == "compute"].groupby("activity", observed=True)[["work_s", "end_s"]].sum()
    assert set(busy.index) <= set(simulated.timeline().activities)
    assert (frame["operation"].astype(str).str.contains("layers.0")).any()
    found = weft.plan(MODEL, CLUSTER, budget=4, **SMALL)
    assert list(found.frame()["step_time_s"]) == [plan.step_time_s for plan in found.best]


def test_every_result_has_a_face_in_a_notebook(tmp_path):
    simulated = weft.simulate(MODEL, CLUSTER, "tp=2,dp=4", **SMALL)
    found = weft.plan(MODEL, CLUSTER, budget=4, **SMALL)
    for each in (simulated, found, weft.Model(MODEL), weft.Cluster(CLUSTER)):
        html = each._repr_html_()
        assert html.startswith("<") and html.count("<table") == html.count("</table>")
        assert repr(each) and str(each)
    assert "B0" in simulated.gantt()
    simulated.trace(tmp_path / "t.json")
    assert json.loads((tmp_path / "t.json").read_text())["traceEvents"]


def test_out_of_memory_is_an_answer():
    simulated = weft.simulate("llama3-70b", "dgx-h100:1", "tp=8")
    assert not simulated.feasible and simulated.memory_verdict == "does not fit"
    found = weft.plan("llama3-405b", "dgx-a100:1", budget=4)
    assert not found.feasible and found.best == [] and found.closest is not None
    assert "llama3" in repr(found) and found._repr_html_()
    with pytest.raises(weft.Error, match="nothing fits"):
        found.save("out")


def test_results_of_runs_are_objects(tmp_path):
    path = tmp_path / "run.json"
    path.write_text(json.dumps({
        "model": "m", "strategy": "dp=2", "ranks": 2, "numbers": "as-stored", "assumptions": [],
        "steps": [{"step": 1, "loss": 2.5, "time_s": 0.5}, {"step": 2, "loss": 2.25, "time_s": 0.25}],
        "check": [{"step": 1, "tensor": "w", "difference": 1e-9, "bound": 1e-4, "ok": True}]}))
    run = weft.read_run(path)
    assert (run.model, run.ranks, run.passed) == ("m", 2, True)
    assert list(run.losses) == [2.5, 2.25] and run.steps[1] == weft.RunStep(2, 2.25, 0.25)
    assert list(run.frame().columns) == ["step", "loss", "time_s"]
    assert "2.25" in run._repr_html_()
    for text, message in (("[]", "not what weft run --json prints"), ("{", "no JSON"), ("{}", "'model'")):
        path.write_text(text)
        with pytest.raises(weft.Error, match=message):
            weft.read_run(path)
    with pytest.raises(weft.Error, match="nowhere.json: No such file"):
        weft.read_run("nowhere.json")


def test_an_onnx_file_is_a_model():
    model = weft.Model(ROOT / "tests/onnx/resnet50.onnx")
    assert model.kind == "imported" and 25_000_000 < model.parameters < 26_000_000
    with pytest.raises(weft.Error, match="has 2 samples"):  # it was exported so
        weft.simulate(model, CLUSTER, "dp=8", global_batch=64)
    any_batch = f"{ROOT}/tests/onnx/bert_base_dynamic.onnx:seq=128"
    assert weft.simulate(any_batch, CLUSTER, "dp=8", global_batch=64).feasible


def test_what_it_was_built_from_is_known():
    assert weft.build_info()["version"] == weft.__version__
    with pytest.raises(TypeError):
        pickle.dumps(weft.simulate(MODEL, CLUSTER, "dp=8", **SMALL))

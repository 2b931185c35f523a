"""A present run is read, predicted and improved, and the new configuration keeps what the user had."""
import pathlib
import subprocess

import pytest
import weft

ARGUMENTS = r"""torchrun --nnodes 2 --nproc-per-node 8 pretrain_gpt.py --num-layers 8 --hidden-size 2048 \
  --num-attention-heads 16 --max-position-embeddings 2048 --seq-length 2048 --vocab-size 50257 \
  --tensor-model-parallel-size 8 --micro-batch-size 1 --global-batch-size 64 --bf16 --data-path /data/mine"""


@pytest.fixture
def script():
    path = pathlib.Path("args.txt")
    path.write_text(ARGUMENTS)
    return path


def test_a_launch_is_what_its_file_says(script):
    launch = weft.read_launch(script)
    assert (launch.trainer, launch.global_batch, launch.seq, launch.dtype, launch.devices) == ("megatron", 64, 2048, "bf16", 16)
    assert launch.strategy.text.startswith("tp=8,pp=1")
    assert "--data-path /data/mine" in launch.kept


def test_a_better_plan_becomes_a_new_command_line_that_reads_back(script):
    launch = weft.read_launch(script)
    present = launch.simulate("dgx-a100:2")
    found = launch.plan("dgx-a100:2", budget=6)
    assert found.best[0].step_time_s < present.step_time_s
    better = found.best[0].export(launch)
    assert "--data-path /data/mine" in better
    pathlib.Path("better.sh").write_text(better)
    assert weft.read_launch("better.sh").simulate("dgx-a100:2").step_time_ps == found.best[0].step_time_ps


def test_it_is_what_the_command_says(script, command):
    import json
    printed = json.loads(subprocess.run([command, "plan", "--against", script, "--cluster", "dgx-a100:2", "--budget", "6", "--json"],
                                        stdout=subprocess.PIPE, check=True).stdout)
    launch = weft.read_launch(script)
    assert launch.simulate("dgx-a100:2").step_time_s == printed["present"]["step_time_s"]
    found = launch.plan("dgx-a100:2", budget=6)
    assert found.best[0].step_time_s == printed["best"]["step_time_s"]
    assert found.best[0].export(launch) == printed["present"]["configuration"]


def test_plans_for_a_trainer_can_be_told_to_it():
    found = weft.plan("llama3-8b:layers=8", "dgx-h100:1", global_batch=32, seq=2048, budget=6, trainer="megatron", top=3)
    for plan in found.best:
        assert "pretrain_gpt.py" in plan.export("megatron")
    with pytest.raises(weft.Error, match="none of the models that torchtitan registers"):
        found.best[0].export("torchtitan")


def test_faults_are_the_importers(script):
    script.write_text(ARGUMENTS + " \\\n  --hidden-size 4096\n")
    with pytest.raises(weft.Error, match="args.txt:4: --hidden-size: given twice, on line 1 too"):
        weft.read_launch(script)
    script.write_text("{\"fp16\": {\"enabled\": true}, \"train_micro_batch_size_per_gpu\": 1}")
    with pytest.raises(weft.Error, match="--model is required"):
        weft.read_launch(script).simulate("dgx-a100:1")
    with pytest.raises(weft.Error, match="unknown; there are"):
        weft.read_launch(script, trainer="megatorn")
    with pytest.raises(weft.Error, match="missing.txt"):
        weft.read_launch("missing.txt")

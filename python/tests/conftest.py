import os
import pathlib

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]

SMALL = dict(global_batch=16, seq=128)
MODEL, CLUSTER = "gpt2-124m:layers=4", "dgx-a100:1"


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def command():
    """The weft command, to compare with."""
    path = os.environ.get("WEFT_BIN", "")
    if not os.access(path, os.X_OK):
        pytest.skip("no weft command: WEFT_BIN")
    return path

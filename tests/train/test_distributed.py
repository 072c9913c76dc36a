"""Two processes that share a batch end with the weights of one process that has it all."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from plait.train.data.example import Example, Passage
from plait.train.data.example_store import build_example_store
from train import two_processes

TESTS = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("store") / "examples.sqlite"
    examples = [
        Example(
            f"query {number} about {number % 7}",
            (Passage(f"passage {number} " + "with words " * (number % 5)),),
            (Passage(f"no answer {number}"), Passage(f"none of {number % 3} either")),
        )
        for number in range(64)
    ]
    build_example_store(path, examples).close()
    return path


@pytest.fixture(scope="module")
def both(store: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("two")
    script = [sys.executable, "-m", "train.two_processes"]
    started = [
        subprocess.Popen(
            [*script, str(rank), str(store), str(out / "meeting"), str(out)],
            env={**os.environ, "PYTHONPATH": os.pathsep.join([str(TESTS), *sys.path]), "GLOO_SOCKET_IFNAME": "lo"},
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    errors = [process.communicate(timeout=120)[1] for process in started]
    assert [process.returncode for process in started] == [0, 0], "\n".join(errors)
    return out


@pytest.mark.parametrize("split", two_processes.SPLITS)
def test_two_processes_train_as_one_with_the_whole_batch(store: Path, both: Path, split: str) -> None:
    alone = two_processes.train(store, split).state_dict()
    for rank in range(2):
        result = load_file(str(both / f"{split}-{rank}.safetensors"))
        assert result.keys() == alone.keys()
        for name, tensor in alone.items():
            torch.testing.assert_close(result[name], tensor, rtol=0, atol=1e-9)

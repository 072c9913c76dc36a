"""Two workers of Ray Train make the losses and the weights of two processes on one machine, also if one is killed."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from plait.cluster.ray_runtime import import_ray
from plait.cluster.ray_training import TrainWorkers, train_on_ray
from plait.errors import ConfigError, InputError
from plait.train.recipe import Recipe, read_recipe
from plait.train.run_folder import CURVES, read_curves

ROOT = Path(__file__).parents[3]
CHANGES = ["optimiser.steps=20", "run.save_every=4", "evaluation.every=10", "run.cpu=true"]
WORKERS = TrainWorkers(n_workers=2, cpus=1.0)


@pytest.fixture(scope="module", autouse=True)
def ray() -> Iterator[Any]:
    ray = import_ray()
    ray.init(num_cpus=3, include_dashboard=False, object_store_memory=100_000_000, log_to_driver=False)
    yield ray
    ray.shutdown()


@pytest.fixture(autouse=True)
def at_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)  # the paths of the recipe begin here


@pytest.fixture(scope="module")
def recipe() -> Recipe:
    return read_recipe(ROOT / "recipes/tiny.toml", CHANGES)


@pytest.fixture(scope="module")
def two_processes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run of `plait train` in two processes that torch joins."""
    folder = tmp_path_factory.mktemp("two") / "run"
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "plait", "train", "recipes/tiny.toml", "--to", str(folder), "--device", "cpu"]
    for change in CHANGES:
        command += ["--set", change]
    started = []
    for rank in range(2):
        joined = {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}
        meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "GLOO_SOCKET_IFNAME": "lo"}
        environment = {**os.environ, **joined, **meeting}
        started.append(subprocess.Popen(command, cwd=ROOT, env=environment, stderr=subprocess.PIPE, text=True))
    errors = [process.communicate(timeout=300)[1] for process in started]
    assert [process.returncode for process in started] == [0, 0], "\n".join(errors)
    return folder


def losses(folder: Path) -> list[float]:
    return [line["loss"] for line in read_curves(folder / CURVES) if "loss" in line]


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(str(next((folder / "checkpoints").glob("step-*")) / "model.safetensors"))


def assert_same_run(folder: Path, wanted: Path) -> None:
    assert len(losses(folder)) == 20
    assert losses(folder) == pytest.approx(losses(wanted), rel=1e-5)
    other = weights(wanted)
    for name, tensor in weights(folder).items():
        torch.testing.assert_close(tensor, other[name], rtol=1e-3, atol=1e-5)


@pytest.fixture(scope="module")
def on_ray(recipe: Recipe, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder, before = tmp_path_factory.mktemp("ray") / "run", Path.cwd()
    os.chdir(ROOT)
    state = train_on_ray(recipe, folder, workers=WORKERS)
    os.chdir(before)
    assert (state.step, state.n_steps) == (20, 20)
    return folder


def test_two_workers_train_as_two_processes(on_ray: Path, two_processes: Path) -> None:
    assert_same_run(on_ray, two_processes)
    assert (on_ray / "final" / "model.safetensors").is_file() or list((on_ray / "final").iterdir())
    assert not (on_ray / "ray").exists()


def test_the_second_round_is_mined_in_shards_with_the_negatives_of_one_index(on_ray: Path, two_processes: Path) -> None:
    mined = (on_ray / "data" / "mined-1.jsonl").read_text()
    assert mined == (two_processes / "data" / "mined-1.jsonl").read_text()
    assert mined != (on_ray / "data" / "mined-0.jsonl").read_text()
    assert not (on_ray / "data" / "index").exists()


def descendants(pid: int) -> dict[int, str]:
    """The processes below a process, and their command lines."""
    parents, commands = dict[int, int](), dict[int, str]()
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            stat, command = (entry / "stat").read_text(), (entry / "cmdline").read_bytes()
        except OSError:  # it has ended
            continue
        parents[int(entry.name)] = int(stat.rpartition(")")[2].split()[1])
        commands[int(entry.name)] = command.replace(b"\0", b" ").decode(errors="replace")
    below, added = {pid}, {pid}
    while added:
        added = {child for child, parent in parents.items() if parent in added} - below
        below |= added
    return {child: commands[child] for child in below - {pid}}


def test_a_killed_worker_is_replaced_and_the_run_is_the_same(recipe: Recipe, on_ray: Path, tmp_path: Path) -> None:
    folder, messages, results = tmp_path / "run", list[str](), list[Any]()

    def run() -> None:
        results.append(train_on_ray(recipe, folder, workers=WORKERS, on_step=messages.append))

    training = threading.Thread(target=run)
    training.start()
    end = time.monotonic() + 600
    while not (folder / CURVES).is_file() or len(losses(folder)) < 6:
        assert time.monotonic() < end
        assert training.is_alive()
        time.sleep(0.02)
    workers = [pid for pid, command in descendants(os.getpid()).items() if "RayTrainWorker" in command]
    assert len(workers) == 2
    os.kill(workers[1], signal.SIGKILL)
    killed_after = len(losses(folder))
    training.join(600)
    assert results
    assert results[0].step == 20
    assert killed_after < 20
    print(f"a worker was killed after step {killed_after}: {messages}")
    assert len(messages) == 1
    assert losses(folder) == losses(on_ray)  # to the last bit
    assert all(torch.equal(tensor, weights(on_ray)[name]) for name, tensor in weights(folder).items())


def test_a_stopped_run_is_resumed_by_its_folder_alone(recipe: Recipe, on_ray: Path, tmp_path: Path) -> None:
    shutil.copytree(on_ray, tmp_path / "run")
    with pytest.raises(ConfigError, match="already holds a run"):
        train_on_ray(recipe, tmp_path / "run", workers=WORKERS)
    with pytest.raises(ConfigError, match="holds no run to resume"):
        train_on_ray(recipe, tmp_path / "other", workers=WORKERS, resumed=True)
    shutil.rmtree(tmp_path / "run" / "final")
    state = train_on_ray(recipe, tmp_path / "run", workers=WORKERS, resumed=True)
    assert state.step == 20
    assert (tmp_path / "run" / "final").is_dir()


def test_the_error_of_a_worker_is_raised_and_not_tried_again(tmp_path: Path) -> None:
    """Only the first worker mines: the others wait for it."""
    recipe = read_recipe(ROOT / "recipes/tiny.toml", [*CHANGES, f"mining.corpus={tmp_path / 'none'}"])
    messages = list[str]()
    with pytest.raises(InputError, match="there is no corpus"):
        train_on_ray(recipe, tmp_path / "run", workers=WORKERS, on_step=messages.append)
    assert messages == []

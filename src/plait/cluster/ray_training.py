"""Training on Ray: Ray Train starts the workers and joins them, and each runs the recipe as a process of `torchrun`
would (see `plait.train.devices`), in a folder that all see. The checkpoints are those of the run, so it resumes
exactly, on Ray or on one machine with as many processes.

Ray Train repeats a failed run whatever the error. Here the driver decides: an error of plait ends the run, and after
anything else, such as a lost worker, the run resumes from its last checkpoint.
"""

from __future__ import annotations

import os
import shutil
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from plait.checks import check_count
from plait.cluster.ray_runtime import connect, own_error
from plait.errors import ConfigError, StoreError

if TYPE_CHECKING:
    from plait.train.recipe import Recipe
    from plait.train.run_state import RunState

OnLine = Callable[[dict[str, Any]], None]  # a line of curves.jsonl
RAY_FOLDER = "ray"  # in the folder of the run, while it runs
# Other workers wait while the first one mines or evaluates. Ray notices a lost worker much earlier.
COLLECTIVE_SECONDS = 7 * 24 * 3600
WATCH_SECONDS = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainWorkers:
    """How a run is spread."""

    n_workers: int = 2
    cpus: float = 1.0  # of each worker
    use_gpu: bool = False  # one for each worker
    max_restarts: int = 3  # after which a run that loses workers is given up

    def __post_init__(self) -> None:
        check_count("n_workers", self.n_workers)


def train_on_ray(
    recipe: Recipe,
    folder: Path,
    *,
    workers: TrainWorkers | None = None,
    address: str | None = None,
    resumed: bool = False,
    on_line: OnLine = lambda _: None,
    on_step: Callable[[str], None] = lambda _: None,
) -> RunState:
    """Trains with the recipe in `folder`, which every node must see, as must the working directory of this process: the
    paths of a recipe are relative to it. Returns how far the run is: to its end."""
    from plait.train.run_folder import check_folder

    workers = TrainWorkers() if workers is None else workers
    folder = folder.absolute()
    check_folder(folder, recipe, resumed=resumed)
    connect(address)
    n_restarts = 0
    try:
        with _watched(folder, on_line):
            while (failure := _fit(recipe, folder, workers)) is not None:
                if n_restarts == workers.max_restarts:
                    raise StoreError(
                        f"the run lost workers {n_restarts + 1} times, the last time with: {failure}. It is saved in "
                        f"{folder}; resume it"
                    )
                n_restarts += 1
                on_step(f"a worker was lost ({failure}); the run resumes from its last checkpoint")
    finally:
        shutil.rmtree(folder / RAY_FOLDER, ignore_errors=True)
    return _state(folder)


def _fit(recipe: Recipe, folder: Path, workers: TrainWorkers) -> str | None:
    """Runs the recipe to its end; what went wrong if workers were lost. An error of plait in a worker is raised."""
    from ray import train
    from ray.train.torch import TorchConfig, TorchTrainer

    trainer = TorchTrainer(
        _run_worker,
        train_loop_config={
            "recipe": recipe,
            "folder": str(folder),
            "directory": str(Path.cwd()),
            "device": "cuda" if workers.use_gpu else "cpu",
        },
        torch_config=TorchConfig(timeout_s=COLLECTIVE_SECONDS),
        scaling_config=train.ScalingConfig(
            num_workers=workers.n_workers,
            use_gpu=workers.use_gpu,
            resources_per_worker={"CPU": workers.cpus, **({"GPU": 1} if workers.use_gpu else {})},
        ),
        run_config=train.RunConfig(name="run", storage_path=str(folder / RAY_FOLDER)),
    )
    handler = signal.getsignal(signal.SIGINT)
    try:
        trainer.fit()
    except SystemExit:  # Ray Train's answer to Ctrl-C, after it has ended the workers
        raise KeyboardInterrupt from None
    except train.TrainingFailedError as error:
        failures = list(getattr(error, "worker_failures", {}).values())
        for failure in failures:
            if (cause := own_error(failure)) is not None:
                raise cause from error
        lines = str(failures[0] if failures else error).strip().splitlines()
        return lines[-1][:200] if lines else repr(error)
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, handler)
    return None


def _run_worker(given: dict[str, Any]) -> None:
    """One worker, from the first step or the last checkpoint to the end."""
    from plait.cluster.mining import WorkerMiner
    from plait.convert.start import read_start
    from plait.train.build import build, start_of
    from plait.train.devices import n_processes, process
    from plait.train.run import Run
    from plait.train.run_folder import RECIPE

    recipe, folder, directory = given["recipe"], Path(given["folder"]), given["directory"]
    try:
        os.chdir(directory)
    except OSError as error:
        raise ConfigError(
            f"a worker cannot work in {directory} ({error}): every node must see the folder where the run was started"
        ) from None
    name = start_of(recipe)
    start = read_start(name) if name else None
    miner = WorkerMiner(process(), n_processes()) if n_processes() > 1 else None
    resumed = (folder / RECIPE).is_file()  # of an earlier call, or of workers that were lost
    Run(recipe, folder, partial(build, start=start), resumed=resumed, device=given["device"], miner=miner).train()


def _state(folder: Path) -> RunState:
    import json

    from plait.train.run_folder import CHECKPOINTS
    from plait.train.run_state import STATE, RunState, last_checkpoint

    checkpoint = last_checkpoint(folder / CHECKPOINTS)
    if checkpoint is None:
        raise StoreError(f"the run in {folder} has no checkpoint: this machine does not see what the workers wrote")
    return RunState.from_json(json.loads((checkpoint / STATE).read_text(encoding="utf-8")))


@contextmanager
def _watched(folder: Path, on_line: OnLine) -> Iterator[None]:
    """Passes on what the first worker writes to curves.jsonl meanwhile."""
    is_over = threading.Event()

    def watch() -> None:
        from plait.train.run_folder import CURVES, read_curves

        path, goes_on = folder / CURVES, True
        n_seen = len(read_curves(path)) if path.is_file() else 0
        while goes_on:
            goes_on = not is_over.wait(WATCH_SECONDS)  # once more after the end
            lines = read_curves(path) if path.is_file() else []
            n_seen = min(n_seen, len(lines))  # a run that resumes drops the lines after its checkpoint
            for line in lines[n_seen:]:
                on_line(line)
            n_seen = len(lines)

    watching = threading.Thread(target=watch, name="plait-curves", daemon=True)
    watching.start()
    try:
        yield
    finally:
        is_over.set()
        watching.join()

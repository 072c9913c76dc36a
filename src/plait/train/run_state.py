"""Checkpoints of a run, from which it resumes bit for bit: weights (safetensors), state (JSON), optimiser and random
states in one folder. last.json names the folder and is replaced in one step."""

from __future__ import annotations

import json
import random
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from safetensors.torch import load_file, load_model, save_file, save_model
from torch import nn

from plait.errors import StoreError
from plait.train.batching.plan import Position
from plait.train.devices import n_processes, process
from plait.train.run_folder import write_atomically

LAST = "last.json"
WEIGHTS, OPTIMISER, STATE = "model.safetensors", "optimiser.pt", "state.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunState:
    """How far a run is."""

    step: int = 0
    n_steps: int  # of the whole run; fixed when it starts
    position: Position
    best: float | None = None  # the best measure so far
    best_step: int | None = None

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> RunState:
        return cls(**{**fields, "position": Position(**fields["position"])})


def save(folder: Path, model: nn.Module, optimiser: torch.optim.Optimizer, state: RunState) -> Path:
    """Writes a checkpoint under `folder` and removes the previous one. Every process calls this."""
    checkpoint = folder / f"step-{state.step:07d}"
    if process() == 0:
        shutil.rmtree(checkpoint, ignore_errors=True)
        checkpoint.mkdir(parents=True)
    _wait()
    _save_random_states(checkpoint)
    if process() == 0:
        save_model(model, str(checkpoint / WEIGHTS))
        torch.save(optimiser.state_dict(), checkpoint / OPTIMISER)
        (checkpoint / STATE).write_text(json.dumps(state.to_json(), indent=2) + "\n", encoding="utf-8")
    _wait()
    if process() == 0:
        write_atomically(folder / LAST, json.dumps({"checkpoint": checkpoint.name}) + "\n")
        for other in folder.glob("step-*"):
            if other != checkpoint:
                shutil.rmtree(other)
    return checkpoint


def last_checkpoint(folder: Path) -> Path | None:
    """The last complete checkpoint, if there is one."""
    try:
        name = json.loads((folder / LAST).read_text(encoding="utf-8"))["checkpoint"]
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError):
        raise StoreError(f"{folder / LAST} is damaged; remove it to start from the beginning") from None
    return folder / str(name)


def load(checkpoint: Path, model: nn.Module, optimiser: torch.optim.Optimizer) -> RunState:
    """Restores the model, the optimiser and the random states, and returns how far the run was."""
    try:
        fields = json.loads((checkpoint / STATE).read_text(encoding="utf-8"))
        load_model(model, str(checkpoint / WEIGHTS))
        optimiser.load_state_dict(torch.load(checkpoint / OPTIMISER, weights_only=True))
        _load_random_states(checkpoint)
    except (OSError, ValueError, RuntimeError) as error:
        raise StoreError(f"the checkpoint {checkpoint} cannot be read with this recipe: {error}") from error
    return RunState.from_json(fields)


def _save_random_states(checkpoint: Path) -> None:
    version, words, gauss = random.getstate()
    kind, keys, position, has_gauss, cached = np.random.get_state(legacy=True)
    states = {"torch": torch.get_rng_state(), "numpy": torch.from_numpy(np.asarray(keys).astype(np.int64))}
    if torch.cuda.is_available():
        states["cuda"] = torch.cuda.get_rng_state()
    save_file(states, str(checkpoint / f"random-{process()}.safetensors"))
    rest = {"python": [version, list(words), gauss], "numpy": [kind, int(position), int(has_gauss), float(cached)]}
    (checkpoint / f"random-{process()}.json").write_text(json.dumps(rest), encoding="utf-8")


def _load_random_states(checkpoint: Path) -> None:
    states = load_file(str(checkpoint / f"random-{process()}.safetensors"))
    rest = json.loads((checkpoint / f"random-{process()}.json").read_text(encoding="utf-8"))
    version, words, gauss = rest["python"]
    random.setstate((version, tuple(words), gauss))
    kind, position, has_gauss, cached = rest["numpy"]
    np.random.set_state((kind, states["numpy"].numpy().astype(np.uint32), position, has_gauss, cached))
    torch.set_rng_state(states["torch"])
    if "cuda" in states and torch.cuda.is_available():
        torch.cuda.set_rng_state(states["cuda"])


def _wait() -> None:
    if n_processes() > 1:
        dist.barrier()

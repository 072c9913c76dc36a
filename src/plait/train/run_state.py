"""Going on: what a run needs to continue from where it was. A folder of weights (safetensors), state (JSON), optimiser
and random states, named by one file that is replaced in one step. A run that was killed goes on from the last of these,
bit for bit as if it had not been."""

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
from plait.train.run_folder import write_whole

LAST = "last.json"
WEIGHTS, OPTIMISER, STATE = "model.safetensors", "optimiser.pt", "state.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """Where a run is."""

    step: int = 0
    n_steps: int  # of the whole run; fixed when it begins
    position: Position
    best: float | None = None  # the best measure so far
    best_step: int | None = None

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> State:
        return cls(**{**fields, "position": Position(**fields["position"])})


def save(folder: Path, model: nn.Module, optimiser: torch.optim.Optimizer, state: State) -> Path:
    """Writes a checkpoint under `folder`, makes it the last, removes the one before it. Every process calls this."""
    own = folder / f"step-{state.step:07d}"
    if process() == 0:
        shutil.rmtree(own, ignore_errors=True)
        own.mkdir(parents=True)
    _wait()
    _save_random(own)
    if process() == 0:
        save_model(model, str(own / WEIGHTS))
        torch.save(optimiser.state_dict(), own / OPTIMISER)
        (own / STATE).write_text(json.dumps(state.to_json(), indent=2) + "\n", encoding="utf-8")
    _wait()
    if process() == 0:
        write_whole(folder / LAST, json.dumps({"checkpoint": own.name}) + "\n")
        for other in folder.glob("step-*"):
            if other != own:
                shutil.rmtree(other)
    return own


def last(folder: Path) -> Path | None:
    """The last checkpoint, if there is one."""
    try:
        name = json.loads((folder / LAST).read_text(encoding="utf-8"))["checkpoint"]
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError):
        raise StoreError(f"{folder / LAST} is damaged; remove it to begin anew") from None
    return folder / str(name)


def load(own: Path, model: nn.Module, optimiser: torch.optim.Optimizer) -> State:
    """Sets the model, the optimiser and the random states as they were, and gives where the run was."""
    try:
        fields = json.loads((own / STATE).read_text(encoding="utf-8"))
        load_model(model, str(own / WEIGHTS))
        optimiser.load_state_dict(torch.load(own / OPTIMISER, weights_only=True))
        _load_random(own)
    except (OSError, ValueError, RuntimeError) as error:
        raise StoreError(f"the checkpoint {own} cannot be read with this recipe: {error}") from error
    return State.from_json(fields)


def _save_random(own: Path) -> None:
    version, words, gauss = random.getstate()
    kind, keys, position, has_gauss, cached = np.random.get_state(legacy=True)
    states = {"torch": torch.get_rng_state(), "numpy": torch.from_numpy(np.asarray(keys).astype(np.int64))}
    if torch.cuda.is_available():
        states["cuda"] = torch.cuda.get_rng_state()
    save_file(states, str(own / f"random-{process()}.safetensors"))
    rest = {"python": [version, list(words), gauss], "numpy": [kind, int(position), int(has_gauss), float(cached)]}
    (own / f"random-{process()}.json").write_text(json.dumps(rest), encoding="utf-8")


def _load_random(own: Path) -> None:
    states = load_file(str(own / f"random-{process()}.safetensors"))
    rest = json.loads((own / f"random-{process()}.json").read_text(encoding="utf-8"))
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

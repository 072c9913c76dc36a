"""What a run left: the weights to export, and what there is to tell about them."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from plait.errors import ConfigError, ModelError
from plait.train import checkpoint
from plait.train.curves import read_curves
from plait.train.export.weights import n_ids_of
from plait.train.model import Model
from plait.train.recipe import Recipe, parse_recipe
from plait.train.run import BEST, CURVES, FINAL, RECIPE, VERSIONS

ABOUT = "about.json"
WHICH = (BEST, FINAL)


@dataclass(frozen=True, slots=True, eq=False)
class Trained:
    """A model with what its run says of it; without a run, only the model."""

    model: Model
    tokenizer: Tokenizer
    about: dict[str, Any] = field(default_factory=dict)  # step, and what was measured at it
    recipe: Recipe | None = None
    versions: dict[str, str] = field(default_factory=dict)
    curves: list[dict[str, Any]] = field(default_factory=list)


def read_trained(run: Path, which: str = "") -> Trained:
    """The model of a run: the best one, or the last where none was measured, or the one asked for. `run` may also be
    the folder of a model that training saved. ModelError if there is none, or if it has no heads."""
    if which and which not in WHICH:
        raise ConfigError(f"there are no weights {which!r}; choose one of {', '.join(WHICH)}")
    if not run.is_dir():
        raise ModelError(f"there is no run {run}; give the folder that plait train wrote")
    if (run / checkpoint.DESCRIPTION).is_file():
        return Trained(*_loaded(run), about=_json(run / ABOUT))
    recipe = parse_recipe((run / RECIPE).read_text(encoding="utf-8"), name=RECIPE) if (run / RECIPE).is_file() else None
    found = [name for name in ([which] if which else WHICH) if (run / name).is_dir()]
    if not found:
        wanted = which or " or ".join(WHICH)
        there = ", ".join(sorted(entry.name for entry in run.iterdir())[:8]) or "nothing"
        raise ModelError(
            f"{run} holds no trained model: there is no folder {wanted} in it, only {there}; train it to its end "
            f"(plait train RECIPE --to {run} --resume), then export"
        )
    folder = run / found[0]
    if not (folder / checkpoint.DESCRIPTION).is_file() and (folder / "config.json").is_file():
        raise ModelError(
            f"{folder} is a backbone without heads, as RetroMAE leaves it, and gives no strands; name it as the "
            f"backbone of another recipe, train heads on it, and export that run"
        )
    curves = read_curves(run / CURVES) if (run / CURVES).is_file() else []
    return Trained(*_loaded(folder), _json(folder / ABOUT), recipe, _json(run / VERSIONS), curves)


def _loaded(folder: Path) -> tuple[Model, Tokenizer]:
    model, tokenizer = checkpoint.load(folder)
    n_ids, highest = n_ids_of(model), max(tokenizer.get_vocab().values())
    if highest >= n_ids:
        raise ModelError(
            f"{folder}: the tokeniser has ids up to {highest}, and the backbone has vectors for {n_ids}; train with "
            f"the tokeniser of the backbone"
        )
    return model.eval(), tokenizer


def _json(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise ModelError(f"{path} cannot be read: {error}") from error
    return dict(found) if isinstance(found, dict) else {}

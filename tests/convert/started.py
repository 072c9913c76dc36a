"""A model in training that starts from one of the small checkpoints, saved before its first step."""

from __future__ import annotations

from pathlib import Path

from plait.convert.start import read_start
from plait.train.build import build
from plait.train.recipe import Recipe, parse_recipe
from plait.train.start import StartingModel

KINDS = ("dense", "sparse", "multi")


def start_recipe(start: StartingModel, folder: Path, more: str = "") -> Recipe:
    """A recipe that starts from a checkpoint; `more` is added to its section [model]."""
    is_cross = start.pair is not None
    kind = next((kind for kind in KINDS if getattr(start.heads, kind) is not None), "")
    loss = "name = 'cross-entropy'" if is_cross else f"name = 'contrastive'\nkind = '{kind}'"
    model = f"start = '{folder}'\n" + ("kind = 'cross-encoder'\n" if is_cross else "")
    data = "[[data]]\nkind = 'beir'\npath = 'nothing'\n\n[batching]\nn_negatives = 1\n"
    return parse_recipe(f"[model]\n{model}{more}\n[loss]\n{loss}\n\n{data}")


def saved_model(checkpoint: Path, to: Path, more: str = "") -> StartingModel:
    """Saves the model of a recipe that starts from `checkpoint`, as `plait train` does; returns the checkpoint."""
    start, run = read_start(checkpoint), to.with_name(f"{to.name}-run")
    run.mkdir(parents=True)
    build(start_recipe(start, checkpoint, more), run, start).save(to)
    return start

"""The checkpoint that a recipe of `plait train` starts from."""

from __future__ import annotations

from pathlib import Path

from plait.convert.checkpoint import Checkpoint
from plait.convert.convert import OnStage, open_source
from plait.convert.detect import choose_layout, read_checkpoint
from plait.convert.layouts.plait_run import MODEL_LAYOUT, RUN_LAYOUT
from plait.errors import ConfigError


def read_start(name: str | Path, *, layout: str | None = None, on_stage: OnStage = lambda _: None) -> Checkpoint:
    """The checkpoint in a folder, or of the hub (`ORG/NAME[@REVISION]`), in any layout that `plait convert` reads.
    `plait.train.build.build` takes it as `start`. ModelError if it cannot be read."""
    source = open_source(name, say=on_stage)
    detected = choose_layout(source, layout)
    if detected.layout == RUN_LAYOUT:
        raise ConfigError(
            f"{name} is a run of plait train; to continue from its weights, copy the section [model] of its "
            f"recipe.toml and add init_from = '{source.folder / 'final'}'"
        )
    if detected.layout == MODEL_LAYOUT:
        raise ConfigError(
            f"{name} is a model folder: it has finished graphs and no weights to train. Start from the checkpoint or "
            f"the run that it was made from"
        )
    return read_checkpoint(source, detected)

"""plait's own folders: a training run or a trained model, and a model folder that is ready."""

from __future__ import annotations

from plait.convert.source import Source
from plait.encode.model_card import CARD_NAME

RUN_LAYOUT, MODEL_LAYOUT = "plait-run", "plait"
TRAINED = "model.json"  # of plait.train.checkpoint


def is_model(source: Source) -> bool:
    return source.has(CARD_NAME)


def is_run(source: Source) -> bool:
    """Whether the folder is a run of `plait train`, or a model that it saved."""
    return any(source.has(f"{part}{TRAINED}") for part in ("", "best/", "final/")) and not source.has("config.json")

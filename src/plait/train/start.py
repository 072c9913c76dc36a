"""What to begin with in the place of heads at random: the projection of a model folder, or all of a model that was
trained before."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from plait.encode.load import file_of, find, record_of
from plait.encode.model_card import read_card
from plait.errors import ConfigError
from plait.train.checkpoint import DESCRIPTION, load
from plait.train.model import Model

PROJECTION, SHIFT = "projection", "shift"  # as plait's graphs name them


def start_from(model: Model, source: str | Path) -> None:
    """Gives the model the weights that training saved, `final` or `best` of a run; or its multi head the projection of
    a model folder or a bundled model. ConfigError if they do not fit."""
    if (Path(source) / DESCRIPTION).is_file():
        _go_on_from(model, Path(source))
    else:
        _take_projection(model, source)


def _go_on_from(model: Model, folder: Path) -> None:
    trained, _ = load(folder)
    try:
        model.load_state_dict(trained.state_dict())
    except RuntimeError as error:
        raise ConfigError(f"start is {str(folder)!r}, a model of another make: {error}") from None


def _take_projection(model: Model, source: str | Path) -> None:
    import onnx

    folder = find(source)
    card = read_card(folder)
    path = file_of(folder, record_of(card.precisions, card.name, folder, None))
    found: dict[str, Any] = {
        own.name: onnx.numpy_helper.to_array(own)
        for own in onnx.load(str(path)).graph.initializer
        if own.name in (PROJECTION, SHIFT)
    }
    weight = found.get(PROJECTION)
    if weight is None or model.multi is None or weight.T.shape != model.multi.project.weight.shape:
        seen = "none" if weight is None else f"one of {weight.shape}"
        wanted = "no multi head" if model.multi is None else f"{tuple(model.multi.project.weight.T.shape)}"
        raise ConfigError(f"start is {str(source)!r}, whose projection is {seen}; the model has {wanted}")
    with torch.no_grad():
        model.multi.project.weight.copy_(torch.from_numpy(weight.T.copy()))
        if model.multi.project.bias is not None:
            shift = found.get(SHIFT)
            model.multi.project.bias.copy_(torch.zeros(len(weight.T)) if shift is None else torch.from_numpy(shift))

"""Which parameter learns how fast: lower layers slower than upper ones, heads at their own rate, no decay on norms and
biases."""

from __future__ import annotations

from typing import Any

from torch import nn

from plait.errors import ConfigError
from plait.train.model import Model


def parameter_groups(
    model: Model, lr: float, *, layer_decay: float = 1.0, head_lr: float | None = None, weight_decay: float = 0.01
) -> list[dict[str, Any]]:
    """Groups for a torch optimiser, each with a `name`. The last of n layers learns at `lr`, layer i (from 0) at
    lr * layer_decay ** (n - 1 - i), the embeddings at lr * layer_decay ** n, heads at `head_lr` (`lr` if None).
    Frozen parameters are in no group."""
    if not 0 < layer_decay <= 1:
        raise ConfigError(f"layer_decay is {layer_decay}; it must be above 0 and at most 1")
    n_layers, numbers = model.backbone.n_layers, model.backbone.layer_numbers()
    groups: dict[tuple[str, bool], dict[str, Any]] = {}

    def put(name: str, parameter: nn.Parameter, rate: float) -> None:
        if not parameter.requires_grad:
            return
        decays = parameter.ndim > 1
        fresh = {"name": name if decays else f"{name}, no decay", "params": [], "lr": rate}
        group = groups.setdefault((name, decays), fresh | {"weight_decay": weight_decay if decays else 0.0})
        group["params"].append(parameter)

    for parameter in model.backbone.parameters():
        layer = numbers.get(id(parameter))
        if layer is None:
            put("embeddings", parameter, lr * layer_decay**n_layers)
        else:
            put(f"layer {layer}", parameter, lr * layer_decay ** (n_layers - 1 - layer))
    for name, parameter in model.named_parameters():
        if not name.startswith("backbone."):
            put("heads", parameter, lr if head_lr is None else head_lr)
    return list(groups.values())

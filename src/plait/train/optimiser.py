"""The optimiser of a run and how its rate goes: warm-up, and a line or a cosine down. Which parameter learns at which
rate is in rates.py."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from plait.errors import ConfigError
from plait.train.model import Model

SCHEDULES = ("linear", "cosine", "constant")


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimiserConfig:
    """AdamW, and how long it runs."""

    lr: float = 2e-5  # of the top layer of the backbone
    head_lr: float = 0.0  # of what is not the backbone; 0 is the same as lr
    layer_decay: float = 1.0  # the rate of each layer is this much of the one above it
    weight_decay: float = 0.01  # not of biases and norms
    betas: tuple[float, ...] = (0.9, 0.999)
    eps: float = 1e-8
    warmup: float = 0.1  # steps, or a share of all steps if below 1
    schedule: str = "linear"
    clip: float = 1.0  # of the norm of all gradients; 0 is no clipping
    steps: int = 0  # 0: as many as `epochs` make
    epochs: int = 1  # used if steps is 0
    horizon: int = 0  # steps that the schedule is made for, where training ends before them; 0: all that are made

    def __post_init__(self) -> None:
        if self.lr <= 0:
            raise ConfigError(f"lr is {self.lr}; it must be above 0")
        if not 0 < self.layer_decay <= 1:
            raise ConfigError(f"layer_decay is {self.layer_decay}; it must be above 0 and at most 1")
        if len(self.betas) != 2:
            raise ConfigError(f"betas are {list(self.betas)}; there must be two")
        if self.schedule not in SCHEDULES:
            raise ConfigError(f"schedule is {self.schedule!r}; choose one of {', '.join(SCHEDULES)}")
        for name in ("head_lr", "weight_decay", "warmup", "clip", "steps"):
            if getattr(self, name) < 0:
                raise ConfigError(f"{name} is {getattr(self, name)}; it must be 0 or more")
        if self.horizon and not 0 < self.steps <= self.horizon:
            raise ConfigError(
                f"horizon is {self.horizon} and steps is {self.steps}; a run ends at its horizon or before it"
            )
        if self.steps == 0 and self.epochs < 1:
            raise ConfigError(f"steps is 0 and epochs is {self.epochs}; one of them must say how long to train")


def make_optimiser(groups: list[dict[str, Any]], config: OptimiserConfig) -> torch.optim.AdamW:
    """AdamW of groups that each have a rate and a decay of their own."""
    if not any(group["params"] for group in groups):
        raise ConfigError("no parameter of the model is trained; freeze fewer layers")
    beta1, beta2 = config.betas
    optimiser = torch.optim.AdamW(groups, lr=config.lr, betas=(beta1, beta2), eps=config.eps)
    for group in optimiser.param_groups:
        group["full_lr"] = group["lr"]  # what the schedule takes a share of
    return optimiser


def rate_at(config: OptimiserConfig, n_steps: int) -> Callable[[int], float]:
    """The share of the full rate at each step from 0, for `torch.optim.lr_scheduler.LambdaLR`."""
    n_steps = config.horizon or n_steps
    warmup = round(config.warmup * n_steps) if config.warmup < 1 else round(config.warmup)

    def share(step: int) -> float:
        if step < warmup:
            return (step + 1) / (warmup + 1)
        done = min(1.0, (step - warmup) / max(1, n_steps - warmup))
        if config.schedule == "linear":
            return 1.0 - done
        return (1.0 + math.cos(math.pi * done)) / 2 if config.schedule == "cosine" else 1.0

    return share


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

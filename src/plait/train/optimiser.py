"""The optimiser of a run: AdamW, parameter groups with layer-wise learning rates, and the learning-rate schedule."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from plait.errors import ConfigError

SCHEDULES = ("linear", "cosine", "constant")


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimiserConfig:
    """AdamW, its schedule, and how long a run is."""

    lr: float = 2e-5  # of the top layer of the backbone
    head_lr: float = 0.0  # of all parameters outside the backbone; 0: the same as lr
    layer_decay: float = 1.0  # each layer's rate is this times the rate of the layer above
    weight_decay: float = 0.01  # biases and norms have none
    betas: tuple[float, ...] = (0.9, 0.999)
    eps: float = 1e-8
    warmup: float = 0.1  # steps, or a share of all steps if below 1
    schedule: str = "linear"
    clip: float = 1.0  # the maximum norm of all gradients; 0: no clipping
    steps: int = 0  # 0: as many as `epochs` need
    epochs: int = 1  # used if steps is 0
    schedule_steps: int = 0  # the length of the schedule if the run stops before its end; 0: the length of the run

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
        if self.schedule_steps and not 0 < self.steps <= self.schedule_steps:
            raise ConfigError(
                f"schedule_steps is {self.schedule_steps} and steps is {self.steps}; steps must be set, and at most "
                f"schedule_steps"
            )
        if self.steps == 0 and self.epochs < 1:
            raise ConfigError(f"steps is 0 and epochs is {self.epochs}; set one of them")


def parameter_groups(model: Any, config: OptimiserConfig) -> list[dict[str, Any]]:
    """Groups for a torch optimiser, each with a `name`, of a module with a `backbone`. The last of n layers learns at
    `lr`, layer i (from 0) at lr * layer_decay ** (n - 1 - i), the embeddings at lr * layer_decay ** n, heads at
    `head_lr`. Frozen parameters are in no group."""
    n_layers, layer_numbers = model.backbone.n_layers, model.backbone.layer_numbers()
    groups: dict[tuple[str, bool], dict[str, Any]] = {}

    def add(name: str, parameter: nn.Parameter, rate: float) -> None:
        if not parameter.requires_grad:
            return
        decays = parameter.ndim > 1
        new = {"name": name if decays else f"{name}, no decay", "params": [], "lr": rate}
        group = groups.setdefault((name, decays), new | {"weight_decay": config.weight_decay if decays else 0.0})
        group["params"].append(parameter)

    for parameter in model.backbone.parameters():
        layer = layer_numbers.get(id(parameter))
        if layer is None:
            add("embeddings", parameter, config.lr * config.layer_decay**n_layers)
        else:
            add(f"layer {layer}", parameter, config.lr * config.layer_decay ** (n_layers - 1 - layer))
    for name, parameter in model.named_parameters():
        if not name.startswith("backbone."):
            add("heads", parameter, config.head_lr or config.lr)
    return list(groups.values())


def make_optimiser(groups: list[dict[str, Any]], config: OptimiserConfig) -> torch.optim.AdamW:
    """AdamW over groups that each have a learning rate and a weight decay."""
    if not any(group["params"] for group in groups):
        raise ConfigError("no parameter of the model is trained; freeze fewer layers")
    beta1, beta2 = config.betas
    optimiser = torch.optim.AdamW(groups, lr=config.lr, betas=(beta1, beta2), eps=config.eps)
    for group in optimiser.param_groups:
        group["full_lr"] = group["lr"]  # the schedule multiplies this
    return optimiser


def lr_schedule(config: OptimiserConfig, n_steps: int) -> Callable[[int], float]:
    """The factor of the full learning rate at each step from 0: warm-up, then the schedule."""
    n_steps = config.schedule_steps or n_steps
    warmup = round(config.warmup * n_steps) if config.warmup < 1 else round(config.warmup)

    def factor(step: int) -> float:
        if step < warmup:
            return (step + 1) / (warmup + 1)
        done = min(1.0, (step - warmup) / max(1, n_steps - warmup))
        if config.schedule == "linear":
            return 1.0 - done
        return (1.0 + math.cos(math.pi * done)) / 2 if config.schedule == "cosine" else 1.0

    return factor

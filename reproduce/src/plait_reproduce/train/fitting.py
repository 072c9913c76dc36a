"""One loop for all trained arms: AdamW, a short warm-up, a rate that falls to nothing."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from plait.train.optimiser import OptimiserConfig, make_optimiser, rate_at

WARMUP = 0.1
CLIP = 1.0


def fit(module: nn.Module, loss_of: Callable[[int], Tensor], *, n_steps: int, lr: float) -> list[float]:
    """Makes `loss_of(step)` smaller, `n_steps` times; gives the losses."""
    config = OptimiserConfig(lr=lr, steps=n_steps, warmup=WARMUP, schedule="linear")
    optimiser = make_optimiser([{"params": list(module.parameters()), "lr": lr, "weight_decay": 0.01}], config)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimiser, rate_at(config, n_steps))
    losses = []
    for step in range(n_steps):
        loss = loss_of(step)
        optimiser.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(module.parameters(), CLIP)
        optimiser.step()
        schedule.step()
        losses.append(float(loss.detach()))
    return losses

"""The loop: a batch, a gradient, a step, and whoever watches."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import nn

from plait.errors import PlaitError
from plait.train.batching.collate import TextBatch
from plait.train.batching.gather import n_processes, sum_gradients
from plait.train.batching.stream import Stream
from plait.train.encoded import Loss

Backward = Callable[[TextBatch, int], Loss]  # adds the gradient of a batch at a step, and gives its loss


class DivergedError(PlaitError):
    """The loss is no longer a number."""


@dataclass(frozen=True, slots=True)
class StepReport:
    """One step that was made."""

    step: int  # how many were made, this one included
    n_steps: int  # of the whole run
    loss: float
    parts: dict[str, float]
    norm: float  # of the gradient, before it was clipped
    rate: float  # of learning, the highest of all groups
    n_pairs: int  # queries, over all processes
    seconds: float


def steps(
    step: int,
    *,
    until: int,
    n_steps: int,
    stream: Stream,
    backward: Backward,
    model: nn.Module,
    optimiser: torch.optim.Optimizer,
    share: Callable[[int], float],
    clip: float,
) -> Iterator[StepReport]:
    """Makes steps from `step` up to `until`; a report comes after each, when the model and the stream are as the next
    step finds them. `share` is the part of each group's own rate that a step uses."""
    model.train()
    while step < until:
        began = time.perf_counter()
        for group in optimiser.param_groups:
            group["lr"] = group["full_lr"] * share(step)
        batch = stream.next()
        loss = backward(batch, step)
        sum_gradients(model.parameters())
        norm = float(torch.nn.utils.clip_grad_norm_(model.parameters(), clip or float("inf")))
        total = float(loss.total.detach())
        if not (abs(total) < float("inf") and norm < float("inf")):
            raise DivergedError(
                f"at step {step + 1} the loss is {total} and the gradient's norm {norm}; lower optimiser.lr, or "
                f"train in fp32"
            )
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)
        step += 1
        yield StepReport(
            step,
            n_steps,
            total,
            dict(loss.parts),
            norm,
            max(group["lr"] for group in optimiser.param_groups),
            len(batch.queries) * n_processes(),
            time.perf_counter() - began,
        )

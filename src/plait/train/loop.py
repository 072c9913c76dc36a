"""The loop: a batch, a gradient, a step, and whoever watches."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, Self, TypeVar

import torch
from torch import nn

from plait.errors import PlaitError
from plait.train.batching.stream import Stream, TextBatch
from plait.train.devices import n_processes, sum_gradients
from plait.train.evaluation import Judged
from plait.train.optimiser import OptimiserConfig
from plait.train.recipe import EvaluationConfig
from plait.train.tensors import Loss, Objective
from plait.train.torch_encoder import Reads

Pretraining = Callable[[Sequence[str], int], Loss]  # the loss of bare texts at a step
# The loss of a batch whose queries and passages are read together, part by part, each with its share of the whole.
Joint = Callable[[TextBatch], Iterator[tuple[Loss, float]]]
Evaluate = Callable[[Judged, EvaluationConfig, Path], float]  # the measure of a recipe; the folder is for an index


@dataclass(frozen=True, slots=True, eq=False)
class Parts:
    """A model, how it reads, and what it learns from: an objective of queries and passages, one of both read
    together, or one of bare texts."""

    model: nn.Module  # all that is trained; called with (Tokens, is_query=...) it gives Encoded, unless `encode` does
    texts: Reads
    groups: Callable[[OptimiserConfig], list[dict[str, Any]]]  # of parameters, for the optimiser
    save: Callable[[Path], None]  # writes a new folder with a model that stands alone
    objective: Objective | None = None
    pretraining: Pretraining | None = None
    joint: Joint | None = None
    evaluate: Evaluate | None = None  # how it is watched, where that is not by searching with its vectors
    encode: nn.Module | None = None  # what is searched with, where it is not `model`

    @property
    def searched(self) -> nn.Module:
        return self.model if self.encode is None else self.encode


Made = TypeVar("Made")


class Stop:
    """While it is entered, Ctrl-C during `between` sets `asked`, and a second one raises; elsewhere the first does."""

    def __init__(self) -> None:
        self.asked = False
        self._within = False
        self._before: Any = None

    def __enter__(self) -> Self:
        self.asked = False
        if threading.current_thread() is threading.main_thread():
            self._before = signal.signal(signal.SIGINT, self._on_signal)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)
            self._before = None

    def between(self, items: Iterator[Made]) -> Iterator[Made]:
        """The items; each is made whole."""
        while True:
            self._within = True
            try:
                item = next(items, None)
            finally:
                self._within = False
            if item is None:
                return
            yield item

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        if not self._within or self.asked:
            raise KeyboardInterrupt
        self.asked = True


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

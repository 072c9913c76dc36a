"""The training loop: what it trains (`Trainable`), one step after another (`steps`), and Ctrl-C between steps."""

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
from plait.train.evaluation import DevSet
from plait.train.model_config import SparseHeadConfig
from plait.train.optimiser import OptimiserConfig
from plait.train.recipe import EvaluationConfig
from plait.train.tensors import Loss, LossFunction
from plait.train.torch_encoder import TokenizesTexts

Item = TypeVar("Item")
PretrainingLoss = Callable[[Sequence[str], int], Loss]  # of texts without labels, at a step
# The loss of a batch whose queries and passages are read together, in microbatches, each with its share of the whole.
PairLosses = Callable[[TextBatch], Iterator[tuple[Loss, float]]]
Evaluate = Callable[[DevSet, EvaluationConfig, Path], float]  # the recipe's measure; the path is for a temporary index
Backward = Callable[[TextBatch, int], Loss]  # adds the gradient of a batch at a step, and returns its loss


@dataclass(frozen=True, slots=True, eq=False)
class Trainable:
    """A model, its tokenizer and one of three losses: of queries and passages encoded separately (`loss_function`), of
    pairs read together (`pair_losses`), or of texts without labels (`pretraining_loss`)."""

    model: nn.Module  # all that is trained; maps (Tokens, is_query=...) to Encoded, unless `encode` does
    texts: TokenizesTexts
    groups: Callable[[OptimiserConfig], list[dict[str, Any]]]  # of parameters, for the optimiser
    save: Callable[[Path], None]  # writes a complete model to a new folder
    loss_function: LossFunction | None = None
    pretraining_loss: PretrainingLoss | None = None
    pair_losses: PairLosses | None = None
    evaluate: Evaluate | None = None  # default: by searching with the embeddings of `encoder`
    encode: nn.Module | None = None  # what encodes texts, if not `model`
    vocabulary: int | None = None  # the number of terms of sparse vectors; None: the model has none
    sparse: SparseHeadConfig | None = None  # how sparse vectors are weighted
    search_mode: str = "hybrid"  # how the model is searched in evaluation if the recipe does not say

    @property
    def encoder(self) -> nn.Module:
        """The module that encodes texts."""
        return self.model if self.encode is None else self.encode


class DivergedError(PlaitError):
    """The loss or its gradient is infinite or NaN."""


@dataclass(frozen=True, slots=True)
class StepReport:
    """One step."""

    step: int  # steps made, this one included
    n_steps: int  # of the whole run
    loss: float
    parts: dict[str, float]
    norm: float  # of the gradient, before clipping
    rate: float  # the highest learning rate of all groups
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
    lr_factor: Callable[[int], float],
    clip: float,
) -> Iterator[StepReport]:
    """Makes the steps from `step` to `until`, and yields a report after each, when model and stream are ready for the
    next step. `lr_factor` multiplies each group's full learning rate."""
    model.train()
    while step < until:
        started = time.perf_counter()
        for group in optimiser.param_groups:
            group["lr"] = group["full_lr"] * lr_factor(step)
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
            time.perf_counter() - started,
        )


class InterruptHandler:
    """A context in which Ctrl-C during a step only sets `requested`, because a half-made step cannot be resumed. A
    second Ctrl-C, or one outside of `uninterrupted`, raises KeyboardInterrupt."""

    def __init__(self) -> None:
        self.requested = False
        self._in_step = False
        self._previous: Any = None

    def __enter__(self) -> Self:
        self.requested = False
        if threading.current_thread() is threading.main_thread():
            self._previous = signal.signal(signal.SIGINT, self._on_signal)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._previous is not None:
            signal.signal(signal.SIGINT, self._previous)
            self._previous = None

    def uninterrupted(self, items: Iterator[Item]) -> Iterator[Item]:
        """The items; Ctrl-C does not interrupt the computation of one."""
        while True:
            self._in_step = True
            try:
                item = next(items, None)
            finally:
                self._in_step = False
            if item is None:
                return
            yield item

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        if not self._in_step or self.requested:
            raise KeyboardInterrupt
        self.requested = True

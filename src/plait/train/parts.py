"""What a recipe's model and objective become, and what the loop asks of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from plait.train.batching.collate import TextBatch
from plait.train.encoded import Loss
from plait.train.encoder import Reads
from plait.train.evaluation import Judged
from plait.train.facts import Objective
from plait.train.optimiser import OptimiserConfig
from plait.train.recipe import EvaluationConfig

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

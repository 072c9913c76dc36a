"""What a recipe's model and objective become, and what the loop asks of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from plait.train.encoded import Loss
from plait.train.encoder import Reads
from plait.train.facts import Objective
from plait.train.optimiser import OptimiserConfig

Pretraining = Callable[[Sequence[str], int], Loss]  # the loss of bare texts at a step


@dataclass(frozen=True, slots=True, eq=False)
class Parts:
    """A model, how it reads, and what it learns from: an objective of queries and passages, or one of bare texts."""

    model: nn.Module  # all that is trained; called with (Tokens, is_query=...) it gives Encoded, unless `encode` does
    texts: Reads
    groups: Callable[[OptimiserConfig], list[dict[str, Any]]]  # of parameters, for the optimiser
    save: Callable[[Path], None]  # writes a new folder with a model that stands alone
    objective: Objective | None = None
    pretraining: Pretraining | None = None
    encode: nn.Module | None = None  # what is searched with, where it is not `model`

    @property
    def searched(self) -> nn.Module:
        return self.model if self.encode is None else self.encode

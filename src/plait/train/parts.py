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

Pretraining = Callable[[Sequence[str]], Loss]  # the loss of bare texts; the model that it trains is `Parts.model`


@dataclass(frozen=True, slots=True, eq=False)
class Parts:
    """A model, how it reads, and what it learns from: an objective of queries and passages, or one of bare texts."""

    model: nn.Module  # called with (Tokens, is_query=...), gives Encoded; and whatever else is trained with it
    texts: Reads
    objective: Objective | None = None
    pretraining: Pretraining | None = None
    save: Callable[[Path], None] | None = None  # writes a model folder that stands alone


Build = Callable[[Any, Any], Parts]  # the sections model and objective

"""What goes into a model and what comes out of it, as padded tensors: the two currencies of training."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True, eq=False)
class Tokens:
    """A padded batch of texts, on one side."""

    ids: Tensor  # (items, length) int64
    mask: Tensor  # (items, length) bool: attended positions
    rows: Tensor  # (items, length) bool: positions that give a multi row


@dataclass(frozen=True, slots=True, eq=False)
class Encoded:
    """What a model gives for a batch; a strand that it does not have is None."""

    dense: Tensor | None = None  # (items, dim), normalised
    sparse: Tensor | None = None  # (items, length) token weights >= 0
    sparse_ids: Tensor | None = None  # (items, length) int64
    multi: Tensor | None = None  # (items, rows, dim), normalised; zero rows where multi_mask is False
    multi_mask: Tensor | None = None  # (items, rows) bool


class Loss(Protocol):
    """A loss and what it is made of."""

    @property
    def total(self) -> Tensor: ...

    @property
    def parts(self) -> dict[str, float]: ...


@dataclass(frozen=True, slots=True, eq=False)
class BatchFacts:
    """Document i belongs to query i // group, and is its positive if i % group is 0."""

    group: int
    allowed: Tensor  # (queries, documents) bool: False is a score that counts in no softmax
    teacher: Tensor | None  # (queries, group)
    step: int  # how many steps were made before this one

    @property
    def positive(self) -> Tensor:
        """(queries,): the column of each query's positive."""
        return torch.arange(len(self.allowed), device=self.allowed.device) * self.group


Objective = Callable[[Encoded, Encoded, BatchFacts], Loss]  # queries, documents, what is known of them


@dataclass(frozen=True, slots=True, eq=False)
class Summed:
    """A loss and the values of its parts."""

    total: Tensor
    parts: dict[str, float] = field(default_factory=dict)

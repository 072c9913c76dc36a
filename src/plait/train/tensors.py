"""The tensors that pass between tokenizer, model, loss and loop."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True, eq=False)
class Tokens:
    """A padded batch of texts, all queries or all documents."""

    ids: Tensor  # (items, length) int64
    mask: Tensor  # (items, length) bool: attended positions
    rows: Tensor  # (items, length) bool: positions that give a row of the multi vectors


@dataclass(frozen=True, slots=True, eq=False)
class Encoded:
    """A model's output for a batch; a kind of embedding that the model does not have is None."""

    dense: Tensor | None = None  # (items, dim), normalised
    sparse: Tensor | None = None  # (items, length) token weights >= 0
    sparse_ids: Tensor | None = None  # (items, length) int64
    multi: Tensor | None = None  # (items, rows, dim), normalised; zero rows where multi_mask is False
    multi_mask: Tensor | None = None  # (items, rows) bool


@dataclass(frozen=True, slots=True, eq=False)
class BatchTargets:
    """What a loss needs besides the vectors. Document i belongs to query i // group; it is the positive if i % group
    is 0."""

    group: int
    allowed: Tensor  # (queries, documents) bool: a False pair takes part in no softmax
    teacher: Tensor | None  # (queries, group)
    step: int  # steps made before this one

    @property
    def positive(self) -> Tensor:
        """(queries,): the column of each query's positive."""
        return torch.arange(len(self.allowed), device=self.allowed.device) * self.group


class Loss(Protocol):
    """A loss to minimise, and the values of its terms for the log."""

    @property
    def total(self) -> Tensor: ...

    @property
    def parts(self) -> dict[str, float]: ...


@dataclass(frozen=True, slots=True, eq=False)
class LossValue:
    """A loss, and the values of its terms by name."""

    total: Tensor
    parts: dict[str, float] = field(default_factory=dict)


LossFunction = Callable[[Encoded, Encoded, BatchTargets], Loss]  # of queries, documents, targets

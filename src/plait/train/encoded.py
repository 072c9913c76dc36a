"""What goes into a model and what comes out of it, as padded tensors: the two currencies of training."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

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

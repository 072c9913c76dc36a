"""What encoding gives: the three kinds of representation, as plain arrays. No padding, no masks, no model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from plait.errors import InputError

Rows = NDArray[np.float16] | NDArray[np.float32]


@dataclass(frozen=True, slots=True, eq=False)
class MultiVectors:
    """A batch of items of many vectors each; item i owns values[offsets[i]:offsets[i + 1]]."""

    values: Rows  # (rows, dim)
    offsets: NDArray[np.int64]  # (items + 1,)

    def __post_init__(self) -> None:
        if self.values.ndim != 2:
            raise InputError(f"multi-vector values have shape {self.values.shape}; they must be (rows, dim)")
        offsets = self.offsets
        if offsets.ndim != 1 or len(offsets) == 0 or offsets.dtype != np.int64:
            raise InputError(
                f"offsets have shape {offsets.shape} and type {offsets.dtype}; they must be one int64 for each item, "
                "and one more"
            )
        if offsets[0] != 0 or offsets[-1] != len(self.values) or np.any(offsets[1:] < offsets[:-1]):
            raise InputError(
                f"offsets must rise from 0 to the number of rows, {len(self.values)}; they go from {offsets[0]} to "
                f"{offsets[-1]}"
            )

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, item: int) -> Rows:
        """The rows of one item, as a view."""
        if not 0 <= item < len(self):
            raise IndexError(f"item {item} of {len(self)}")
        return self.values[self.offsets[item] : self.offsets[item + 1]]

    @property
    def dim(self) -> int:
        return int(self.values.shape[1])

    @classmethod
    def from_items(cls, items: Sequence[Rows], *, dim: int | None = None) -> MultiVectors:
        """One batch from arrays of (rows, dim) each; `dim` is needed only where there are no items."""
        if not items:
            return cls(np.zeros((0, dim or 0), np.float32), np.zeros(1, np.int64))
        offsets = np.zeros(len(items) + 1, np.int64)
        np.cumsum([len(rows) for rows in items], out=offsets[1:])
        values: Rows = np.concatenate(items)  # type: ignore[assignment]  # both kinds of rows at once have no type
        return cls(values, offsets)

    def take(self, items: Sequence[int] | NDArray[np.int64]) -> MultiVectors:
        """The named items, in the order named, as a copy."""
        picked = [self[int(item)] for item in items]
        if not picked:
            return MultiVectors(self.values[:0], np.zeros(1, np.int64))
        return MultiVectors.from_items(picked)


@dataclass(frozen=True, slots=True, eq=False)
class SparseVectors:
    """A batch of weighted terms; item i owns terms[offsets[i]:offsets[i + 1]] and the weights beside them."""

    terms: NDArray[np.int32]  # (entries,), ascending within an item, no term twice
    weights: NDArray[np.float32]  # (entries,)
    offsets: NDArray[np.int64]  # (items + 1,)

    def __post_init__(self) -> None:
        terms, offsets = self.terms, self.offsets
        if terms.ndim != 1 or terms.shape != self.weights.shape:
            raise InputError(
                f"there are terms of shape {terms.shape} and weights of {self.weights.shape}; each its own"
            )
        if offsets.ndim != 1 or len(offsets) == 0 or offsets[0] != 0 or offsets[-1] != len(terms):
            raise InputError(f"offsets must rise from 0 to the number of entries, {len(terms)}")
        if np.any(offsets[1:] < offsets[:-1]):
            raise InputError("offsets of sparse rows fall; they must rise")

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, item: int) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        """The terms and weights of one item, as views."""
        if not 0 <= item < len(self):
            raise IndexError(f"item {item} of {len(self)}")
        own = slice(self.offsets[item], self.offsets[item + 1])
        return self.terms[own], self.weights[own]

    @classmethod
    def from_items(cls, items: Sequence[Mapping[int, float]]) -> SparseVectors:
        """One batch from mappings of terms to weights."""
        ordered = [sorted(item.items()) for item in items]
        offsets = np.cumsum([0, *map(len, ordered)]).astype(np.int64)
        flat = [entry for item in ordered for entry in item]
        terms = np.array([term for term, _ in flat], np.int32)
        return cls(terms, np.array([weight for _, weight in flat], np.float32), offsets)


@dataclass(frozen=True, slots=True, eq=False)
class Embeddings:
    """What one pass over a batch of texts gives; a strand that the model does not have is None."""

    dense: NDArray[np.float32] | None = None  # (items, dim)
    sparse: SparseVectors | None = None
    multi: MultiVectors | None = None
    truncated: int = 0  # how many of the texts were longer than the model takes, and were cut

    def __post_init__(self) -> None:
        if self.dense is not None and self.dense.ndim != 2:
            raise InputError(f"the dense strand has shape {self.dense.shape}; it must be (items, dim)")
        lengths = {name: len(kind) for name, kind in self.present().items()}
        if len(set(lengths.values())) > 1:
            raise InputError(f"the strands hold different numbers of items: {lengths}")

    def present(self) -> dict[str, NDArray[np.float32] | SparseVectors | MultiVectors]:
        """The strands that are there, by name."""
        named = {"dense": self.dense, "sparse": self.sparse, "multi": self.multi}
        return {name: kind for name, kind in named.items() if kind is not None}

    def __len__(self) -> int:
        return max((len(kind) for kind in self.present().values()), default=0)

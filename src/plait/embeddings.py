"""What an encoder returns: dense, sparse and multi-vector embeddings as plain arrays, without padding or masks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from plait.checks import as_list, check_array, check_type, shown
from plait.errors import InputError

Rows = NDArray[np.float16] | NDArray[np.float32]


@dataclass(frozen=True, slots=True, eq=False)
class MultiVectors:
    """A batch of items with many vectors each; those of item i are values[offsets[i]:offsets[i + 1]]."""

    values: Rows  # (rows, dim)
    offsets: NDArray[np.int64]  # (items + 1,)

    def __post_init__(self) -> None:
        check_array("multi-vector values", self.values, "(rows, dim)")
        check_array("offsets", self.offsets, "int64 of (items + 1,)")
        if self.values.ndim != 2:
            raise InputError(f"multi-vector values have shape {self.values.shape}; they must be (rows, dim)")
        offsets = self.offsets
        if offsets.ndim != 1 or len(offsets) == 0 or offsets.dtype != np.int64:
            raise InputError(
                f"offsets have shape {offsets.shape} and type {offsets.dtype}; they must be int64 of shape (items + 1,)"
            )
        if offsets[0] != 0 or offsets[-1] != len(self.values) or np.any(offsets[1:] < offsets[:-1]):
            raise InputError(
                f"offsets must ascend from 0 to the number of rows, {len(self.values)}; they go from {offsets[0]} to "
                f"{offsets[-1]}"
            )

    def __repr__(self) -> str:
        return f"MultiVectors({len(self)} items, {len(self.values)} rows of {self.dim} x {self.values.dtype})"

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
        """A batch from one (rows, dim) array for each item; `dim` is used only if there are no items."""
        items = as_list("items", items, "arrays of (rows, dim)")
        for rows in items:
            check_array("each of the items", rows, "(rows, dim)")
            if rows.ndim != 2 or rows.shape[1] != items[0].shape[1]:
                raise InputError(f"an item has shape {rows.shape}; all items must be (rows, dim) with one dim")
        if not items:
            return cls(np.zeros((0, dim or 0), np.float32), np.zeros(1, np.int64))
        offsets = np.zeros(len(items) + 1, np.int64)
        np.cumsum([len(rows) for rows in items], out=offsets[1:])
        values: Rows = np.concatenate(items)
        return cls(values, offsets)

    def take(self, items: Sequence[int] | NDArray[np.int64]) -> MultiVectors:
        """A copy of the given items, in the given order."""
        picked = [self[int(item)] for item in items]
        if not picked:
            return MultiVectors(self.values[:0], np.zeros(1, np.int64))
        return MultiVectors.from_items(picked)


@dataclass(frozen=True, slots=True, eq=False)
class SparseVectors:
    """A batch of weighted terms; those of item i are terms[offsets[i]:offsets[i + 1]], with weights alike."""

    terms: NDArray[np.int32]  # (entries,), ascending within an item, without repeats
    weights: NDArray[np.float32]  # (entries,)
    offsets: NDArray[np.int64]  # (items + 1,)

    def __post_init__(self) -> None:
        terms, offsets = self.terms, self.offsets
        check_array("terms", terms, "int32 of (entries,)")
        check_array("weights", self.weights, "float32 of (entries,)")
        check_array("offsets", offsets, "int64 of (items + 1,)")
        for name, array in (("terms", terms), ("weights", self.weights), ("offsets", offsets)):
            if array.dtype.kind not in "iuf":
                raise InputError(f"{name} have type {array.dtype}; they must be numbers")
        if terms.ndim != 1 or terms.shape != self.weights.shape:
            raise InputError(
                f"terms have shape {terms.shape} and weights {self.weights.shape}; each term needs one weight"
            )
        if offsets.ndim != 1 or len(offsets) == 0 or offsets[0] != 0 or offsets[-1] != len(terms):
            raise InputError(f"offsets must ascend from 0 to the number of entries, {len(terms)}")
        if np.any(offsets[1:] < offsets[:-1]):
            raise InputError("offsets of sparse vectors must ascend; these do not")

    def __repr__(self) -> str:
        return f"SparseVectors({len(self)} items, {len(self.terms)} entries)"

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, item: int) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        """The terms and weights of one item, as views."""
        if not 0 <= item < len(self):
            raise IndexError(f"item {item} of {len(self)}")
        entries = slice(self.offsets[item], self.offsets[item + 1])
        return self.terms[entries], self.weights[entries]

    def take(self, items: Sequence[int] | NDArray[np.int64]) -> SparseVectors:
        """A copy of the given items, in the given order."""
        picked = [self[int(item)] for item in items]
        offsets = np.cumsum([0, *(len(terms) for terms, _ in picked)]).astype(np.int64)
        terms = np.concatenate([self.terms[:0], *(terms for terms, _ in picked)])
        return SparseVectors(terms, np.concatenate([self.weights[:0], *(weights for _, weights in picked)]), offsets)

    @classmethod
    def from_items(cls, items: Sequence[Mapping[int, float]]) -> SparseVectors:
        """A batch from one mapping of term ids to weights for each item."""
        items = as_list("items", items, "mappings of term ids to weights")
        for item in items:
            check_type("each of the items", item, Mapping, "a mapping of term ids to weights", InputError)
            if not all(_is_entry(term, weight) for term, weight in item.items()):
                raise InputError(f"an item is {shown(item)}; terms must be whole numbers below 2**31, weights numbers")
        ordered = [sorted(item.items()) for item in items]
        offsets = np.cumsum([0, *map(len, ordered)]).astype(np.int64)
        flat = [entry for item in ordered for entry in item]
        terms = np.array([term for term, _ in flat], np.int32)
        return cls(terms, np.array([weight for _, weight in flat], np.float32), offsets)


@dataclass(frozen=True, slots=True, eq=False)
class Embeddings:
    """Embeddings of a batch of texts, made in one pass; a kind that the model does not have is None."""

    dense: NDArray[np.float32] | None = None  # (items, dim)
    sparse: SparseVectors | None = None
    multi: MultiVectors | None = None
    truncated: int = 0  # texts that were longer than the model accepts, and were cut

    def __post_init__(self) -> None:
        if self.dense is not None:
            check_array("dense", self.dense, "float32 of (items, dim)")
        if self.sparse is not None:
            check_type("sparse", self.sparse, SparseVectors, "plait.SparseVectors", InputError)
        if self.multi is not None:
            check_type("multi", self.multi, MultiVectors, "plait.MultiVectors", InputError)
        if self.dense is not None and self.dense.ndim != 2:
            raise InputError(f"the dense vectors have shape {self.dense.shape}; they must be (items, dim)")
        lengths = {name: len(kind) for name, kind in self.present().items()}
        if len(set(lengths.values())) > 1:
            raise InputError(f"the kinds of embeddings have different numbers of items: {lengths}")

    def __repr__(self) -> str:
        kinds = []
        if self.dense is not None:
            kinds.append(f"dense of {self.dense.shape[1]}")
        if self.sparse is not None:
            kinds.append(f"sparse with {len(self.sparse.terms)} entries")
        if self.multi is not None:
            kinds.append(f"multi with {len(self.multi.values)} rows of {self.multi.dim}")
        return f"Embeddings({len(self)} items: {', '.join(kinds) or 'no kinds'})"

    def present(self) -> dict[str, NDArray[np.float32] | SparseVectors | MultiVectors]:
        """The kinds that are not None, by name."""
        named = {"dense": self.dense, "sparse": self.sparse, "multi": self.multi}
        return {name: kind for name, kind in named.items() if kind is not None}

    def __len__(self) -> int:
        return max((len(kind) for kind in self.present().values()), default=0)


def _is_entry(term: object, weight: object) -> bool:
    if not isinstance(term, int | np.integer) or isinstance(term, bool) or not -(1 << 31) <= int(term) < 1 << 31:
        return False
    return isinstance(weight, int | float | np.integer | np.floating) and not isinstance(weight, bool)

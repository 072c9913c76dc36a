"""Pooling: fewer multi vectors for each item, before they are compressed. Chosen once for an index.

A pooled row is the mean of a cluster of rows, scaled to their mean norm. Clusters are runs of neighbouring rows
(`sequential`) or rows of similar direction (`hierarchical`: Ward's method on cosine distances). With `factor` an item
of n rows keeps n / factor, rounded up. With `fixed` every item has exactly that many rows, so no offsets are stored;
items with fewer rows repeat them, which does not change MaxSim.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from plait import _core
from plait.checks import shown
from plait.embeddings import MultiVectors
from plait.errors import ConfigError, InputError

METHODS = ("hierarchical", "sequential")
DEFAULT_METHOD = "hierarchical"
MAX_FIXED = 1 << 16
BLOCK = 256  # items pooled by one call of the kernel: some milliseconds of work, and a small copy as float32


@dataclass(frozen=True, slots=True, kw_only=True)
class Pooling:
    """How many rows an item keeps (exactly one of `fixed` and `factor`), and how rows are clustered."""

    fixed: int | None = None  # rows of every item
    factor: int | None = None  # rows of an item for each row that it keeps
    method: str = DEFAULT_METHOD

    def __post_init__(self) -> None:
        if (self.fixed is None) == (self.factor is None):
            raise ConfigError("pooling takes one of fixed and factor; give exactly one")
        if self.fixed is not None and not (type(self.fixed) is int and 1 <= self.fixed <= MAX_FIXED):
            raise ConfigError(f"fixed is {shown(self.fixed)}; it must be an integer from 1 to {MAX_FIXED}")
        if self.factor is not None and not (type(self.factor) is int and self.factor >= 2):
            raise ConfigError(f"factor is {shown(self.factor)}; it must be an integer of at least 2")
        if not isinstance(self.method, str) or self.method not in METHODS:
            raise ConfigError(f"unknown pooling {shown(self.method)}; choose one of {', '.join(METHODS)}")

    @classmethod
    def from_dict(cls, stored: Any) -> Pooling | None:
        """The inverse of `to_dict`; None stays None. ConfigError for anything else."""
        if stored is None:
            return None
        if not isinstance(stored, Mapping) or not set(stored) <= {"fixed", "factor", "method"}:
            raise ConfigError(f"a stored pooling has the keys fixed or factor, and method; got {shown(stored)}")
        return cls(**stored)

    def to_dict(self) -> dict[str, int | str]:
        """As JSON values, for the catalogue."""
        number = {"factor": self.factor} if self.fixed is None else {"fixed": self.fixed}
        return {**{name: value for name, value in number.items() if value is not None}, "method": self.method}

    def __str__(self) -> str:
        size = f"every {self.factor} rows to one" if self.fixed is None else f"{self.fixed} rows a passage"
        return f"{size}, {self.method}"

    def counts(self, lengths: NDArray[np.int64]) -> NDArray[np.int64]:
        """The number of rows that items of `lengths` rows keep. Raises InputError if `fixed` is set and an item has no
        rows."""
        if self.factor is not None:
            return -(-lengths // self.factor)
        empty = np.flatnonzero(lengths == 0)
        if len(empty):
            raise InputError(
                f"item {int(empty[0])} has no rows, and {self.fixed} cannot be made of none; leave the item out, or "
                f"give it a row"
            )
        return np.full(len(lengths), self.fixed, np.int64)


def pool(items: MultiVectors, pooling: Pooling, *, n_threads: int = 1) -> MultiVectors:
    """The pooled items as float32; the same bits for any number of threads."""
    offsets = np.zeros(len(items) + 1, np.int64)
    np.cumsum(pooling.counts(np.diff(items.offsets)), out=offsets[1:])
    pooled = np.empty((int(offsets[-1]), items.dim), np.float32)
    hierarchical = pooling.method == "hierarchical"

    def pool_block(start: int, stop: int) -> None:
        block_offsets = items.offsets[start : stop + 1]
        rows = np.ascontiguousarray(items.values[block_offsets[0] : block_offsets[-1]], np.float32)
        try:
            _core.pool_rows(
                rows, block_offsets - block_offsets[0], hierarchical, offsets[start : stop + 1].copy(), pooled
            )
        except ValueError as error:
            raise InputError(f"the rows cannot be pooled: {error}; split long texts, or pool sequentially") from error

    bounds = pairwise([*range(0, len(items), BLOCK), len(items)])
    if n_threads == 1:
        for start, stop in bounds:
            pool_block(start, stop)
    else:
        with ThreadPoolExecutor(n_threads) as executor:
            list(executor.map(lambda bound: pool_block(*bound), bounds))
    return MultiVectors(pooled, offsets)

"""Pooling: fewer rows for each item of the multi strand, before anything is coded. An index chooses it once.

A row of a pooled item is the mean of a cluster of its rows, brought back to their length. Clusters are runs of
neighbouring rows (`sequential`) or rows of like direction (`hierarchical`: Ward's method on cosine distances). With
`factor` an item of n rows keeps n / factor, rounded up; with `fixed` every item has exactly as many, so that none of
them needs a length or a place to be looked up. Items with fewer rows repeat them, which changes no MaxSim.
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
from plait.embeddings import MultiVectors
from plait.errors import ConfigError, InputError

METHODS = ("hierarchical", "sequential")
DEFAULT_METHOD = "hierarchical"
MAX_FIXED = 1 << 16
# Items that one call of the kernel pools: some milliseconds of work, and a small copy as float32.
ITEMS_AT_ONCE = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Pooling:
    """How many rows an item keeps, by one of the two numbers, and how rows are put together."""

    fixed: int | None = None  # rows of every item
    factor: int | None = None  # rows of an item for one that it keeps
    method: str = DEFAULT_METHOD

    def __post_init__(self) -> None:
        if (self.fixed is None) == (self.factor is None):
            raise ConfigError("pooling takes one of fixed and factor; give exactly one")
        if self.fixed is not None and not (type(self.fixed) is int and 1 <= self.fixed <= MAX_FIXED):
            raise ConfigError(f"fixed is {self.fixed!r}; it must be a whole number from 1 to {MAX_FIXED}")
        if self.factor is not None and not (type(self.factor) is int and self.factor >= 2):
            raise ConfigError(f"factor is {self.factor!r}; it must be a whole number of at least 2")
        if self.method not in METHODS:
            raise ConfigError(f"there is no pooling {self.method!r}; choose one of {', '.join(METHODS)}")

    @classmethod
    def from_dict(cls, fact: Any) -> Pooling | None:
        """What `to_dict` gave, as an index keeps it; ConfigError for anything else."""
        if fact is None:
            return None
        if not isinstance(fact, Mapping) or not set(fact) <= {"fixed", "factor", "method"}:
            raise ConfigError(f"this is no way of pooling: {fact!r:.80}")
        return cls(**fact)

    def to_dict(self) -> dict[str, int | str]:
        """The choice in what JSON can hold."""
        number = {"factor": self.factor} if self.fixed is None else {"fixed": self.fixed}
        return {**{name: value for name, value in number.items() if value is not None}, "method": self.method}

    def __str__(self) -> str:
        kept = f"every {self.factor} rows to one" if self.fixed is None else f"{self.fixed} rows a passage"
        return f"{kept}, {self.method}"

    def counts(self, lengths: NDArray[np.int64]) -> NDArray[np.int64]:
        """How many rows items of so many rows keep. An item without rows keeps none, so `fixed` cannot be had."""
        if self.factor is not None:
            return -(-lengths // self.factor)
        empty = np.flatnonzero(lengths == 0)
        if len(empty):
            raise InputError(
                f"item {int(empty[0])} has no rows, and {self.fixed} cannot be made of none; leave it out, or give it "
                f"one"
            )
        return np.full(len(lengths), self.fixed, np.int64)


def pool(items: MultiVectors, pooling: Pooling, *, n_threads: int = 1) -> MultiVectors:
    """The items with fewer rows, as float32; the same bits for any number of threads."""
    offsets = np.zeros(len(items) + 1, np.int64)
    np.cumsum(pooling.counts(np.diff(items.offsets)), out=offsets[1:])
    pooled = np.empty((int(offsets[-1]), items.dim), np.float32)
    hierarchical = pooling.method == "hierarchical"

    def some(start: int, stop: int) -> None:
        own = items.offsets[start : stop + 1]
        rows = np.ascontiguousarray(items.values[own[0] : own[-1]], np.float32)
        try:
            _core.pool_rows(rows, own - own[0], hierarchical, offsets[start : stop + 1].copy(), pooled)
        except ValueError as error:
            raise InputError(f"the rows cannot be pooled: {error}; split long texts, or pool sequentially") from error

    bounds = pairwise([*range(0, len(items), ITEMS_AT_ONCE), len(items)])
    if n_threads == 1:
        for start, stop in bounds:
            some(start, stop)
    else:
        with ThreadPoolExecutor(n_threads) as executor:
            list(executor.map(lambda bound: some(*bound), bounds))
    return MultiVectors(pooled, offsets)

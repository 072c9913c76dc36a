"""From rows that query rows found to items: the best of each item for each query row, and a stand-in where there is
none. The same bits on every machine."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from plait import _core
from plait.errors import ConfigError, InputError


@dataclass(frozen=True, slots=True, eq=False)
class RetrievedRows:
    """Query row i found the entries starts[i] to starts[i + 1]; an item may stand there any number of times."""

    items: NDArray[np.uint32]  # (entries,)
    scores: NDArray[np.float32]  # (entries,)
    starts: NDArray[np.int64]  # (n_query + 1,) rising from 0 to the number of entries
    missing: NDArray[np.float32]  # (n_query,) what a query row gives to an item that it did not find


class ItemTally:
    """Room for `best_items`: made once for a set of items and used again by every query, one query at a time."""

    def __init__(self, n_items: int) -> None:
        self.n_items = n_items
        self._words = np.zeros((n_items, 2), np.uint64)
        self._touched = np.empty(n_items, np.uint32)

    def best_items(self, found: RetrievedRows, k: int) -> tuple[NDArray[np.int64], NDArray[np.float32], int]:
        """The k best of the items that any query row found, best first, equal scores by number; their scores; and how
        many items were found. An item's score is the sum over query rows of its best score there, or of `missing`."""
        if k < 0:
            raise ConfigError(f"k is {k}; it must be 0 or more")
        if np.isnan(found.scores).any() or np.isnan(found.missing).any():
            raise InputError("a score is NaN, which has no place in an order")
        room = min(k, self.n_items)
        best, scores = np.empty(room, np.uint32), np.empty(room, np.float32)
        try:
            n_best, n_met = _core.xtr_top_items(
                found.items, found.scores, found.starts, found.missing, self._words, self._touched, best, scores
            )
        except (TypeError, ValueError) as error:
            raise InputError(f"the arrays do not fit each other: {error}") from error
        return best[:n_best].astype(np.int64), scores[:n_best], n_met

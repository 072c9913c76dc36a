"""XTR: from retrieved rows to items, with the best score of each item for each query row and an imputed score where
there is none. The same bits on every machine."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from plait import _core
from plait.errors import ConfigError, InputError


@dataclass(frozen=True, slots=True, eq=False)
class RetrievedRows:
    """Query row i retrieved entries starts[i] to starts[i + 1]; an item may occur any number of times."""

    items: NDArray[np.uint32]  # (entries,)
    scores: NDArray[np.float32]  # (entries,)
    starts: NDArray[np.int64]  # (n_query + 1,) ascending from 0 to the number of entries
    missing: NDArray[np.float32]  # (n_query,) the score for items that the query row did not retrieve


class ItemTally:
    """The workspace of `best_items` for a set of items. Reusable, but for one query at a time."""

    def __init__(self, n_items: int) -> None:
        self.n_items = n_items
        self._words = np.zeros((n_items, 2), np.uint64)
        self._touched = np.empty(n_items, np.uint32)

    def best_items(self, retrieved: RetrievedRows, k: int) -> tuple[NDArray[np.int64], NDArray[np.float32], int]:
        """The k best retrieved items, best first, equal scores by number; their scores; and the number of retrieved
        items. The score of an item is the sum over query rows of its best score, or of `missing` if the row did not
        retrieve it."""
        if k < 0:
            raise ConfigError(f"k is {k}; it must be 0 or more")
        if np.isnan(retrieved.scores).any() or np.isnan(retrieved.missing).any():
            raise InputError("a score is NaN; NaN cannot be ordered")
        n_most = min(k, self.n_items)
        best, scores = np.empty(n_most, np.uint32), np.empty(n_most, np.float32)
        try:
            n_best, n_met = _core.xtr_top_items(
                retrieved.items,
                retrieved.scores,
                retrieved.starts,
                retrieved.missing,
                self._words,
                self._touched,
                best,
                scores,
            )
        except (TypeError, ValueError) as error:
            raise InputError(f"the arrays do not fit each other: {error}") from error
        return best[:n_best].astype(np.int64), scores[:n_best], n_met

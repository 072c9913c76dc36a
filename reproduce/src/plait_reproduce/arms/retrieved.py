"""XTR's scoring for many budgets at once: each query row's best rows are found once and sorted, and every k' is a
beginning of that list."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from plait.embeddings import MultiVectors
from plait.scoring.maxsim import top_k
from plait_reproduce.arms.measuring import Ranked

# What stands for a similarity that was not retrieved: the last that was; a constant; or nothing, so that a document's
# score is the mean of what was retrieved of it alone.
FILLINGS = ("last", "0", "0.2", "none")


@dataclass(frozen=True, slots=True, eq=False)
class Nearest:
    """The best rows for each row of a query, best first."""

    similarities: NDArray[np.float32]  # (n_query, depth)
    rows: NDArray[np.int64]  # (n_query, depth) row numbers
    owners: NDArray[np.int64]  # (n_query, depth) whose rows they are

    def ranked(self, n_tokens: int, filling: str, k: int) -> Ranked:
        """The k best items by scores from each query row's first `n_tokens` rows."""
        kept, owners = self.similarities[:, :n_tokens], self.owners[:, :n_tokens]
        items, places = np.unique(owners, return_inverse=True)
        best = np.full((len(kept), len(items)), -np.inf, np.float32)
        own = np.repeat(np.arange(len(kept)), kept.shape[1])
        np.maximum.at(best, (own, places.reshape(-1)), kept.reshape(-1))
        scores = np.ascontiguousarray(_filled(best, kept[:, -1], filling), np.float32)
        order = top_k(scores, k)
        return items[order], scores[order]


def nearest(query: NDArray[np.float32], rows: NDArray[np.float32], owners: NDArray[np.int64], depth: int) -> Nearest:
    """The `depth` best of rows (rows, dim) for each row of a query."""
    similarities = query @ rows.T
    depth = min(depth, len(rows))
    places = np.argpartition(-similarities, depth - 1, axis=1)[:, :depth]
    found = np.take_along_axis(similarities, places, axis=1)
    order = np.argsort(-found, axis=1, kind="stable")
    places = np.take_along_axis(places, order, axis=1).astype(np.int64)
    return Nearest(np.take_along_axis(found, order, axis=1), places, owners[places])


def owners_of(rows: MultiVectors) -> NDArray[np.int64]:
    return np.repeat(np.arange(len(rows)), np.diff(rows.offsets))


def shares(marked: NDArray[np.bool_], ranks: Sequence[int]) -> list[float]:
    """The share of marked rows (n_query, depth) among the first r, over query rows."""
    return [float(marked[:, :rank].mean()) for rank in ranks]


def _filled(best: NDArray[np.float32], last: NDArray[np.float32], filling: str) -> NDArray[np.float32]:
    """Means over query rows of (n_query, items), with -inf replaced."""
    seen = np.isfinite(best)
    if filling == "none":
        return np.asarray(np.where(seen, best, 0).sum(axis=0) / seen.sum(axis=0), np.float32)
    fill = last[:, None] if filling == "last" else np.float32(filling)
    return np.asarray(np.where(seen, best, fill).mean(axis=0), np.float32)

"""`Ranking`: documents of one query, best first, as numbers. Ids and texts are fetched once, for the final hits."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

UNKNOWN_ROW = -1
SORTED_WHOLE = 64  # candidates up to which all are sorted: selecting the best first would take longer


@dataclass(frozen=True, slots=True, eq=False)
class Ranking:
    """Documents of one query, best first; equal scores are ordered by document number."""

    docs: NDArray[np.int64]  # (n,) document numbers
    scores: NDArray[np.float32]  # (n,) not increasing
    rows: NDArray[np.int64]  # (n,) the best passage, counted over all segments; UNKNOWN_ROW for whole documents
    parts: Mapping[str, NDArray[np.float32]] = field(default_factory=dict)  # by list: (n,) scores, NaN if not in it
    # By list, after fusion: (n,) the rank in the list, 0 if not in it, and the share of the score that it gave.
    ranks: Mapping[str, NDArray[np.int64]] = field(default_factory=dict)
    gains: Mapping[str, NDArray[np.float64]] = field(default_factory=dict)
    # (query rows,) For methods that impute: the score of each query row with tokens that it did not retrieve.
    imputed: NDArray[np.float32] | None = None

    def __len__(self) -> int:
        return len(self.docs)

    def top(self, k: int) -> Ranking:
        return Ranking(
            self.docs[:k],
            self.scores[:k],
            self.rows[:k],
            {name: part[:k] for name, part in self.parts.items()},
            {name: ranks[:k] for name, ranks in self.ranks.items()},
            {name: gains[:k] for name, gains in self.gains.items()},
            self.imputed,
        )


def best_first(docs: NDArray[np.int64], scores: NDArray[np.float32], rows: NDArray[np.int64], k: int) -> Ranking:
    """The k best of unordered candidates; a document is at most once in `docs`."""
    if len(docs) > max(k, SORTED_WHOLE):
        # Candidates that tie with the k-th best stay for the sort below, which breaks ties by number.
        threshold = np.partition(scores, len(scores) - k)[len(scores) - k]
        high = np.flatnonzero(scores >= threshold)
        docs, scores, rows = docs[high], scores[high], rows[high]
    order = np.lexsort((docs, -scores))[:k]
    return Ranking(docs[order], scores[order], rows[order])


def merge(parts: Sequence[Ranking], k: int) -> Ranking:
    """One ranking of the k best from the rankings of segments, which share no document."""
    if len(parts) == 1:
        return parts[0].top(k)
    lead = max(parts, key=_best, default=None)
    if lead is not None and len(lead) >= k > 0:
        last = lead.scores[k - 1]
        if all(part is lead or _best(part) < last for part in parts):  # common where few documents are new
            return Ranking(lead.docs[:k], lead.scores[:k], lead.rows[:k])
    return best_first(
        np.concatenate([part.docs for part in parts] or [np.zeros(0, np.int64)]),
        np.concatenate([part.scores for part in parts] or [np.zeros(0, np.float32)]),
        np.concatenate([part.rows for part in parts] or [np.zeros(0, np.int64)]),
        k,
    )


def _best(part: Ranking) -> float:
    return float(part.scores[0]) if len(part) else -math.inf

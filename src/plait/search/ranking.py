"""Ranked documents inside the engine: numbers only. Ids and texts are fetched once, for what is returned."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from plait.embeddings import Embeddings

UNKNOWN_ROW = -1
FEW_QUERIES = 4  # for which what was worked out is kept until the search ends


@dataclass(frozen=True, slots=True, eq=False)
class QueryBatch:
    """Queries as text and as strands; generators take from it what they need."""

    texts: Sequence[str]
    embeddings: Embeddings
    _known: dict[int, dict[int, Any]] = field(default_factory=dict, repr=False)

    def __len__(self) -> int:
        return len(self.texts)

    def known(self, number: int) -> dict[int, Any]:
        """Where a stage may leave what it worked out of a query for a later one of the same search. Such things are
        large: with many queries nothing is kept."""
        return self._known.setdefault(number, {}) if len(self) <= FEW_QUERIES else {}


FEW = 64  # candidates that are sorted all: choosing the best first would take longer


@dataclass(frozen=True, slots=True, eq=False)
class Ranking:
    """Documents for one query, best first; equal scores stand in the order of the document numbers."""

    docs: NDArray[np.int64]  # (found,) document numbers
    scores: NDArray[np.float32]  # (found,) not increasing
    rows: NDArray[np.int64]  # (found,) the passage that won, counted over all segments; UNKNOWN_ROW if none did
    parts: Mapping[str, NDArray[np.float32]] = field(default_factory=dict)  # by generator; NaN where it did not find it
    # By generator, where several were fused: the rank in its list, 0 where it did not find it, and what that gave.
    ranks: Mapping[str, NDArray[np.int64]] = field(default_factory=dict)
    gains: Mapping[str, NDArray[np.float64]] = field(default_factory=dict)
    # (query rows,) What a method that imputes gave for similarities it did not retrieve.
    floor: NDArray[np.float32] | None = None

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
            self.floor,
        )


def best_first(docs: NDArray[np.int64], scores: NDArray[np.float32], rows: NDArray[np.int64], k: int) -> Ranking:
    """The k best of unordered candidates, each document at most once in `docs`."""
    if len(docs) > max(k, FEW):
        # Everything that ties with the k-th best stays until the exact sort below, so ties break by number.
        threshold = np.partition(scores, len(scores) - k)[len(scores) - k]
        kept = np.flatnonzero(scores >= threshold)
        docs, scores, rows = docs[kept], scores[kept], rows[kept]
    order = np.lexsort((docs, -scores))[:k]
    return Ranking(docs[order], scores[order], rows[order])


def merge(parts: Sequence[Ranking], k: int) -> Ranking:
    """One ranking from those of segments, which share no document."""
    if len(parts) == 1:
        return parts[0].top(k)
    lead = max(parts, key=_best, default=None)
    if lead is not None and len(lead) >= k > 0:
        last = lead.scores[k - 1]
        if all(part is lead or _best(part) < last for part in parts):  # as where little of an index is new
            return Ranking(lead.docs[:k], lead.scores[:k], lead.rows[:k])
    return best_first(
        np.concatenate([part.docs for part in parts] or [np.zeros(0, np.int64)]),
        np.concatenate([part.scores for part in parts] or [np.zeros(0, np.float32)]),
        np.concatenate([part.rows for part in parts] or [np.zeros(0, np.int64)]),
        k,
    )


def _best(part: Ranking) -> float:
    return float(part.scores[0]) if len(part) else -math.inf

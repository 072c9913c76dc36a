"""Fusion: several rankings of the same query become one. Each says of every document what each list gave to it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from plait.errors import ConfigError
from plait.search.ranking import UNKNOWN_ROW, Ranking, best_first

NOTHING: Mapping[str, float] = MappingProxyType({})
# Below this a list is not stretched to 1: the best document of a list that hardly says anything is not a good one. A
# BM25 score of 5 is about that of two rare words among some hundred documents.
LEAST: Mapping[str, float] = MappingProxyType({"bm25": 5.0})


class Fusion(Protocol):
    def fuse(self, rankings: Mapping[str, Ranking], k: int, lengths: Mapping[str, float] = NOTHING) -> Ranking:
        """One ranking of the k best documents. A list's scores are divided by its length, if one is given: that of the
        multi strand by the vectors of the query, which makes a mean of the sum."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReciprocalRank:
    """Each list gives a document weight / (constant + rank), ranks from 1; a list without it gives nothing.

    Ranks need no common scale, so this is the fusion that works before anything was measured.
    """

    constant: float = 60.0
    weights: Mapping[str, float] | None = None  # by generator; 1 for those not named

    def __post_init__(self) -> None:
        if self.constant < 0:
            raise ConfigError(f"the constant of reciprocal rank fusion is {self.constant}; it cannot be negative")

    def fuse(self, rankings: Mapping[str, Ranking], k: int, lengths: Mapping[str, float] = NOTHING) -> Ranking:
        del lengths  # ranks have no scale
        table = _Table(rankings)
        for name, (place, ranking) in table.lists.items():
            weight = 1.0 if self.weights is None else self.weights.get(name, 1.0)
            table.gains[name][place] = weight / (self.constant + np.arange(1, len(ranking) + 1))
        return table.best(k)


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightedSum:
    """The sum over lists of weight times score; a list without a document gives the score 0.

    `scale` says what the scores of a list become first: "raw" leaves them; "min-max" takes the lowest among all
    documents to 0 and the highest to 1, or less where the list says little (`least`); "z" takes the mean to 0 and the
    standard deviation to 1.
    """

    weights: Mapping[str, float] | None = None  # by list; 1 for those not named
    scale: str = "raw"
    least: Mapping[str, float] = field(default_factory=lambda: LEAST)  # a spread that is smaller is not stretched to 1

    def __post_init__(self) -> None:
        if self.scale not in SCALES:
            raise ConfigError(f"scores cannot be scaled by {self.scale!r}; choose one of {', '.join(SCALES)}")

    def fuse(self, rankings: Mapping[str, Ranking], k: int, lengths: Mapping[str, float] = NOTHING) -> Ranking:
        table = _Table(rankings)
        for name, (place, ranking) in table.lists.items():
            weight = 1.0 if self.weights is None else self.weights.get(name, 1.0)
            scores = np.zeros(len(table.docs))
            scores[place] = ranking.scores / lengths.get(name, 1.0)
            table.gains[name][:] = weight * SCALES[self.scale](scores, self.least.get(name, 0.0))
        return table.best(k)


def _raw(scores: NDArray[np.float64], least: float) -> NDArray[np.float64]:
    del least
    return scores


def _min_max(scores: NDArray[np.float64], least: float) -> NDArray[np.float64]:
    if not len(scores):
        return scores
    low, high = scores.min(), scores.max()
    # Lists whose scores are all alike tell documents apart as little as lists that are empty.
    return np.asarray((scores - low) / max(high - low, least, 1e-12))


def _z(scores: NDArray[np.float64], least: float) -> NDArray[np.float64]:
    del least
    spread = scores.std() if len(scores) else 0.0
    return (scores - scores.mean()) / spread if spread > 0 else np.zeros(len(scores))


SCALES = {"raw": _raw, "min-max": _min_max, "z": _z}


class _Table:
    """All documents of several lists, and what each list has for them."""

    def __init__(self, rankings: Mapping[str, Ranking]) -> None:
        docs = np.sort(np.concatenate([ranking.docs for ranking in rankings.values()]))
        # Each once. numpy.unique would import numpy.ma for it, which takes longer than a search.
        self.docs = docs[np.diff(docs, prepend=-1) != 0]
        self.lists = {name: (np.searchsorted(self.docs, own.docs), own) for name, own in rankings.items()}
        self.gains = {name: np.zeros(len(self.docs), np.float64) for name in rankings}

    def best(self, k: int) -> Ranking:
        """The k documents with the largest sums of gains."""
        size = len(self.docs)
        rows = np.full(size, UNKNOWN_ROW, np.int64)
        parts = {name: np.full(size, np.nan, np.float32) for name in self.lists}
        ranks = {name: np.zeros(size, np.int64) for name in self.lists}
        total = np.zeros(size, np.float64)
        for name, (place, ranking) in self.lists.items():
            total += self.gains[name]
            # The later a list stands in the plan, the more its choice of passage counts.
            rows[place] = np.where(ranking.rows == UNKNOWN_ROW, rows[place], ranking.rows)
            parts[name][place] = ranking.scores
            ranks[name][place] = np.arange(1, len(ranking) + 1)
        found = best_first(self.docs, total.astype(np.float32), rows, k)
        kept = np.searchsorted(self.docs, found.docs)
        return Ranking(
            found.docs,
            found.scores,
            found.rows,
            {name: part[kept] for name, part in parts.items()},
            {name: own[kept] for name, own in ranks.items()},
            {name: own[kept] for name, own in self.gains.items()},
        )

"""Fusion: several rankings of one query become one. The result records what each list gave to each document."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from plait.errors import ConfigError
from plait.search.ranking import UNKNOWN_ROW, Ranking, best_first

NO_LENGTHS: Mapping[str, float] = MappingProxyType({})
# A list whose scores spread less than this is not stretched to the whole range of 0 to 1: its best document is not
# good. A BM25 score of 5 is about that of two rare words among some hundred documents.
MIN_SPREADS: Mapping[str, float] = MappingProxyType({"bm25": 5.0})


class Fusion(Protocol):
    def fuse(self, rankings: Mapping[str, Ranking], k: int, lengths: Mapping[str, float] = NO_LENGTHS) -> Ranking:
        """One ranking of the k best documents. The scores of a list are divided by its length, if there is one: MaxSim
        by the number of query vectors, which makes its sum a mean."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReciprocalRank:
    """Each list gives a document weight / (constant + rank), with ranks from 1; a list without the document gives 0.

    Ranks need no common scale, so this works without any measurement.
    """

    constant: float = 60.0
    weights: Mapping[str, float] | None = None  # by list; 1 for lists that are not named

    def __post_init__(self) -> None:
        if self.constant < 0:
            raise ConfigError(f"the constant of reciprocal rank fusion is {self.constant}; it cannot be negative")

    def fuse(self, rankings: Mapping[str, Ranking], k: int, lengths: Mapping[str, float] = NO_LENGTHS) -> Ranking:
        del lengths  # ranks have no scale
        table = _Table(rankings)
        for name, (position, ranking) in table.lists.items():
            weight = 1.0 if self.weights is None else self.weights.get(name, 1.0)
            table.gains[name][position] = weight / (self.constant + np.arange(1, len(ranking) + 1))
        return table.best(k)


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightedSum:
    """The sum over lists of weight times score; a document that a list does not have scores 0 in it.

    `scale` is applied to the scores of each list first: "raw" leaves them; "min-max" maps the lowest among all
    documents to 0 and the highest to 1, or to less if the scores spread less than `min_spreads`; "z" maps the mean to 0
    and the standard deviation to 1.
    """

    weights: Mapping[str, float] | None = None  # by list; 1 for lists that are not named
    scale: str = "raw"
    min_spreads: Mapping[str, float] = field(default_factory=lambda: MIN_SPREADS)  # by list

    def __post_init__(self) -> None:
        if self.scale not in SCALES:
            raise ConfigError(f"scores cannot be scaled by {self.scale!r}; choose one of {', '.join(SCALES)}")

    def fuse(self, rankings: Mapping[str, Ranking], k: int, lengths: Mapping[str, float] = NO_LENGTHS) -> Ranking:
        table = _Table(rankings)
        for name, (position, ranking) in table.lists.items():
            weight = 1.0 if self.weights is None else self.weights.get(name, 1.0)
            scores = np.zeros(len(table.docs))
            scores[position] = ranking.scores / lengths.get(name, 1.0)
            table.gains[name][:] = weight * SCALES[self.scale](scores, self.min_spreads.get(name, 0.0))
        return table.best(k)


def _raw(scores: NDArray[np.float64], min_spread: float) -> NDArray[np.float64]:
    del min_spread
    return scores


def _min_max(scores: NDArray[np.float64], min_spread: float) -> NDArray[np.float64]:
    if not len(scores):
        return scores
    low, high = scores.min(), scores.max()
    # A list of equal scores says as little as an empty list.
    return np.asarray((scores - low) / max(high - low, min_spread, 1e-12))


def _z(scores: NDArray[np.float64], min_spread: float) -> NDArray[np.float64]:
    del min_spread
    spread = scores.std() if len(scores) else 0.0
    return (scores - scores.mean()) / spread if spread > 0 else np.zeros(len(scores))


SCALES = {"raw": _raw, "min-max": _min_max, "z": _z}


class _Table:
    """All documents of several lists, and what each list gives to them."""

    def __init__(self, rankings: Mapping[str, Ranking]) -> None:
        docs = np.sort(np.concatenate([ranking.docs for ranking in rankings.values()]))
        # Each once. numpy.unique would import numpy.ma, which takes longer than a search.
        self.docs = docs[np.diff(docs, prepend=-1) != 0]
        self.lists = {name: (np.searchsorted(self.docs, ranking.docs), ranking) for name, ranking in rankings.items()}
        self.gains = {name: np.zeros(len(self.docs), np.float64) for name in rankings}

    def best(self, k: int) -> Ranking:
        """The k documents with the largest sums of gains."""
        size = len(self.docs)
        rows = np.full(size, UNKNOWN_ROW, np.int64)
        parts = {name: np.full(size, np.nan, np.float32) for name in self.lists}
        ranks = {name: np.zeros(size, np.int64) for name in self.lists}
        total = np.zeros(size, np.float64)
        for name, (position, ranking) in self.lists.items():
            total += self.gains[name]
            # A later list of the plan overrides the passage of an earlier one.
            rows[position] = np.where(ranking.rows == UNKNOWN_ROW, rows[position], ranking.rows)
            parts[name][position] = ranking.scores
            ranks[name][position] = np.arange(1, len(ranking) + 1)
        top = best_first(self.docs, total.astype(np.float32), rows, k)
        positions = np.searchsorted(self.docs, top.docs)
        return Ranking(
            top.docs,
            top.scores,
            top.rows,
            {name: part[positions] for name, part in parts.items()},
            {name: values[positions] for name, values in ranks.items()},
            {name: values[positions] for name, values in self.gains.items()},
        )

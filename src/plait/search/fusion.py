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
from plait.storage.saved_settings import Calibration

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


@dataclass(frozen=True, slots=True)
class Bounds:
    """The range of the scores of a list, after division by its length.

    `high` is scaled to 1, and `low`, what unrelated texts score, to UNRELATED. Scores below it go on to 0, which is at
    `-high`: so that they keep their order.
    """

    low: float
    high: float

    def scale(self, scores: NDArray[np.float64]) -> NDArray[np.float64]:
        above = UNRELATED + (1 - UNRELATED) * (scores - self.low) / (self.high - self.low)
        below = UNRELATED * (scores + self.high) / (self.low + self.high)
        return np.asarray(np.clip(np.where(scores >= self.low, above, below), 0.0, 1.0))


UNRELATED = 0.05
# Cosines and the mean of MaxSim are between -1 and 1. What a model gives to unrelated texts is measured: see
# plait.search.calibration.
DEFAULT_BOUNDS: Mapping[str, Bounds] = MappingProxyType({kind: Bounds(0.0, 1.0) for kind in ("dense", "multi")})


def bounds_of(calibration: Calibration | None) -> Mapping[str, Bounds]:
    """The bounds of each kind on an index; the default ones if it is not calibrated."""
    if calibration is None:
        return DEFAULT_BOUNDS
    return {**DEFAULT_BOUNDS, **{kind: Bounds(*pair) for kind, pair in calibration.bounds.items()}}


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundedSum:
    """The weighted mean of scores that are scaled by the bounds of each list: from 0 to 1.

    The bounds depend on the query and the index, not on what else was found (theoretical min-max; Bruch, Gai and
    Ingber, "An Analysis of Fusion Functions for Hybrid Retrieval"). So the score of a document does not, either. A
    document that a list does not have scores 0 in it.
    """

    weights: Mapping[str, float]  # by list; 0 for lists that are not named
    bounds: Mapping[str, Bounds] = field(default_factory=lambda: DEFAULT_BOUNDS)  # by list

    def fuse(self, rankings: Mapping[str, Ranking], k: int, lengths: Mapping[str, float] = NO_LENGTHS) -> Ranking:
        table = _Table(rankings)
        total = sum(self.weights.get(name, 0.0) for name in rankings) or 1.0
        for name, (position, ranking) in table.lists.items():
            share = self.weights.get(name, 0.0) / total
            scores, bounds = ranking.scores.astype(np.float64) / lengths.get(name, 1.0), self.bounds.get(name)
            # Word and term scores have no range of a model: they begin with 0, and their bound is their length.
            scaled = np.clip(scores, 0.0, 1.0) if bounds is None else bounds.scale(scores)
            table.gains[name][position] = share * scaled
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

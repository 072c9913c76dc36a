"""Fusion: several rankings of the same query become one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from plait.errors import ConfigError
from plait.search.ranking import UNKNOWN_ROW, Ranking, best_first


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

    def fuse(self, rankings: Mapping[str, Ranking], k: int) -> Ranking:
        docs = np.sort(np.concatenate([ranking.docs for ranking in rankings.values()]))
        # Each once. numpy.unique would import numpy.ma for it, which takes longer than a search.
        docs = docs[np.diff(docs, prepend=-1) != 0]
        total = np.zeros(len(docs), np.float64)
        rows = np.full(len(docs), UNKNOWN_ROW, np.int64)
        parts, ranks, gains = {}, {}, {}
        for name, ranking in rankings.items():
            weight = 1.0 if self.weights is None else self.weights.get(name, 1.0)
            place = np.searchsorted(docs, ranking.docs)
            ranks[name], gains[name] = np.zeros(len(docs), np.int64), np.zeros(len(docs), np.float64)
            ranks[name][place] = np.arange(1, len(ranking) + 1)
            gains[name][place] = weight / (self.constant + ranks[name][place])
            total += gains[name]
            # The later a generator stands in the plan, the more its choice of passage counts.
            rows[place] = np.where(ranking.rows == UNKNOWN_ROW, rows[place], ranking.rows)
            part = np.full(len(docs), np.nan, np.float32)
            part[place] = ranking.scores
            parts[name] = part
        found = best_first(docs, total.astype(np.float32), rows, k)
        kept = np.searchsorted(docs, found.docs)
        return Ranking(
            found.docs,
            found.scores,
            found.rows,
            {name: part[kept] for name, part in parts.items()},
            {name: own[kept] for name, own in ranks.items()},
            {name: own[kept] for name, own in gains.items()},
        )

"""Fitting the weights of strands: the scores of all candidates in all strands are found once, and then only weighed.

The queries are halved. On the first half every weight in turn is moved along a grid, while the others stay, until
nothing gets better; the second half judges. Weights that do no better there than the defaults are not worth keeping.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from plait.errors import InputError
from plait.search.fusion import NOTHING, Fusion
from plait.search.hybrid_params import DEFAULT_FUSION, DEFAULT_WEIGHTS, fusion_of
from plait.search.ranking import Ranking

GRID = (0.0, 0.1, 0.2, 0.35, 0.5, 0.75, 1.0, 1.5, 2.0)
MOST_ROUNDS = 4
AT = 10
FEWEST_QUERIES = 10


@dataclass(frozen=True, slots=True, eq=False)
class Judged:
    """One query: what each strand gives to its candidates, and how relevant documents are, by number."""

    lists: Mapping[str, Ranking]
    relevant: Mapping[int, int]
    lengths: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Point:
    """One step of the fit: weights, and what they reach on the queries that choose."""

    weights: Mapping[str, float]
    ndcg: float


@dataclass(frozen=True, slots=True)
class Fitted:
    """What a fit found. `ndcg` and `default_ndcg` are of the queries that took no part in choosing."""

    fusion: str
    weights: Mapping[str, float]
    ndcg: float
    default_ndcg: float
    alone: Mapping[str, float]  # nDCG of each strand by itself, on the same queries
    curve: tuple[Point, ...]  # every step that was better than those before
    n_queries: int

    @property
    def better(self) -> bool:
        return self.ndcg > self.default_ndcg


def tune_fusion(
    queries: Sequence[Judged],
    *,
    fusion: str = DEFAULT_FUSION,
    exclude_from_hybrid: Sequence[str] = (),
    on_progress: Callable[[int], None] | None = None,
) -> Fitted:
    """The weights that choose best on half of the queries, and what they reach on the other half. Embeddings that are
    `exclude_from_hybrid` have none by default."""
    if len(queries) < FEWEST_QUERIES:
        raise InputError(f"{len(queries)} judged queries are too few to fit weights with; {FEWEST_QUERIES} are needed")
    choosing, judging = queries[0::2], queries[1::2]
    embeddings = list(queries[0].lists)
    start = {kind: 0.0 if kind in exclude_from_hybrid else DEFAULT_WEIGHTS[kind] for kind in embeddings}
    best = Point(start, mean_ndcg(choosing, fusion_of(fusion, start)))
    curve, n_done = [best], 0
    for _ in range(MOST_ROUNDS):
        before = best
        for kind in embeddings:
            for weight in GRID:
                weights = {**best.weights, kind: weight}
                n_done += 1
                if on_progress is not None:
                    on_progress(n_done)
                if not any(weights.values()):
                    continue
                reached = mean_ndcg(choosing, fusion_of(fusion, weights))
                if reached > best.ndcg + 1e-9:
                    best = Point(weights, reached)
                    curve.append(best)
        if best is before:
            break
    alone = {
        kind: mean_ndcg(judging, fusion_of(fusion, {other: float(other == kind) for other in embeddings}))
        for kind in embeddings
    }
    return Fitted(
        fusion,
        best.weights,
        mean_ndcg(judging, fusion_of(fusion, best.weights)),
        mean_ndcg(judging, fusion_of(fusion, start)),
        alone,
        tuple(curve),
        len(queries),
    )


def mean_ndcg(queries: Sequence[Judged], fusion: Fusion) -> float:
    return float(np.mean([_ndcg(fusion.fuse(one.lists, AT, one.lengths or NOTHING), one.relevant) for one in queries]))


def _ndcg(ranking: Ranking, relevant: Mapping[int, int]) -> float:
    """At 10, with gains as they were judged; 0 where nothing is relevant."""
    ideal = sorted((gain for gain in relevant.values() if gain > 0), reverse=True)[:AT]
    if not ideal:
        return 0.0
    found = [max(relevant.get(int(doc), 0), 0) for doc in ranking.docs[:AT]]
    return float(_discounted(found) / _discounted(ideal))


def _discounted(gains: Sequence[int]) -> float:
    ranks: NDArray[np.float64] = np.arange(2, len(gains) + 2, dtype=np.float64)
    return float((np.asarray(gains, np.float64) / np.log2(ranks)).sum())

"""Tuning of hybrid search: fusion weights fitted to judged queries, by nDCG@10.

The scores of all candidates by all kinds are computed once, and then only weighted. On half of the queries, one weight
after another is moved along a grid until nothing improves; the other half tests the result.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np
from numpy.typing import NDArray

from plait.checks import check_type
from plait.encode.protocol import Encoder
from plait.errors import ConfigError, InputError, QueryError
from plait.search.fusion import NO_LENGTHS, Fusion
from plait.search.hybrid import DEFAULT_FUSION, DEFAULT_WEIGHTS, HybridParams, build_hybrid, make_fusion
from plait.search.modes import PlanContext
from plait.search.plan import Plan
from plait.search.query import QueryBatch
from plait.search.ranking import Ranking
from plait.search.trace import Trace
from plait.storage.saved_settings import FittedWeights
from plait.storage.store import Snapshot, Store

BATCH_SIZE = 32
GRID = (0.0, 0.1, 0.2, 0.35, 0.5, 0.75, 1.0, 1.5, 2.0)
MAX_ROUNDS = 4
NDCG_AT = 10
MIN_QUERIES = 10


@dataclass(frozen=True, slots=True, eq=False)
class Judged:
    """One query: the ranking of its candidates by each kind, and the gains of relevant documents, by number."""

    lists: Mapping[str, Ranking]
    relevant: Mapping[int, int]
    lengths: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Point:
    """One step of the fit: weights, and their nDCG on the queries that choose."""

    weights: Mapping[str, float]
    ndcg: float


@dataclass(frozen=True, slots=True)
class Fitted:
    """The result of a fit. `ndcg` and `default_ndcg` are of the queries that took no part in choosing."""

    fusion: str
    weights: Mapping[str, float]
    ndcg: float
    default_ndcg: float
    alone: Mapping[str, float]  # nDCG of each kind by itself, on the same queries
    curve: tuple[Point, ...]  # every step that improved
    n_queries: int

    @property
    def better(self) -> bool:
        return self.ndcg > self.default_ndcg


def fit_weights(
    queries: Sequence[Judged],
    *,
    fusion: str = DEFAULT_FUSION,
    exclude_from_hybrid: Sequence[str] = (),
    on_progress: Callable[[int], None] | None = None,
) -> Fitted:
    """Fits weights to half of the queries and tests them on the other half. The default weight of the kinds in
    `exclude_from_hybrid` is 0."""
    if len(queries) < MIN_QUERIES:
        raise InputError(f"{len(queries)} judged queries are too few to fit weights with; {MIN_QUERIES} are needed")
    choosing, testing = queries[0::2], queries[1::2]
    kinds = list(queries[0].lists)
    start = {kind: 0.0 if kind in exclude_from_hybrid else DEFAULT_WEIGHTS[kind] for kind in kinds}
    best = Point(start, mean_ndcg(choosing, make_fusion(fusion, start)))
    curve, n_done = [best], 0
    for _ in range(MAX_ROUNDS):
        before = best
        for kind in kinds:
            for weight in GRID:
                weights = {**best.weights, kind: weight}
                n_done += 1
                if on_progress is not None:
                    on_progress(n_done)
                if not any(weights.values()):
                    continue
                reached = mean_ndcg(choosing, make_fusion(fusion, weights))
                if reached > best.ndcg + 1e-9:
                    best = Point(weights, reached)
                    curve.append(best)
        if best is before:
            break
    alone = {
        kind: mean_ndcg(testing, make_fusion(fusion, {other: float(other == kind) for other in kinds}))
        for kind in kinds
    }
    return Fitted(
        fusion,
        best.weights,
        mean_ndcg(testing, make_fusion(fusion, best.weights)),
        mean_ndcg(testing, make_fusion(fusion, start)),
        alone,
        tuple(curve),
        len(queries),
    )


def mean_ndcg(queries: Sequence[Judged], fusion: Fusion) -> float:
    return float(
        np.mean([_ndcg(fusion.fuse(one.lists, NDCG_AT, one.lengths or NO_LENGTHS), one.relevant) for one in queries])
    )


def _ndcg(ranking: Ranking, relevant: Mapping[int, int]) -> float:
    """nDCG@10 with the judged gains; 0 if nothing is relevant."""
    ideal = sorted((gain for gain in relevant.values() if gain > 0), reverse=True)[:NDCG_AT]
    if not ideal:
        return 0.0
    gains = [max(relevant.get(int(doc), 0), 0) for doc in ranking.docs[:NDCG_AT]]
    return float(_discounted(gains) / _discounted(ideal))


def _discounted(gains: Sequence[int]) -> float:
    ranks: NDArray[np.float64] = np.arange(2, len(gains) + 2, dtype=np.float64)
    return float((np.asarray(gains, np.float64) / np.log2(ranks)).sum())


# -- on an index


def tune_fusion_weights(
    store: Store,
    encoder: Callable[[], Encoder],
    queries: Mapping[str, str],
    qrels: Mapping[str, Mapping[str, int]],
    *,
    fusion: str | None = None,
    data: str = "",
    n_threads: int = 1,
    on_progress: Callable[[int], None] | None = None,
) -> tuple[Fitted, FittedWeights | None]:
    """Fits weights on the newest commit. They are saved, and returned second, if they beat the default weights on
    queries that took no part in choosing. The write lock is held, so that the commit stays.

    Kinds that the model excludes from hybrid search are fitted too: judged queries show what they are worth here.
    """
    params = HybridParams(fusion=fusion)
    plan = build_hybrid(PlanContext(spec=store.spec, n_threads=n_threads), params)
    if fusion == "rank":
        raise ConfigError("weights are fitted for sums of scores; choose min-max, z or raw")
    if len(plan.retrievers) < 2:
        raise ConfigError("the index has only full text; there are no weights to fit")
    with store.writer() as writer, store.snapshot() as snapshot:
        judged = judged_queries(snapshot, plan, encoder(), queries, qrels, on_progress)
        fitted = fit_weights(judged, fusion=fusion or DEFAULT_FUSION, exclude_from_hybrid=store.exclude_from_hybrid)
        if not fitted.better:
            return fitted, None
        saved = FittedWeights(
            fusion=fitted.fusion,
            weights=dict(fitted.weights),
            ndcg=round(fitted.ndcg, 4),
            default_ndcg=round(fitted.default_ndcg, 4),
            n_queries=fitted.n_queries,
            data=data,
            date=datetime.now(UTC).date().isoformat(),
        )
        writer.save_fusion_weights(saved)
        return fitted, saved


def judged_queries(
    snapshot: Snapshot,
    plan: Plan,
    encoder: Encoder,
    queries: Mapping[str, str],
    qrels: Mapping[str, Mapping[str, int]],
    on_progress: Callable[[int], None] | None = None,
) -> list[Judged]:
    """The candidates of each query that has a relevant document in the index, with their scores by every kind."""
    judged: list[Judged] = []
    ids = list(queries)
    for start in range(0, len(ids), BATCH_SIZE):
        batch_ids = ids[start : start + BATCH_SIZE]
        texts = [queries[id] for id in batch_ids]
        for text in texts:
            check_type("the text of a query", text, str, "text", QueryError)
        batch = QueryBatch(texts, snapshot.projected(encoder.encode_queries(texts)))
        lists = plan.lists(snapshot, batch, None, Trace())
        for number, id in enumerate(batch_ids):
            relevant = _numbers(snapshot, qrels.get(id, {}))
            if relevant:
                judged.append(Judged(lists[number], relevant, plan.lengths(snapshot, batch, number)))
        if on_progress is not None:
            on_progress(min(start + BATCH_SIZE, len(ids)))
    if not judged:
        raise InputError("no judged document of these queries is in the index; does it hold the corpus of the set?")
    return judged


def _numbers(snapshot: Snapshot, judged: Mapping[str, int]) -> dict[int, int]:
    check_type("the judgements of a query", judged, Mapping, "a mapping of document ids to gains", InputError)
    for gain in judged.values():
        check_type("the gain of a document", gain, (int, float), "a number", InputError)
    wanted: Sequence[str] = [id for id, gain in judged.items() if gain > 0]
    return {doc: judged[id] for id, doc in snapshot.lookup(wanted).items()}

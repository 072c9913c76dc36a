"""Fitting the weights of an index on judged queries, and saving them. `plait.tune.weight_search` has the search."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime

from plait.encode.protocol import Encoder
from plait.errors import ConfigError, InputError
from plait.search.hybrid_params import DEFAULT_FUSION
from plait.search.plan import Plan, plan_for
from plait.search.ranking import QueryBatch
from plait.search.trace import Trace
from plait.storage.fusion_weights import FittedWeights
from plait.storage.store import Snapshot, Store
from plait.tune.weight_search import Fitted, Judged, tune_fusion

BATCH = 32


def weigh_store(
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
    """Fits weights on the newest state, and saves them if they do better than the defaults on queries that took no part
    in choosing; the lock is held throughout, so that state stays. The second is what was saved. A strand that stands
    apart is weighed with the others: judged queries of these documents tell what it is worth here."""
    options = {} if fusion is None else {"fusion": fusion}
    plan = plan_for("hybrid", store.spec, n_threads=n_threads, options=options)
    if fusion == "rank":
        raise ConfigError("weights are fitted for sums of scores; choose min-max, z or raw")
    if len(plan.generators) < 2:
        raise ConfigError("the index has BM25 alone; there is nothing to weigh")
    with store.writer() as writer, store.snapshot() as snapshot:
        judged = judged_queries(snapshot, plan, encoder(), queries, qrels, on_progress)
        fitted = tune_fusion(judged, fusion=fusion or DEFAULT_FUSION, exclude_from_hybrid=store.exclude_from_hybrid)
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
    """The candidates of each query that has a relevant document in the index, with their scores in every strand."""
    judged: list[Judged] = []
    ids = list(queries)
    for start in range(0, len(ids), BATCH):
        some = ids[start : start + BATCH]
        texts = [queries[id] for id in some]
        batch = QueryBatch(texts, encoder.encode_queries(texts))
        lists = plan.lists(snapshot, batch, plan.depth, None, Trace())
        for number, id in enumerate(some):
            relevant = _numbers(snapshot, qrels.get(id, {}))
            if relevant:
                judged.append(Judged(lists[number], relevant, plan.lengths(batch, number)))
        if on_progress is not None:
            on_progress(min(start + BATCH, len(ids)))
    if not judged:
        raise InputError("no judged document of these queries is in the index; does it hold the corpus of the set?")
    return judged


def _numbers(snapshot: Snapshot, judged: Mapping[str, int]) -> dict[int, int]:
    wanted: Sequence[str] = [id for id, gain in judged.items() if gain > 0]
    return {doc: judged[id] for id, doc in snapshot.lookup(wanted).items()}

"""Searching for all queries of a set, in batches, timed, and going on where it was stopped."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from plait.evaluate.code import code_digest
from plait.evaluate.judged_set import JudgedSet
from plait.evaluate.run_cache import Kept, Rankings, hash_of
from plait.evaluate.runs import without_self
from plait.index import Index
from plait.search.trace import Trace
from plait.version import __version__

if TYPE_CHECKING:
    from plait.searcher import Rerank

BATCH = 64  # queries between two steps of a progress bar, and that are kept together
ENCODE_BATCH = 32  # queries that are encoded and searched together


def rank_queries(
    index: Index,
    queries: Sequence[str],
    k: int,
    *,
    mode: str = "hybrid",
    exact: bool = False,
    options: Mapping[str, object] | None = None,
    rerank: Rerank = None,
    on_progress: Callable[[int], None] | None = None,
) -> list[list[tuple[str, float]]]:
    """Ids and scores of the k best documents of each query; no texts are read. Arguments as for `Index.search`."""
    snapshot, searcher, trace = index.snapshot, index.searcher, Trace()
    plan = searcher.plan(snapshot, mode, exact=exact, options=options)
    rankings: list[list[tuple[str, float]]] = []
    for start in range(0, len(queries), ENCODE_BATCH):
        batch = searcher.encode(queries[start : start + ENCODE_BATCH], plan, trace)
        for found in searcher.run(snapshot, plan, batch, k, trace, rerank=rerank):
            ids = snapshot.fetch_ids([int(doc) for doc in found.docs])
            rankings.append([(id, float(score)) for id, score in zip(ids, found.scores, strict=True)])
        if on_progress is not None:
            on_progress(len(rankings))
    return rankings


def search_fingerprint(
    index: Index,
    *,
    mode: str = "hybrid",
    exact: bool = False,
    options: Mapping[str, object] | None = None,
    rerank: Rerank = None,
) -> str:
    """A digest of all that `rank_queries` depends on: the commit, the encoder, the plan and the reranker. Equal digests mean
    equal rankings."""
    snapshot, searcher = index.snapshot, index.searcher
    return searcher.state(snapshot, searcher.plan(snapshot, mode, exact=exact, options=options), rerank)


@dataclass(frozen=True, slots=True)
class SetRun:
    """What came back for a set."""

    run: Rankings
    seconds: float  # that searching took, now and before
    n_before: int  # queries whose ranking was kept from before

    @property
    def queries_per_second(self) -> float:
        return len(self.run) / self.seconds if self.seconds > 0 else 0.0


def rank_set(
    index: Index,
    judged: JudgedSet,
    mode: str,
    k: int,
    *,
    options: Mapping[str, object] | None = None,
    rerank: Rerank = None,
    drop_self: bool = False,
    keep: str | Path | None = None,
    fresh: bool = False,
    on_progress: Callable[[int], None] | None = None,
) -> SetRun:
    """Ranks k documents for each query of the set; `options` are settings of the mode, `rerank` as for `Index.search`.

    With `drop_self` a document with the id of the query is left out. `keep` is a folder for rankings: what is there
    for the same state of the index, plan, queries and k is not made again, unless `fresh`.
    """
    depth = k + drop_self
    kept = None if keep is None else Kept(keep, key_of(index, judged, mode, depth, options, rerank))
    if kept is not None and fresh:
        kept.forget()
    run, seconds = ({}, 0.0) if kept is None else kept.read()
    n_before = len(run)
    missing = [id for id in judged.queries if id not in run]
    if missing:
        first = judged.queries[missing[0]]
        rank_queries(index, [first], 1, mode=mode, options=options, rerank=rerank)  # loading is not to be timed
    for start in range(0, len(missing), BATCH):
        ids = missing[start : start + BATCH]
        began = time.perf_counter()
        ranked = rank_queries(
            index, [judged.queries[id] for id in ids], depth, mode=mode, options=options, rerank=rerank
        )
        took = time.perf_counter() - began
        found = dict(zip(ids, ranked, strict=True))
        run.update(found)
        seconds += took
        if kept is not None:
            kept.add(found, took)
        if on_progress is not None:
            on_progress(len(run))
    run = {id: run[id] for id in judged.queries}
    if drop_self:
        run = without_self(run, k)
    return SetRun(run, seconds, n_before)


def key_of(
    index: Index,
    judged: JudgedSet,
    mode: str,
    depth: int,
    options: Mapping[str, object] | None,
    rerank: Rerank = None,
) -> dict[str, object]:
    """All that decides the rankings of a set."""
    return {
        "plait": __version__,
        "code": code_digest(),
        "index": search_fingerprint(index, mode=mode, options=options, rerank=rerank),
        "mode": mode,
        "queries": hash_of(list(judged.queries.items())),
        "k": depth,
    }

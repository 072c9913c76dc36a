"""Searching for all queries of a dataset: in batches, timed, and resumed after an interruption."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

from plait.evaluate.code_digest import code_digest
from plait.evaluate.datasets import Dataset
from plait.evaluate.run_cache import Rankings, RunCache, hash_of
from plait.evaluate.runs import without_self
from plait.index import Index
from plait.search.params import Params
from plait.searcher import SearchKeywords, SearchRequest
from plait.version import __version__

if TYPE_CHECKING:
    from plait.searcher import Rerank

BATCH_SIZE = 64  # queries between two steps of a progress bar, and in one line of the cache
ENCODE_BATCH = 32  # queries that are encoded and searched together


def rank_queries(
    index: Index,
    queries: Sequence[str],
    k: int,
    *,
    on_progress: Callable[[int], None] | None = None,
    **keywords: Unpack[SearchKeywords],
) -> list[list[tuple[str, float]]]:
    """Ids and scores of the k best documents of each query. Keywords as for `Index.search`."""
    snapshot, request = index.snapshot, _request(k, keywords)
    rankings: list[list[tuple[str, float]]] = []
    for start in range(0, len(queries), ENCODE_BATCH):
        for ranking in index.searcher.rank(snapshot, queries[start : start + ENCODE_BATCH], request):
            ids = snapshot.fetch_ids(ranking.docs.tolist())
            rankings.append([(id, float(score)) for id, score in zip(ids, ranking.scores, strict=True)])
        if on_progress is not None:
            on_progress(len(rankings))
    return rankings


def _request(k: int, keywords: SearchKeywords) -> SearchRequest:
    """Judged queries are plain text: what looks like an operator in them is none."""
    keywords.setdefault("syntax", False)
    return SearchRequest(k=k, **keywords)


def search_fingerprint(index: Index, k: int = 10, **keywords: Unpack[SearchKeywords]) -> str:
    """A digest of all that `rank_queries` depends on: the commit, the encoder, the plan and the reranker. Equal digests
    mean equal rankings."""
    return index.searcher.fingerprint(index.snapshot, _request(k, keywords))


@dataclass(frozen=True, slots=True)
class DatasetRun:
    """The rankings of all queries of a dataset."""

    run: Rankings
    seconds: float  # of searching; for cached rankings, when they were computed
    n_cached: int  # queries whose ranking came from the cache

    @property
    def queries_per_second(self) -> float:
        return len(self.run) / self.seconds if self.seconds > 0 else 0.0


def rank_dataset(
    index: Index,
    dataset: Dataset,
    mode: str,
    k: int,
    *,
    params: Params | None = None,
    rerank: Rerank = None,
    drop_self: bool = False,
    cache: str | Path | None = None,
    fresh: bool = False,
    on_progress: Callable[[int], None] | None = None,
) -> DatasetRun:
    """Ranks k documents for each query of the dataset; `params` and `rerank` are those of `Index.search`.

    With `drop_self` a document with the id of the query is left out. `cache` is a folder for rankings: those of the
    same index state, plan, queries and k are not computed again, unless `fresh`.
    """
    depth = k + drop_self
    run_cache = None if cache is None else RunCache(cache, cache_key(index, dataset, mode, depth, params, rerank))
    if run_cache is not None and fresh:
        run_cache.clear()
    run, seconds = ({}, 0.0) if run_cache is None else run_cache.read()
    n_cached = len(run)
    missing = [id for id in dataset.queries if id not in run]
    if missing:
        # The first search loads the model, which must not be timed.
        rank_queries(index, [dataset.queries[missing[0]]], 1, mode=mode, params=params, rerank=rerank)
    for start in range(0, len(missing), BATCH_SIZE):
        ids = missing[start : start + BATCH_SIZE]
        texts = [dataset.queries[id] for id in ids]
        began = time.perf_counter()
        rankings = rank_queries(index, texts, depth, mode=mode, params=params, rerank=rerank)
        batch_seconds = time.perf_counter() - began
        batch = dict(zip(ids, rankings, strict=True))
        run.update(batch)
        seconds += batch_seconds
        if run_cache is not None:
            run_cache.add(batch, batch_seconds)
        if on_progress is not None:
            on_progress(len(run))
    run = {id: run[id] for id in dataset.queries}
    if drop_self:
        run = without_self(run, k)
    return DatasetRun(run, seconds, n_cached)


def cache_key(
    index: Index,
    dataset: Dataset,
    mode: str,
    depth: int,
    params: Params | None,
    rerank: Rerank = None,
) -> dict[str, object]:
    """Everything that decides the rankings of a dataset."""
    return {
        "plait": __version__,
        "code": code_digest(),
        "index": search_fingerprint(index, depth, mode=mode, params=params, rerank=rerank),
        "mode": mode,
        "queries": hash_of(list(dataset.queries.items())),
        "k": depth,
    }

"""Multi-vector search of a snapshot: MaxSim of every passage, or of those that a compressed segment offers first."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from plait.errors import InputError
from plait.scoring.maxsim import maxsim
from plait.search.filtering import Eligible
from plait.search.multivector.method import Method
from plait.search.multivector.params import Settings, settings_for
from plait.search.multivector.query import MultiVectorQuery, ProbeConfig
from plait.search.multivector.segment_group import PoolSearch, pools
from plait.search.ranking import QueryBatch, Ranking, merge
from plait.search.retriever import BEST, Allowed, Rows, by_document, candidate_rows, missing_embeddings
from plait.search.trace import Trace
from plait.storage.segment import Segment, segment_errors
from plait.storage.store import Snapshot

NOTHING_KNOWN: Mapping[int, MultiVectorQuery] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class ExactMulti:
    """Sum over the query's rows of the best inner product with a row of the passage, in the precision it is kept in."""

    name: str = "multi"
    n_threads: int = 1

    def generate(self, snapshot: Snapshot, batch: QueryBatch, k: int, allowed: Allowed, trace: Trace) -> list[Ranking]:
        queries, within = multi_queries(snapshot, batch), Trace()
        found: list[list[Ranking]] = [[] for _ in queries]
        for segment, base, rows in candidate_rows(snapshot, allowed):
            for query, own in zip(queries, found, strict=True):
                own.append(score_rows(segment, base, rows, query, k, self.n_threads, within))
        trace.add(within, under=self.name)
        return [merge(parts, k) for parts in found]


@dataclass(frozen=True, slots=True)
class ProbedMulti:
    """The same score, for the passages that the cells nearest to the query lead to. Where nothing is compressed, or
    candidates are few, all are scored: below some thousands that is as fast."""

    config: ProbeConfig | None = None  # None: as tuned for the index, or else by default
    as_for: int | None = None  # without a config: a list beside others, of which the first so many matter most
    exhaustive_below: int = 1024  # passages: measured, docs/tuning.md
    name: str = "multi"
    n_threads: int = 1

    def generate(self, snapshot: Snapshot, batch: QueryBatch, k: int, allowed: Allowed, trace: Trace) -> list[Ranking]:
        queries, within = multi_queries(snapshot, batch), Trace()
        found: list[list[Ranking]] = [[] for _ in queries]
        n_first = passages_for(k, snapshot)
        settings = self._settings(snapshot, k)
        fewest = max(self.exhaustive_below, n_first)
        for pool in pools(snapshot, allowed):
            chosen = settings if self.config is not None else settings.among(len(pool), pool.n_rows)
            many = (pool.n_rows if chosen.by_centroids else len(pool)) > fewest
            for number, (query, own) in enumerate(zip(queries, found, strict=True)):
                if pool.coded and not chosen.exhaustive and many:
                    search = PoolSearch(pool, query, within, batch.known(number))
                    own.append(search.search(chosen, k, n_first))
                    continue
                for part in pool.parts:
                    own.append(score_rows(part.segment, part.base, part.rows, query, k, self.n_threads, within))
        trace.add(within, under=self.name)
        return [merge(parts, k) for parts in found]

    def _settings(self, snapshot: Snapshot, k: int) -> Settings:
        if self.config is not None:
            return Settings(self.config)
        if self.as_for is None:
            return settings_for(snapshot, k)
        return settings_for(snapshot, min(k, self.as_for), listed=k)


class SegmentSearch:
    """One compressed segment and the rows of it that may be found, for any number of queries by any method."""

    def __init__(self, part: Eligible, k: int, n_first: int) -> None:
        """For k documents, of which `n_first` passages are asked for first."""
        assert part.segment.coded is not None
        self._segment, self._coded, self._part = part.segment, part.segment.coded, part
        self._k, self._n_first = k, n_first

    def search(self, method: Method, query: NDArray[np.float32], trace: Trace, *, n_threads: int = 1) -> Ranking:
        """k documents, if the segment has as many with a vector: where too few come, more are asked for."""
        n_wanted = self._n_first
        with segment_errors(self._segment):
            asked = MultiVectorQuery(query, self._coded, trace)
            while True:
                items, scores = method.search(asked, n_wanted, self._part.chosen, n_threads=n_threads)
                order = np.argsort(items)
                found = by_document(self._segment, self._part.base, items[order], scores[order], self._k)
                found = replace(found, floor=asked.imputed)
                if len(found) >= self._k or len(found) == self._part.n_documents:
                    return found
                if len(items) == n_wanted:
                    n_wanted *= 2
                    continue
                wider = method.wider(asked, n_wanted, self._part.chosen)
                if wider is None:
                    return found
                method = wider


def passages_for(k: int, snapshot: Snapshot) -> int:
    """Where some documents have several passages, k documents are more than k passages."""
    return k if snapshot.n_rows == snapshot.n_documents else 2 * k


def multi_queries(snapshot: Snapshot, batch: QueryBatch) -> list[NDArray[np.float32]]:
    """The rows of each query, fit to be scored."""
    queries, dim = batch.embeddings.multi, snapshot.spec.multi
    if queries is None or dim is None:
        raise missing_embeddings("multi", snapshot)
    if queries.dim != dim:
        raise InputError(f"the queries have {queries.dim} dimensions, the index {dim}; encode both with one model")
    rows = [np.ascontiguousarray(queries[number], dtype=np.float32) for number in range(len(queries))]
    for number, query in enumerate(rows):
        if not len(query) or not np.isfinite(query).all():
            raise InputError(f"query {number} has {len(query)} rows; it needs one or more, of finite values")
    return rows


def score_rows(
    segment: Segment,
    base: int,
    rows: Rows,
    query: NDArray[np.float32],
    k: int,
    n_threads: int,
    trace: Trace,
    *,
    chunks: str = BEST,
    known: Mapping[int, MultiVectorQuery] = NOTHING_KNOWN,
) -> Ranking:
    """The k best documents of these rows, each of which is scored."""
    passages = passage_scores(segment, rows, query, n_threads, trace, known)
    return by_document(segment, base, rows, passages, k, chunks=chunks)


def passage_scores(
    segment: Segment,
    rows: Rows,
    query: NDArray[np.float32],
    n_threads: int,
    trace: Trace,
    known: Mapping[int, MultiVectorQuery] = NOTHING_KNOWN,
) -> NDArray[np.float32]:
    """The score of each of these rows. `known` may have what a search of the same query worked out for the segment."""
    if segment.coded is not None:
        with segment_errors(segment):
            asked = known.get(id(segment.coded)) or MultiVectorQuery(query, segment.coded, trace)
            return asked.scores(rows, n_threads=n_threads)
    assert segment.multi is not None
    with trace.stage("floats") as stage:
        passages = maxsim(query, segment.multi, items=rows, n_threads=n_threads)
        offsets = segment.multi.offsets
        n_rows = int(offsets[-1] if rows is None else (offsets[rows + 1] - offsets[rows]).sum())
        n_bytes = n_rows * segment.multi.dim * segment.multi.values.itemsize
        stage.counts.update(items=len(passages), rows=n_rows, bytes=n_bytes)
    return passages

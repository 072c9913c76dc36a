"""Sparse search: the product of weighted terms, over an inverted index. Exact unless it is asked to be otherwise."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from plait.errors import ConfigError, InputError
from plait.scoring.sparse import SparseQuery, best_rows, score_rows
from plait.search.filtering import FEW, Eligible, eligible
from plait.search.ranking import QueryBatch, Ranking, merge
from plait.search.retriever import BEST, Allowed, Rows, by_document, missing_embeddings
from plait.search.trace import Stage, Trace
from plait.storage.segment import Segment
from plait.storage.store import Snapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class SparseConfig:
    reach: float = 1.0  # what could still be added to a row counts so many times; 1 is exact

    def __post_init__(self) -> None:
        if not 0 < self.reach <= 1:
            raise ConfigError(f"reach is {self.reach}; it must be above 0 and at most 1, which is exact")


@dataclass(frozen=True, slots=True)
class Sparse:
    """Sum over shared terms of the weight in the query times that in the passage. What shares none is not found."""

    config: SparseConfig = SparseConfig()
    name: str = "sparse"

    def generate(self, snapshot: Snapshot, batch: QueryBatch, k: int, allowed: Allowed, trace: Trace) -> list[Ranking]:
        queries, within = sparse_queries(snapshot, batch), Trace()
        found: list[list[Ranking]] = [[] for _ in queries]
        for part in eligible(snapshot, allowed):
            for query, own in zip(queries, found, strict=True):
                with within.stage("postings") as stage:
                    own.append(self._search(part, query, k, stage))
        trace.add(within, under=self.name)
        return [merge(parts, k) for parts in found]

    def _search(self, part: Eligible, query: SparseQuery, k: int, stage: Stage) -> Ranking:
        """k documents, if as many share a term: where passages of few documents come first, more are asked for."""
        segment, base = part.segment, part.base
        assert segment.sparse is not None
        if FEW * len(part) < segment.n_rows:
            return scored(segment, base, part.rows, query, k)
        n_wanted = k
        while True:
            best = best_rows(segment.sparse, query, n_wanted, allowed=part.bits, reach=self.config.reach)
            order = np.argsort(best.rows)
            found = by_document(segment, base, best.rows[order], best.scores[order], k)
            if len(found) >= k or len(best.rows) < n_wanted:
                counts = {"items": len(best.rows), "windows": best.n_windows, "postings": best.n_postings}
                stage.counts.update(counts)
                return found
            n_wanted *= 2


def scored(segment: Segment, base: int, rows: Rows, query: SparseQuery, k: int, *, chunks: str = BEST) -> Ranking:
    """The k best documents of these rows, each of which is scored; those that share no term are left out."""
    assert segment.sparse is not None
    numbers = np.arange(segment.n_rows) if rows is None else rows
    scores = score_rows(segment.sparse, query, numbers)
    shared = scores > 0
    return by_document(segment, base, numbers[shared], scores[shared], k, chunks=chunks)


def sparse_queries(snapshot: Snapshot, batch: QueryBatch) -> list[SparseQuery]:
    """The terms of each query that have a weight, fit to be scored."""
    queries, vocabulary = batch.embeddings.sparse, snapshot.spec.sparse
    if queries is None or vocabulary is None:
        raise missing_embeddings("sparse", snapshot)
    found = []
    for number in range(len(queries)):
        terms, weights = queries[number]
        if np.any(weights < 0) or not np.isfinite(weights).all():
            raise InputError(f"query {number} has weights that are negative or not finite; they must be neither")
        kept = weights > 0
        query = SparseQuery(np.asarray(terms[kept], np.int32), np.asarray(weights[kept], np.float32))
        if len(query.terms) and query.terms[-1] >= vocabulary:
            raise InputError(
                f"query {number} has term {query.terms[-1]}, and the vocabulary of the index {vocabulary} terms; "
                f"encode both with one model"
            )
        found.append(query)
    return found

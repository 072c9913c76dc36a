"""Exact scores of documents that are named, strand by strand: what a generator did not find is scored all the same."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from plait.search.bm25 import bm25_search
from plait.search.dense import dense_scores
from plait.search.multivector.retriever import multi_queries, passage_scores
from plait.search.ranking import UNKNOWN_ROW, QueryBatch, Ranking, merge
from plait.search.retriever import BEST, Rows, candidate_rows, documents_of
from plait.search.sparse import scored, sparse_queries
from plait.search.trace import Trace
from plait.storage.segment import Segment
from plait.storage.store import Snapshot

STRANDS = ("bm25", "dense", "sparse", "multi")


class Scorer(Protocol):
    def __call__(self, number: int, docs: NDArray[np.int64]) -> Ranking:
        """Documents, whose numbers ascend, ranked by their score for a query of the batch. Those that the strand says
        nothing of (no word or term in common) are left out: they score 0."""


def scorer_of(
    kind: str, snapshot: Snapshot, batch: QueryBatch, trace: Trace, *, n_threads: int = 1, chunks: str = BEST
) -> Scorer:
    """How a strand scores documents of this snapshot for queries of this batch. `chunks` says how the passages of a
    document make its score; BM25 scores whole documents in any case."""
    if kind == "bm25":

        def by_words(number: int, docs: NDArray[np.int64]) -> Ranking:
            found, scores = bm25_search(snapshot, batch.texts[number], max(len(docs), 1), doc_filter=docs)
            return Ranking(found, scores, np.full(len(found), UNKNOWN_ROW, np.int64))

        return by_words
    if kind == "dense":
        vectors = batch.embeddings.dense
        assert vectors is not None

        def by_vector(number: int, docs: NDArray[np.int64]) -> Ranking:
            query = vectors[number : number + 1]
            return _by_document(snapshot, docs, lambda segment, rows: dense_scores(segment, rows, query)[0], chunks)

        return by_vector
    if kind == "sparse":
        terms = sparse_queries(snapshot, batch)

        def by_terms(number: int, docs: NDArray[np.int64]) -> Ranking:
            found = [
                scored(segment, base, rows, terms[number], len(docs), chunks=chunks)
                for segment, base, rows in candidate_rows(snapshot, docs)
            ]
            return merge(found, len(docs))

        return by_terms
    queries = multi_queries(snapshot, batch)

    def by_tokens(number: int, docs: NDArray[np.int64]) -> Ranking:
        query, known = queries[number], batch.known(number)
        return _by_document(
            snapshot, docs, lambda segment, rows: passage_scores(segment, rows, query, n_threads, trace, known), chunks
        )

    return by_tokens


def _by_document(
    snapshot: Snapshot, docs: NDArray[np.int64], score: Callable[[Segment, Rows], NDArray[np.float32]], chunks: str
) -> Ranking:
    """The passages of these documents, scored segment by segment and ranked once."""
    owners, numbers, scores = [docs[:0]], [docs[:0]], [np.zeros(0, np.float32)]
    for segment, base, rows in candidate_rows(snapshot, docs):
        here = np.arange(segment.n_rows) if rows is None else rows
        owners.append(segment.docs[here])
        numbers.append(base + here)
        scores.append(score(segment, rows))
    found = (np.concatenate(owners), np.concatenate(numbers), np.concatenate(scores))
    return documents_of(*found, len(docs), chunks=chunks)


def union(rankings: Sequence[Ranking]) -> NDArray[np.int64]:
    """The documents of all rankings, ascending, each once."""
    docs = np.sort(np.concatenate([ranking.docs for ranking in rankings] or [np.zeros(0, np.int64)]))
    # numpy.unique would import numpy.ma for it, which takes longer than a search.
    return np.asarray(docs[np.diff(docs, prepend=-1) != 0])


def completed(known: Ranking, docs: NDArray[np.int64], number: int, scorer: Scorer) -> Ranking:
    """A ranking of all documents, which ascend, where those that are `known` have been scored already."""
    there = np.sort(known.docs)
    place = np.minimum(np.searchsorted(there, docs), max(len(there) - 1, 0))
    missing = docs[there[place] != docs] if len(there) else docs
    return merge([known, scorer(number, missing)], len(docs)) if len(missing) else known

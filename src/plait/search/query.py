"""`QueryBatch`: queries as text and as embeddings; and their vectors, checked against the index."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from plait.codec.codebook import Codebook
from plait.embeddings import Embeddings
from plait.errors import ConfigError, InputError
from plait.scoring.sparse import SparseQuery
from plait.search.multivector.query import CentroidScores
from plait.search.text_query import NO_NAMES, TextQuery
from plait.search.trace import Trace
from plait.search.word_statistics import WordStatistics
from plait.storage.snapshot import Snapshot

MAX_SHARED = 4  # queries of a batch up to which stages share centroid scores: a table may have megabytes


@dataclass(frozen=True, slots=True, eq=False)
class QueryBatch:
    """Queries as text and as embeddings; each stage reads what it needs."""

    texts: Sequence[str]  # the words to search: BM25 and explanations read them
    embeddings: Embeddings
    asked: Sequence[TextQuery] = ()  # what each query asks for besides words; empty: nothing
    statistics: WordStatistics | None = None  # of the collection, if the index is one shard of it
    _centroid_scores: dict[tuple[int, Codebook], CentroidScores] = field(default_factory=dict, repr=False)

    def __len__(self) -> int:
        return len(self.texts)

    def part(self, start: int, stop: int) -> QueryBatch:
        """The queries from `start` to before `stop`."""
        given, numbers = self.embeddings, list(range(start, stop))
        part = Embeddings(
            dense=None if given.dense is None else given.dense[start:stop],
            sparse=None if given.sparse is None else given.sparse.take(numbers),
            multi=None if given.multi is None else given.multi.take(numbers),
        )
        return QueryBatch(self.texts[start:stop], part, self.asked[start:stop], self.statistics)

    def names(self, number: int) -> Mapping[int, float]:
        """The documents whose name is query `number`: see plait.search.names."""
        return self.asked[number].names if self.asked else NO_NAMES

    def centroid_scores(
        self, number: int, query: NDArray[np.float32], codebook: Codebook, trace: Trace
    ) -> CentroidScores:
        """The centroid scores of query `number`, whose rows are `query`. Stages of one search compute them once: a
        small batch keeps them."""
        known = self._centroid_scores.get((number, codebook))
        if known is None:
            known = CentroidScores(query, codebook, trace)
            if len(self) <= MAX_SHARED:
                self._centroid_scores[number, codebook] = known
        return known


def dense_queries(snapshot: Snapshot, batch: QueryBatch) -> NDArray[np.float32]:
    """(queries, dim) the dense vector of each query, checked."""
    queries, dim = batch.embeddings.dense, snapshot.spec.dense
    if queries is None or dim is None:
        raise missing_embeddings("dense", snapshot)
    if queries.shape[1] != dim or not np.isfinite(queries).all():
        raise InputError(
            f"the queries have {queries.shape[1]} dimensions, the index {dim}; both must be encoded with one model, to "
            f"finite values"
        )
    return np.ascontiguousarray(queries, np.float32)


def sparse_queries(snapshot: Snapshot, batch: QueryBatch) -> list[SparseQuery]:
    """The terms of each query with a positive weight, checked."""
    queries, vocabulary = batch.embeddings.sparse, snapshot.spec.sparse
    if queries is None or vocabulary is None:
        raise missing_embeddings("sparse", snapshot)
    checked = []
    for number in range(len(queries)):
        terms, weights = queries[number]
        if np.any(weights < 0) or not np.isfinite(weights).all():
            raise InputError(f"query {number} has weights that are negative or not finite; they must be neither")
        positive = weights > 0
        query = SparseQuery(np.asarray(terms[positive], np.int32), np.asarray(weights[positive], np.float32))
        if len(query.terms) and query.terms[-1] >= vocabulary:
            raise InputError(
                f"query {number} has term {query.terms[-1]}, and the vocabulary of the index {vocabulary} terms; "
                f"encode both with one model"
            )
        checked.append(query)
    return checked


def multi_queries(snapshot: Snapshot, batch: QueryBatch) -> list[NDArray[np.float32]]:
    """The multi vectors of each query (rows, dim), checked."""
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


def missing_embeddings(kind: str, snapshot: Snapshot) -> ConfigError:
    present = [name for name in ("dense", "sparse", "multi") if getattr(snapshot.spec, name) is not None]
    return ConfigError(
        f"this search needs {kind} embeddings, but the index and its queries have {present or 'none'}; "
        f"choose another mode, or build the index with a model that has them"
    )

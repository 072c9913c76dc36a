"""Dense search: the inner product with every passage that is alive and allowed, or with those in the cells that are
nearest to the query."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from plait.codec.dense_ivf import DenseIvf
from plait.errors import ConfigError, InputError
from plait.scoring.dense import dot_rows
from plait.scoring.maxsim import top_k
from plait.search.filtering import Eligible, eligible, kept
from plait.search.ranking import QueryBatch, Ranking, merge
from plait.search.retriever import Allowed, Rows, by_document, candidate_rows, documents_of, missing_embeddings
from plait.search.trace import Stage, Trace
from plait.storage.segment import Segment, segment_errors
from plait.storage.store import Snapshot

# A block of dense rows is multiplied with many queries at a time; 8,192 rows of 384 floats are 12 MB.
DENSE_BLOCK = 8192
# From so many queries on, a product of matrices is faster than one query after another.
MANY_QUERIES = 4
SMALL = 4096  # passages of a segment that is ranked with others
COPIED = 4096  # passages of all such segments that are copied together


@dataclass(frozen=True, slots=True, kw_only=True)
class DenseConfig:
    n_probe: int | None = None  # cells that are read; None: as many as were measured to be needed

    def __post_init__(self) -> None:
        if self.n_probe is not None and self.n_probe < 1:
            raise ConfigError(f"n_probe is {self.n_probe}; at least one cell must be read")


@dataclass(frozen=True, slots=True)
class ExactDense:
    """Inner product of the query's vector with every passage's."""

    name: str = "dense"

    def generate(self, snapshot: Snapshot, batch: QueryBatch, k: int, allowed: Allowed, trace: Trace) -> list[Ranking]:
        del trace  # one stage, which the plan notes
        queries = dense_queries(snapshot, batch)
        found: list[list[Ranking]] = [[] for _ in queries]
        for segment, base, rows in candidate_rows(snapshot, allowed):
            _score_all(segment, base, rows, queries, k, found)
        return [merge(parts, k) for parts in found]


@dataclass(frozen=True, slots=True)
class ProbedDense:
    """The same score, for the passages in the cells nearest to the query. Segments without cells, and candidates that
    are few, are scored whole."""

    config: DenseConfig = DenseConfig()
    share_of_cells: float = 1.0  # of the cells that were measured to be needed: less for a list that is one of several
    exhaustive_below: int = 4096  # passages
    name: str = "dense"

    def generate(self, snapshot: Snapshot, batch: QueryBatch, k: int, allowed: Allowed, trace: Trace) -> list[Ranking]:
        queries, within = dense_queries(snapshot, batch), Trace()
        found: list[list[Ranking]] = [[] for _ in queries]
        parts = eligible(snapshot, allowed)
        small = kept(snapshot, allowed, "small dense parts", lambda: _SmallParts(parts))
        for part in small.others:
            cells = part.segment.dense_ivf if len(part) > max(self.exhaustive_below, k) else None
            if cells is None:
                _score_all(part.segment, part.base, part.rows, queries, k, found)
                continue
            search = _CellSearch(part, cells, k, self.config, self.share_of_cells)
            for query, own in zip(queries, found, strict=True):
                with within.stage("cells") as stage, segment_errors(part.segment, "dense"):
                    own.append(search.search(query, stage))
        small.score(queries, k, found)
        trace.add(within, under=self.name)
        return [merge(parts, k) for parts in found]


class _SmallParts:
    """Segments that are small and have no cells, as new ones are: ranked together, and copied into one array while
    they are few. A call for each would take longer than the products do."""

    def __init__(self, parts: Sequence[Eligible]) -> None:
        small = [part for part in parts if part.segment.dense_ivf_file is None and len(part) <= SMALL]
        self.others = [part for part in parts if part not in small]
        self._parts = small
        rows = [part.numbers for part in small]
        none = np.zeros(0, np.int64)
        self._docs = np.concatenate([none, *(part.segment.docs[own] for part, own in zip(small, rows, strict=True))])
        self._numbers = np.concatenate([none, *(part.base + own for part, own in zip(small, rows, strict=True))])
        self._one_each = bool(np.all(self._docs[1:] > self._docs[:-1]))  # passages of a document, in their order
        self._vectors: NDArray[np.float32] | None = None
        if 0 < len(self._docs) <= COPIED:
            copies = [_dense(part.segment)[own] for part, own in zip(small, rows, strict=True)]
            self._vectors = np.concatenate(copies)

    def score(self, queries: NDArray[np.float32], k: int, found: list[list[Ranking]]) -> None:
        """Adds a ranking for each query. What is below the k-th of one that is there is left out: most of it."""
        if not self._parts:
            return
        scores: Iterable[NDArray[np.float32]]
        if self._vectors is None:
            scores = np.concatenate([dense_scores(part.segment, part.rows, queries) for part in self._parts], axis=1)
        elif len(queries) < MANY_QUERIES:
            scores = [dot_rows(query, self._vectors) for query in queries]
        else:
            scores = queries @ self._vectors.T
        for own, passages in zip(found, scores, strict=True):
            least = max((float(there.scores[k - 1]) for there in own if len(there) >= k > 0), default=-np.inf)
            own.append(self._ranked(passages, k, least))

    def _ranked(self, scores: NDArray[np.float32], k: int, least: float) -> Ranking:
        if not self._one_each:
            return documents_of(self._docs, self._numbers, scores, k)
        high = np.flatnonzero(scores >= least)
        best = high[top_k(scores[high], k)]
        return Ranking(self._docs[best], scores[best], self._numbers[best])


class _CellSearch:
    """One segment in cells and the rows of it that may be found, for any number of queries."""

    def __init__(self, part: Eligible, cells: DenseIvf, k: int, config: DenseConfig, share_of_cells: float) -> None:
        self._segment, self._cells, self._base, self._k = part.segment, cells, part.base, k
        self._bits, self._asked = part.bits, config.n_probe
        self._share = len(part) / part.segment.n_rows
        self._share_of_cells = share_of_cells

    def search(self, query: NDArray[np.float32], stage: Stage) -> Ranking:
        """k documents, if the segment has as many: where too few come, more rows are asked for, or more cells read."""
        assert self._segment.dense is not None
        n_wanted, n_cells = self._k, len(self._cells.centroids)
        needed = self._asked or math.ceil(self._share_of_cells * self._cells.n_probe(self._k, share=self._share))
        n_probe = min(needed, n_cells)
        while True:
            rows, scores, n_read = self._cells.search(query, self._segment.dense, n_wanted, n_probe, self._bits)
            found = by_document(self._segment, self._base, rows, scores, self._k)
            enough = len(found) >= self._k
            if enough or (n_probe == n_cells and len(rows) < n_wanted):
                stage.counts.update(cells=n_probe, items=n_read)
                return found
            if len(rows) < n_wanted:
                n_probe = min(2 * n_probe, n_cells)
            else:
                n_wanted *= 2


def dense_queries(snapshot: Snapshot, batch: QueryBatch) -> NDArray[np.float32]:
    """The vector of each query, fit to be scored."""
    queries, dim = batch.embeddings.dense, snapshot.spec.dense
    if queries is None or dim is None:
        raise missing_embeddings("dense", snapshot)
    if queries.shape[1] != dim or not np.isfinite(queries).all():
        raise InputError(
            f"the queries have {queries.shape[1]} dimensions, the index {dim}; both must be encoded with one model, to "
            f"finite values"
        )
    return np.ascontiguousarray(queries, np.float32)


def _score_all(
    segment: Segment, base: int, rows: Rows, queries: NDArray[np.float32], k: int, found: list[list[Ranking]]
) -> None:
    for own, passages in zip(found, dense_scores(segment, rows, queries), strict=True):
        own.append(by_document(segment, base, rows, passages, k))


def dense_scores(segment: Segment, rows: Rows, queries: NDArray[np.float32]) -> NDArray[np.float32]:
    """(queries, rows) inner products; mapped vectors are never copied whole."""
    vectors = _dense(segment)
    if len(queries) < MANY_QUERIES:
        return np.stack([dot_rows(query, vectors, rows) for query in queries])
    n_rows = segment.n_rows if rows is None else len(rows)
    scores = np.empty((len(queries), n_rows), np.float32)
    for start in range(0, n_rows, DENSE_BLOCK):
        stop = min(start + DENSE_BLOCK, n_rows)
        block = vectors[start:stop] if rows is None else vectors[rows[start:stop]]
        np.matmul(queries, block.T, out=scores[:, start:stop])
    return scores


def _dense(segment: Segment) -> NDArray[np.float32]:
    assert segment.dense is not None
    return segment.dense

"""Dense search: the inner product of the query's vector with every passage's, or with those of the nearest cells.

Mode `dense`. Also the rescorer of dense vectors, and one mean vector for each document.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from plait.codec.dense_ivf import DenseIvf
from plait.deadline import check_deadline
from plait.scoring.dense import dot_rows
from plait.scoring.maxsim import top_k
from plait.search.filtering import DocFilter, Rows, SegmentRows, or_everything
from plait.search.fusion import WeightedSum
from plait.search.modes import Mode, PlanContext, register
from plait.search.params import check_choice, check_counts, check_types
from plait.search.plan import DEFAULT_DEPTH, Plan
from plait.search.query import QueryBatch, dense_queries
from plait.search.ranking import Ranking, merge
from plait.search.retriever import (
    MAX,
    PASSAGES,
    TOP3,
    Retriever,
    Scorer,
    rank_documents,
    rank_rows,
    rank_segment,
    score_documents,
)
from plait.search.trace import Stage, Trace
from plait.storage.segment import Segment, segment_errors
from plait.storage.snapshot import Snapshot

# Rows that are multiplied with many queries at a time: 8,192 rows of 384 floats are 12 MB.
BLOCK_ROWS = 8192
# Queries from which on one product of matrices is faster than one query after another.
MIN_MATMUL_QUERIES = 4
MAX_SMALL = 4096  # passages up to which a segment without cells is ranked together with others
MAX_COPIED = 4096  # passages up to which the vectors of all such segments are copied into one array


@dataclass(frozen=True, slots=True, kw_only=True)
class DenseParams:
    """Parameters of mode `dense`."""

    n_probe: int | None = None  # cells to read in each segment; None: as many as its recall was measured to need
    passages: str = MAX  # how passages make the score of their document: "max" or "top3"

    def __post_init__(self) -> None:
        check_types(self)
        check_counts(self, "n_probe")
        check_choice("passages", self.passages, PASSAGES)


@dataclass(frozen=True, slots=True)
class ExactDense:
    """Scores every passage."""

    name: str = "dense"
    needs_encoder: ClassVar[bool] = True
    reads_text: ClassVar[bool] = False

    def retrieve(
        self, snapshot: Snapshot, batch: QueryBatch, k: int, doc_filter: DocFilter | None, trace: Trace
    ) -> list[Ranking]:
        del trace  # one stage, which the plan records
        queries = dense_queries(snapshot, batch)
        rankings: list[list[Ranking]] = [[] for _ in queries]
        for part in or_everything(snapshot, doc_filter).segment_rows:
            check_deadline()
            _score_all(part, queries, k, rankings)
        return [merge(parts, k) for parts in rankings]


@dataclass(frozen=True, slots=True)
class ProbedDense:
    """Scores the passages of the cells nearest to the query. Segments without cells, and few passages, are scored
    whole."""

    n_probe: int | None = None  # None: as many cells as the segment's recall was measured to need
    share_of_cells: float = 1.0  # of those: less for a list that is one of several
    exhaustive_below: int = 4096  # passages
    name: str = "dense"
    probes: ClassVar[bool] = True
    needs_encoder: ClassVar[bool] = True
    reads_text: ClassVar[bool] = False

    def retrieve(
        self, snapshot: Snapshot, batch: QueryBatch, k: int, doc_filter: DocFilter | None, trace: Trace
    ) -> list[Ranking]:
        queries, within = dense_queries(snapshot, batch), Trace()
        rankings: list[list[Ranking]] = [[] for _ in queries]
        small = or_everything(snapshot, doc_filter).derived("small dense segments", _SmallSegments)
        for part in small.others:
            check_deadline()
            cells = part.segment.dense_ivf if len(part) > max(self.exhaustive_below, k) else None
            if cells is None:
                _score_all(part, queries, k, rankings)
                continue
            search = _CellSearch(part, cells, k, self.n_probe, self.share_of_cells)
            for query, parts in zip(queries, rankings, strict=True):
                with within.stage("cells") as stage, segment_errors(part.segment, "dense"):
                    parts.append(search.search(query, stage))
        small.score(queries, k, rankings)
        trace.add(within, under=self.name)
        return [merge(parts, k) for parts in rankings]


@dataclass(frozen=True, slots=True)
class DenseRescorer:
    name: str = "dense"
    needs_encoder: ClassVar[bool] = True
    reads_text: ClassVar[bool] = False

    def scorer(self, snapshot: Snapshot, batch: QueryBatch, passages: str, trace: Trace) -> Scorer:
        del trace
        vectors = batch.embeddings.dense
        assert vectors is not None

        def score(number: int, docs: NDArray[np.int64]) -> Ranking:
            query = vectors[number : number + 1]
            return score_documents(
                snapshot, docs, lambda segment, rows: dense_scores(segment, rows, query)[0], passages
            )

        return score


class _SmallSegments:
    """Small segments without cells, as new ones are: ranked together, and their vectors copied into one array while
    they are few. A call for each segment would take longer than the products."""

    def __init__(self, parts: Sequence[SegmentRows]) -> None:
        small = [part for part in parts if part.segment.dense_ivf_file is None and len(part) <= MAX_SMALL]
        self.others = [part for part in parts if part not in small]
        self._parts = small
        none = np.zeros(0, np.int64)
        self._docs = np.concatenate([none, *(part.docs for part in small)])
        self._numbers = np.concatenate([none, *(part.base + part.numbers for part in small)])
        self._one_passage_each = bool(np.all(self._docs[1:] > self._docs[:-1]))
        self._vectors: NDArray[np.float32] | None = None
        if 0 < len(self._docs) <= MAX_COPIED:
            self._vectors = np.concatenate([_dense(part.segment)[part.numbers] for part in small])

    def score(self, queries: NDArray[np.float32], k: int, rankings: list[list[Ranking]]) -> None:
        """Adds a ranking for each query. Passages below the k-th of another segment's ranking are left out."""
        if not self._parts:
            return
        scores: Iterable[NDArray[np.float32]]
        if self._vectors is None:
            scores = np.concatenate([dense_scores(part.segment, part.rows, queries) for part in self._parts], axis=1)
        elif len(queries) < MIN_MATMUL_QUERIES:
            scores = [dot_rows(query, self._vectors) for query in queries]
        else:
            scores = queries @ self._vectors.T
        for parts, row_scores in zip(rankings, scores, strict=True):
            least = max((float(part.scores[k - 1]) for part in parts if len(part) >= k > 0), default=-np.inf)
            parts.append(self._rank(row_scores, k, least))

    def _rank(self, scores: NDArray[np.float32], k: int, least: float) -> Ranking:
        if not self._one_passage_each:
            return rank_documents(self._docs, self._numbers, scores, k)
        high = np.flatnonzero(scores >= least)
        best = high[top_k(scores[high], k)]
        return Ranking(self._docs[best], scores[best], self._numbers[best])


class _CellSearch:
    """One segment with cells and its rows that may be found, for any number of queries."""

    def __init__(self, part: SegmentRows, cells: DenseIvf, k: int, n_probe: int | None, share_of_cells: float) -> None:
        self._segment, self._cells, self._base, self._k = part.segment, cells, part.base, k
        self._bits, self._n_probe = part.bits, n_probe
        self._share = len(part) / part.segment.n_rows
        self._share_of_cells = share_of_cells

    def search(self, query: NDArray[np.float32], stage: Stage) -> Ranking:
        """k documents, if the segment has as many: while there are too few, more rows are asked for or more cells are
        read."""
        assert self._segment.dense is not None
        n_wanted, n_cells = self._k, len(self._cells.centroids)
        needed = self._n_probe or math.ceil(self._share_of_cells * self._cells.n_probe(self._k, share=self._share))
        n_probe = min(needed, n_cells)
        while True:
            rows, scores, n_read = self._cells.search(query, self._segment.dense, n_wanted, n_probe, self._bits)
            ranking = rank_rows(self._segment, self._base, rows, scores, self._k)
            enough = len(ranking) >= self._k
            if enough or (n_probe == n_cells and len(rows) < n_wanted):
                stage.counts.update(cells=n_probe, items=n_read)
                return ranking
            if len(rows) < n_wanted:
                n_probe = min(2 * n_probe, n_cells)
            else:
                n_wanted *= 2


def _score_all(part: SegmentRows, queries: NDArray[np.float32], k: int, rankings: list[list[Ranking]]) -> None:
    for parts, scores in zip(rankings, dense_scores(part.segment, part.rows, queries), strict=True):
        parts.append(rank_segment(part, scores, k))


def dense_scores(segment: Segment, rows: Rows, queries: NDArray[np.float32]) -> NDArray[np.float32]:
    """(queries, rows) inner products; mapped vectors are never copied whole."""
    vectors = _dense(segment)
    if len(queries) < MIN_MATMUL_QUERIES:
        return np.stack([dot_rows(query, vectors, rows) for query in queries])
    n_rows = segment.n_rows if rows is None else len(rows)
    scores = np.empty((len(queries), n_rows), np.float32)
    for start in range(0, n_rows, BLOCK_ROWS):
        stop = min(start + BLOCK_ROWS, n_rows)
        block = vectors[start:stop] if rows is None else vectors[rows[start:stop]]
        np.matmul(queries, block.T, out=scores[:, start:stop])
    return scores


def document_vectors(snapshot: Snapshot) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """All documents, ascending, and for each the mean of its passages' dense vectors."""
    numbers, vectors = [], []
    for segment in snapshot.segments:
        assert segment.dense is not None
        rows = np.arange(segment.n_rows) if segment.live is None else np.flatnonzero(segment.live)
        if not len(rows):
            continue
        docs = segment.docs[rows]
        starts = np.flatnonzero(np.concatenate(([True], docs[1:] != docs[:-1])))
        counts = np.diff(np.append(starts, len(docs)))
        sums = np.add.reduceat(segment.dense[rows].astype(np.float32), starts, axis=0)
        numbers.append(docs[starts])
        vectors.append((sums / counts[:, None]).astype(np.float32))
    if not numbers:
        return np.zeros(0, np.int64), np.zeros((0, snapshot.spec.dense or 0), np.float32)
    order = np.argsort(np.concatenate(numbers), kind="stable")
    return np.concatenate(numbers)[order], np.concatenate(vectors)[order]


def _dense(segment: Segment) -> NDArray[np.float32]:
    assert segment.dense is not None
    return segment.dense


def _build(context: PlanContext, params: DenseParams) -> Plan:
    retriever: Retriever = ExactDense() if context.exact else ProbedDense(params.n_probe)
    k = context.k or DEFAULT_DEPTH
    if params.passages == TOP3:
        # The retriever finds documents by their best passages; the rescorer then scores all their passages.
        return Plan((retriever,), k, WeightedSum(), rescorers=(DenseRescorer(),), passages=TOP3)
    return Plan((retriever,), k)


register(
    Mode(
        name="dense",
        summary="one vector a passage, inner product",
        needs=("dense",),
        params=DenseParams,
        exact=True,
        build=_build,
    )
)

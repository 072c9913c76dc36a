"""Sparse search: the inner product of weighted terms, over an inverted index. Exact unless `reach` is below 1.

Mode `sparse`, and the rescorer of sparse vectors.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from plait.errors import ConfigError
from plait.scoring.sparse import SparseQuery, best_rows, score_rows
from plait.search.filtering import RARE, DocFilter, SegmentRows, or_everything, rows_of_documents
from plait.search.fusion import WeightedSum
from plait.search.modes import Mode, PlanContext, register
from plait.search.params import check_choice, check_types
from plait.search.plan import DEFAULT_DEPTH, Plan
from plait.search.query import QueryBatch, sparse_queries
from plait.search.ranking import Ranking, merge
from plait.search.retriever import MAX, PASSAGES, TOP3, Scorer, rank_rows
from plait.search.trace import Stage, Trace
from plait.storage.snapshot import Snapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class SparseParams:
    """Parameters of mode `sparse`."""

    reach: float = 1.0  # factor of the upper bound on a row's remaining score; below 1 rows are skipped earlier
    passages: str = MAX  # how passages make the score of their document: "max" or "top3"

    def __post_init__(self) -> None:
        check_types(self)
        if not 0 < self.reach <= 1:
            raise ConfigError(f"reach is {self.reach}; it must be above 0 and at most 1, which is exact")
        check_choice("passages", self.passages, PASSAGES)


@dataclass(frozen=True, slots=True)
class Sparse:
    """Sum over shared terms of the weight in the query times the weight in the passage. Passages that share no term
    are not found."""

    reach: float = 1.0
    name: str = "sparse"
    needs_encoder: ClassVar[bool] = True
    reads_text: ClassVar[bool] = False

    @property
    def probes(self) -> bool:
        """Whether what it finds may depend on k."""
        return self.reach < 1

    def retrieve(
        self, snapshot: Snapshot, batch: QueryBatch, k: int, doc_filter: DocFilter | None, trace: Trace
    ) -> list[Ranking]:
        queries, within = sparse_queries(snapshot, batch), Trace()
        rankings: list[list[Ranking]] = [[] for _ in queries]
        for part in or_everything(snapshot, doc_filter).segment_rows:
            for query, parts in zip(queries, rankings, strict=True):
                with within.stage("postings") as stage:
                    parts.append(self._search(part, query, k, stage))
        trace.add(within, under=self.name)
        return [merge(parts, k) for parts in rankings]

    def _search(self, part: SegmentRows, query: SparseQuery, k: int, stage: Stage) -> Ranking:
        """k documents, if as many share a term: while the best passages are of too few documents, more are asked
        for."""
        segment = part.segment
        assert segment.sparse is not None
        if RARE * len(part) < segment.n_rows:
            return _rank_all(part, query, k, MAX)
        n_wanted = k
        while True:
            best = best_rows(segment.sparse, query, n_wanted, allowed=part.bits, reach=self.reach)
            order = np.argsort(best.rows)
            ranking = rank_rows(segment, part.base, best.rows[order], best.scores[order], k)
            if len(ranking) >= k or len(best.rows) < n_wanted:
                counts = {"items": len(best.rows), "windows": best.n_windows, "postings": best.n_postings}
                stage.counts.update(counts)
                return ranking
            n_wanted *= 2


@dataclass(frozen=True, slots=True)
class SparseRescorer:
    name: str = "sparse"
    needs_encoder: ClassVar[bool] = True
    reads_text: ClassVar[bool] = False

    def scorer(self, snapshot: Snapshot, batch: QueryBatch, passages: str, trace: Trace) -> Scorer:
        del trace
        queries = sparse_queries(snapshot, batch)

        def score(number: int, docs: NDArray[np.int64]) -> Ranking:
            parts = rows_of_documents(snapshot.segments, docs)
            return merge([_rank_all(part, queries[number], len(docs), passages) for part in parts], len(docs))

        return score

    def bound(self, snapshot: Snapshot, batch: QueryBatch, number: int) -> float:
        return _bound(snapshot, batch, number)

    def highest(self, snapshot: Snapshot, batch: QueryBatch, number: int) -> float:
        return _bound(snapshot, batch, number)


def _bound(snapshot: Snapshot, batch: QueryBatch, number: int) -> float:
    """The largest score that a passage of the index can have: that of one with every term of the query at its largest
    weight in the index."""
    query = sparse_queries(snapshot, batch)[number]
    return float((sparse_peaks(snapshot, query) * query.weights).sum()) or 1.0


def sparse_peaks(snapshot: Snapshot, query: SparseQuery) -> NDArray[np.float64]:
    """The largest weight of each term of the query in the index; 0 for a term that no passage has."""
    peaks = np.zeros(len(query.terms), np.float64)
    for segment in snapshot.segments:
        if segment.sparse is not None and len(segment.sparse.terms):
            terms = segment.sparse.terms
            at = np.minimum(np.searchsorted(terms, query.terms), len(terms) - 1)
            peaks = np.maximum(peaks, np.where(terms[at] == query.terms, segment.sparse.peaks[at], 0.0))
    return peaks


def _rank_all(part: SegmentRows, query: SparseQuery, k: int, passages: str) -> Ranking:
    """The k best documents of these rows, each of which is scored; rows that share no term are left out."""
    assert part.segment.sparse is not None
    rows = part.numbers
    scores = score_rows(part.segment.sparse, query, rows)
    shared = scores > 0
    return rank_rows(part.segment, part.base, rows[shared], scores[shared], k, passages=passages)


def _build(context: PlanContext, params: SparseParams) -> Plan:
    retriever, k = Sparse(params.reach), context.k or DEFAULT_DEPTH
    if params.passages == TOP3:
        # The retriever finds documents by their best passages; the rescorer then scores all their passages.
        return Plan((retriever,), k, WeightedSum(), rescorers=(SparseRescorer(),), passages=TOP3)
    return Plan((retriever,), k)


register(
    Mode(
        name="sparse",
        summary="weighted terms, inner product",
        needs=("sparse",),
        params=SparseParams,
        exact=True,
        build=_build,
    )
)

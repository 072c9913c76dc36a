"""MaxSim of given passages, compressed or not: exact multi-vector search, and the rescorer of multi vectors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from plait.deadline import check_deadline
from plait.scoring.maxsim import maxsim
from plait.search.filtering import DocFilter, Rows, or_everything
from plait.search.multivector.query import CentroidScores, MultiVectorQuery
from plait.search.query import QueryBatch, multi_queries
from plait.search.ranking import Ranking, merge
from plait.search.retriever import Scorer, rank_segment, score_documents
from plait.search.trace import Trace
from plait.storage.segment import Segment, segment_errors
from plait.storage.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class ExactMulti:
    """MaxSim of every passage: the sum over the query's vectors of the best inner product with a vector of the passage,
    in the precision that is stored."""

    name: str = "multi"
    n_threads: int = 1
    needs_encoder: ClassVar[bool] = True
    reads_text: ClassVar[bool] = False

    def retrieve(
        self, snapshot: Snapshot, batch: QueryBatch, k: int, doc_filter: DocFilter | None, trace: Trace
    ) -> list[Ranking]:
        queries, within = multi_queries(snapshot, batch), Trace()
        rankings: list[list[Ranking]] = [[] for _ in queries]
        for part in or_everything(snapshot, doc_filter).segment_rows:
            for query, parts in zip(queries, rankings, strict=True):
                scores = score_passages(part.segment, part.rows, query, self.n_threads, within)
                parts.append(rank_segment(part, scores, k))
        trace.add(within, under=self.name)
        return [merge(parts, k) for parts in rankings]


@dataclass(frozen=True, slots=True)
class MultiRescorer:
    name: str = "multi"
    n_threads: int = 1
    needs_encoder: ClassVar[bool] = True
    reads_text: ClassVar[bool] = False

    def scorer(self, snapshot: Snapshot, batch: QueryBatch, passages: str, trace: Trace) -> Scorer:
        queries = multi_queries(snapshot, batch)

        def score(number: int, docs: NDArray[np.int64]) -> Ranking:
            query = queries[number]

            def score_segment(segment: Segment, rows: Rows) -> NDArray[np.float32]:
                if segment.coded is None:
                    return score_passages(segment, rows, query, self.n_threads, trace)
                with segment_errors(segment):
                    centroids = batch.centroid_scores(number, query, segment.coded.codec.codebook, trace)
                return score_passages(segment, rows, query, self.n_threads, trace, centroids)

            return score_documents(snapshot, docs, score_segment, passages)

        return score


def score_passages(
    segment: Segment,
    rows: Rows,
    query: NDArray[np.float32],
    n_threads: int,
    trace: Trace,
    centroids: CentroidScores | None = None,
) -> NDArray[np.float32]:
    """MaxSim of each of these rows, by the finest codes or by float vectors. `centroids` are used if they are known."""
    check_deadline()
    if segment.coded is not None:
        with segment_errors(segment):
            coded_query = MultiVectorQuery(query, segment.coded, trace, centroids=centroids)
            return coded_query.scores(rows, n_threads=n_threads)
    assert segment.multi is not None
    with trace.stage("floats") as stage:
        scores = maxsim(query, segment.multi, items=rows, n_threads=n_threads)
        offsets = segment.multi.offsets
        n_vectors = int(offsets[-1] if rows is None else (offsets[rows + 1] - offsets[rows]).sum())
        n_bytes = n_vectors * segment.multi.dim * segment.multi.values.itemsize
        stage.counts.update(items=len(scores), rows=n_vectors, bytes=n_bytes)
    return scores


def passages_for(k: int, snapshot: Snapshot) -> int:
    """How many passages to ask for to get k documents: more than k where documents have several."""
    return k if snapshot.n_rows == snapshot.n_documents else 2 * k

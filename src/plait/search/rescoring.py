"""Modes `dense-then-multi` and `bm25-then-multi`: one retriever finds documents, MaxSim ranks them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from plait.search.bm25 import Bm25
from plait.search.dense import ProbedDense
from plait.search.filtering import DocFilter, rows_of_documents
from plait.search.modes import Mode, PlanContext, register
from plait.search.multivector.passages import score_passages
from plait.search.params import check_counts, check_types
from plait.search.plan import DEFAULT_DEPTH, Plan
from plait.search.query import QueryBatch, multi_queries
from plait.search.ranking import Ranking, merge
from plait.search.retriever import Retriever, rank_segment
from plait.search.trace import Trace
from plait.storage.snapshot import Snapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class RescoreParams:
    """Parameters of `dense-then-multi` and `bm25-then-multi`."""

    n_candidates: int = 200  # documents that the first retriever finds; k, if that is more

    def __post_init__(self) -> None:
        check_types(self)
        check_counts(self, "n_candidates")


@dataclass(frozen=True, slots=True)
class RescoredMulti:
    """MaxSim of the documents that another retriever found: over codes, or over float vectors that have none."""

    first: Retriever
    n_candidates: int
    name: str = "multi"
    n_threads: int = 1
    needs_encoder: ClassVar[bool] = True

    @property
    def reads_text(self) -> bool:
        return self.first.reads_text

    def retrieve(
        self, snapshot: Snapshot, batch: QueryBatch, k: int, doc_filter: DocFilter | None, trace: Trace
    ) -> list[Ranking]:
        queries, within = multi_queries(snapshot, batch), Trace()
        with trace.stage(self.first.name) as stage:
            candidates = self.first.retrieve(snapshot, batch, max(k, self.n_candidates), doc_filter, trace)
            stage.counts["items"] = sum(len(ranking) for ranking in candidates)
        rankings = []
        for query, first in zip(queries, candidates, strict=True):
            order = np.argsort(first.docs)
            docs = first.docs[order]
            parts = [
                rank_segment(part, score_passages(part.segment, part.rows, query, self.n_threads, within), k)
                for part in rows_of_documents(snapshot.segments, docs)
            ]
            ranking = merge(parts, k)
            first_scores = first.scores[order][np.searchsorted(docs, ranking.docs)]
            rankings.append(Ranking(ranking.docs, ranking.scores, ranking.rows, {self.first.name: first_scores}))
        trace.add(within, under=self.name)
        return rankings


def _plan(first: Retriever, context: PlanContext, params: RescoreParams) -> Plan:
    return Plan((RescoredMulti(first, params.n_candidates, n_threads=context.n_threads),), context.k or DEFAULT_DEPTH)


register(
    Mode(
        name="dense-then-multi",
        summary="the list of dense, ranked by MaxSim",
        needs=("dense", "multi"),
        params=RescoreParams,
        build=lambda context, params: _plan(ProbedDense(), context, params),
    )
)
register(
    Mode(
        name="bm25-then-multi",
        summary="the list of BM25, ranked by MaxSim",
        needs=("bm25", "multi"),
        params=RescoreParams,
        build=lambda context, params: _plan(Bm25(), context, params),
    )
)

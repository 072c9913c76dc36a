"""plait's multi-vector search, mode `multi`: four stages, each on fewer passages. Searches, tuning and comparisons all
run the same `PlaitSearch`.

0. Every centroid is scored with every query vector (`CentroidScores`).
1. Each query vector reads the postings of its `n_probe` best cells. A passage's score is the sum over query vectors of
   its best cell that was read, or of the best cell that was not. The best `n_candidates` go on.
2. MaxSim as if every vector were its centroid. The best `n_code_scored` go on.
3. MaxSim over the codes of the vectors whose centroid is within `prune_margin` of the best. `n_rescored` go on.
4. MaxSim over all vectors, by 8-bit codes if there are any.

Each stage costs about ten times as much for a passage as the stage before, and sees a tenth of the passages. Segments
of one codec are searched together: each stage keeps the best of all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, TypeVar

import numpy as np
from numpy.typing import NDArray

from plait.scoring.maxsim import maxsim
from plait.scoring.maxsim import top_k as top_k_floats
from plait.scoring.residual import top_k
from plait.search.filtering import DocFilter
from plait.search.fusion import WeightedSum
from plait.search.modes import Mode, PlanContext, register
from plait.search.multivector.passages import ExactMulti, MultiRescorer, passages_for, score_passages
from plait.search.multivector.probe import ProbeParams, ResolvedProbe, resolve_probe
from plait.search.multivector.query import CentroidScores, MultiVectorQuery
from plait.search.multivector.segment_group import (
    CodedPart,
    RowNumbers,
    SegmentGroup,
    UncompressedParts,
    segment_groups,
)
from plait.search.plan import DEFAULT_DEPTH, Plan
from plait.search.query import QueryBatch, multi_queries
from plait.search.ranking import Ranking, merge
from plait.search.retriever import TOP3, Retriever, rank_documents, rank_segment
from plait.search.trace import Trace
from plait.storage.snapshot import Snapshot

T = TypeVar("T", bound=np.generic)

MIN_PROBED = 1024  # passages up to which all are scored: measured, see the tuning page
CANDIDATES_PER_PASSAGE = 4  # at least, for each passage to return


@dataclass(frozen=True, slots=True, eq=False)
class FoundPassages:
    """The passages that are left after the last stage, by part: first the compressed parts, then the others."""

    rows: list[RowNumbers]
    scores: list[NDArray[np.float32]]

    def __len__(self) -> int:
        return sum(map(len, self.rows))

    def top(self, k: int) -> tuple[RowNumbers, NDArray[np.float32]]:
        """The rows and scores of the k best passages of a single part, best first."""
        (rows,), (scores,) = self.rows, self.scores
        best = top_k_floats(scores, k)
        return rows[best], scores[best]


class PlaitSearch:
    """One query against the parts of a group, at least one of which is compressed."""

    def __init__(
        self,
        query: NDArray[np.float32],
        coded: Sequence[CodedPart],
        uncompressed: UncompressedParts | None = None,
        trace: Trace | None = None,
        *,
        centroids: CentroidScores | None = None,
    ) -> None:
        """`centroids` are those of the same query and codec, if another stage of the search computed them."""
        self._query, self._coded, self._uncompressed = query, coded, uncompressed
        self._trace = trace if trace is not None else Trace()
        with coded[0].guard:
            if centroids is None:
                centroids = CentroidScores(query, coded[0].items.codec.codebook, self._trace)
            self.queries = [MultiVectorQuery(query, part.items, self._trace, centroids=centroids) for part in coded]

    @property
    def n_cells(self) -> int:
        return len(self.queries[0].table)

    def passages(self, probe: ResolvedProbe, n_wanted: int) -> FoundPassages:
        """At least `n_wanted` passages with their scores, if the stages find as many."""
        if probe.skip_cells:
            candidates = [part.numbers for part in self._coded]
        else:
            n_candidates = max(probe.n_candidates, CANDIDATES_PER_PASSAGE * n_wanted)
            candidates, _ = self.read_cells(probe.n_probe, n_candidates)
        coded, uncompressed = self._keep_by_centroids(candidates, max(probe.n_code_scored, n_wanted))
        coded = self._keep_by_codes(coded, max(probe.n_rescored, n_wanted), probe.prune_margin)
        scores = [*self._score_coded(coded), *self._score_uncompressed(uncompressed)]
        return FoundPassages([*coded, *uncompressed], scores)

    def read_cells(self, n_probe: int, n_candidates: int) -> tuple[list[RowNumbers], list[NDArray[np.int32]]]:
        """Stage 1: of each compressed part, the best rows of the cells that are read, ascending, and their scores."""
        rows, sums = [], []
        for part, query in zip(self._coded, self.queries, strict=True):
            with part.guard:
                part_rows, part_sums = query.read_cells(n_probe, n_candidates, part.allowed_bits)
            rows.append(part_rows.astype(np.int64))
            sums.append(part_sums)
        if sum(map(len, rows)) <= n_candidates:
            return rows, sums
        best = np.argsort(-np.concatenate(sums).astype(np.int64), kind="stable")[:n_candidates]
        return split_selection(rows, best), split_selection(sums, best)

    def _keep_by_centroids(self, coded: list[RowNumbers], n_keep: int) -> tuple[list[RowNumbers], list[RowNumbers]]:
        """Stage 2: of the candidates and of all passages that are not compressed, the best by their centroids."""
        uncompressed = self._uncompressed
        rows = coded if uncompressed is None else [*coded, *uncompressed.rows]
        if sum(map(len, rows)) > n_keep:
            scores = []
            for part, query, part_rows in zip(self._coded, self.queries, coded, strict=True):
                with part.guard:
                    scores.append(query.centroid_scores(part_rows))
            if uncompressed is not None:
                query = self.queries[0]
                scores.append(query.centroid_scores_of(uncompressed.cells, uncompressed.begins, uncompressed.ends))
            rows = split_selection(rows, top_k(np.concatenate(scores), n_keep))
        return rows[: len(coded)], rows[len(coded) :]

    def _keep_by_codes(self, coded: list[RowNumbers], n_keep: int, prune_margin: float) -> list[RowNumbers]:
        """Stage 3: of the compressed passages, the best by the codes of the vectors that are not pruned."""
        if sum(map(len, coded)) <= n_keep:
            return coded
        scores = []
        for part, query, part_rows in zip(self._coded, self.queries, coded, strict=True):
            with part.guard:
                scores.append(query.pruned_code_scores(part_rows, prune_margin))
        return split_selection(coded, top_k_floats(np.concatenate(scores), n_keep))

    def _score_coded(self, coded: list[RowNumbers]) -> list[NDArray[np.float32]]:
        """Stage 4."""
        scores = [np.zeros(0, np.float32)] * len(coded)
        for number, (part, query, rows) in enumerate(zip(self._coded, self.queries, coded, strict=True)):
            if len(rows):
                with part.guard:
                    scores[number] = query.scores(rows)
        return scores

    def _score_uncompressed(self, uncompressed: list[RowNumbers]) -> list[NDArray[np.float32]]:
        """Stage 4 for passages that are not compressed: MaxSim over their float vectors."""
        scores = [np.zeros(0, np.float32)] * len(uncompressed)
        if self._uncompressed is None or not any(map(len, uncompressed)):
            return scores
        with self._trace.stage("floats") as stage:
            for number, (vectors, rows) in enumerate(zip(self._uncompressed.vectors, uncompressed, strict=True)):
                if len(rows):
                    scores[number] = maxsim(self._query, vectors, items=rows)
            stage.counts["items"] = sum(map(len, uncompressed))
        return scores


@dataclass(frozen=True, slots=True)
class ProbedMulti:
    """MaxSim of the passages that the stages lead to. Where nothing is compressed, or the passages are few, all are
    scored: below some thousands that is as fast."""

    probe: ResolvedProbe
    exhaustive_below: int = MIN_PROBED  # passages
    probes: ClassVar[bool] = True
    name: str = "multi"
    n_threads: int = 1
    needs_encoder: ClassVar[bool] = True
    reads_text: ClassVar[bool] = False

    def retrieve(
        self, snapshot: Snapshot, batch: QueryBatch, k: int, doc_filter: DocFilter | None, trace: Trace
    ) -> list[Ranking]:
        queries, within = multi_queries(snapshot, batch), Trace()
        rankings: list[list[Ranking]] = [[] for _ in queries]
        n_first = passages_for(k, snapshot)
        min_probed = max(self.exhaustive_below, n_first)
        for group in segment_groups(snapshot, doc_filter):
            probe = self.probe.under_filter(len(group), group.n_rows)
            n_compared = group.n_rows if probe.skip_cells else len(group)
            probed = bool(group.coded) and not probe.exhaustive and n_compared > min_probed
            for number, (query, parts) in enumerate(zip(queries, rankings, strict=True)):
                if not probed:
                    for part in group.parts:
                        scores = score_passages(part.segment, part.rows, query, self.n_threads, within)
                        parts.append(rank_segment(part, scores, k))
                    continue
                with group.coded[0].guard:
                    codebook = group.coded[0].items.codec.codebook
                    centroids = batch.centroid_scores(number, query, codebook, within)
                search = PlaitSearch(query, group.coded, group.uncompressed, within, centroids=centroids)
                parts.append(_search_documents(group, search, probe, k, n_first))
        trace.add(within, under=self.name)
        return [merge(parts, k) for parts in rankings]


def _search_documents(group: SegmentGroup, search: PlaitSearch, probe: ResolvedProbe, k: int, n_first: int) -> Ranking:
    """k documents, if the group has as many: while there are too few, more passages are asked for or more cells are
    read."""
    n_wanted = n_first
    while True:
        passages = search.passages(probe, n_wanted)
        ranking = _rank(group, passages, k)
        if len(ranking) >= k or len(ranking) == group.n_documents:
            return ranking
        if len(passages) >= n_wanted:
            n_wanted *= 2
        elif probe.skip_cells or probe.n_probe >= search.n_cells:
            return ranking
        else:
            probe = replace(probe, n_probe=2 * probe.n_probe)


def _rank(group: SegmentGroup, passages: FoundPassages, k: int) -> Ranking:
    """The k best documents of these passages."""
    parts = [
        (part, rows, scores)
        for part, rows, scores in zip(group.parts, passages.rows, passages.scores, strict=True)
        if len(rows)
    ]
    if not parts:
        return rank_documents(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, np.float32), k)
    return rank_documents(
        np.concatenate([part.segment.docs[rows] for part, rows, _ in parts]),
        np.concatenate([part.base + rows for part, rows, _ in parts]),
        np.concatenate([scores for _, _, scores in parts]),
        k,
    )


def split_selection(arrays: Sequence[NDArray[T]], positions: RowNumbers) -> list[NDArray[T]]:
    """Of several arrays, the elements at these positions of all arrays together; each array keeps its order."""
    positions = np.sort(positions)
    if len(arrays) == 1:
        return [arrays[0][positions]]
    ends = np.cumsum([len(array) for array in arrays])
    cuts = np.searchsorted(positions, ends)
    starts = [0, *cuts[:-1]]
    return [
        array[positions[start:cut] - (end - len(array))]
        for array, start, cut, end in zip(arrays, starts, cuts, ends, strict=True)
    ]


def _build(context: PlanContext, params: ProbeParams) -> Plan:
    k = context.k or DEFAULT_DEPTH
    if context.exact:
        retriever: Retriever = ExactMulti(n_threads=context.n_threads)
    else:
        n_documents = max(k, DEFAULT_DEPTH) if params.passages == TOP3 else k
        probe = resolve_probe(params, n_passages=context.n_passages, k=n_documents, tuned=context.tuned)
        # A caller who sets how to probe wants it done on a small index too.
        exhaustive_below = 0 if probe.fixed else MIN_PROBED
        retriever = ProbedMulti(probe, exhaustive_below, n_threads=context.n_threads)
    if params.passages == TOP3:
        # The retriever finds documents by their best passages; the rescorer then scores all their passages.
        rescorer = MultiRescorer(n_threads=context.n_threads)
        return Plan((retriever,), k, WeightedSum(), rescorers=(rescorer,), passages=TOP3)
    return Plan((retriever,), k)


register(
    Mode(
        name="multi",
        summary="many vectors a passage, late interaction (MaxSim)",
        needs=("multi",),
        params=ProbeParams,
        exact=True,
        exact_candidates=True,
        build=_build,
    )
)

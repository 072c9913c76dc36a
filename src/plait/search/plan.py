"""`Plan`: retrievers, rescorers, a fusion and score smoothing, with every number settled. `resolve` in `modes.py` makes
it; `run` only runs it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from plait.deadline import check_deadline
from plait.embeddings import Embeddings
from plait.errors import ConfigError
from plait.search import smoothing
from plait.search.filtering import DocFilter
from plait.search.fusion import BoundedSum, Fusion, ReciprocalRank
from plait.search.names import lift
from plait.search.query import QueryBatch
from plait.search.ranking import UNKNOWN_ROW, Ranking, merge
from plait.search.retriever import MAX, Bounded, Rescorer, Retriever, Scorer
from plait.search.smoothing import VectorsOf, dense_vectors
from plait.search.text_query import restrict
from plait.search.trace import Trace
from plait.storage import verification
from plait.storage.snapshot import Snapshot

DEFAULT_DEPTH = 100
MAX_UNBOUNDED = 10.0  # a score that fusions without bounds hardly reach


@dataclass(frozen=True, slots=True)
class Plan:
    """How a search runs. Several retrievers, or retrievers with rescorers, give lists of `depth` documents, or k if
    that is more, which are fused. Each rescorer scores what any retriever found; without rescorers, the retrievers'
    own scores are fused. One retriever alone needs no fusion and is asked for k documents."""

    retrievers: Sequence[Retriever]
    k: int  # documents to return
    fusion: Fusion = field(default_factory=ReciprocalRank)
    depth: int = DEFAULT_DEPTH
    rescorers: Sequence[Rescorer] = ()
    smoothing: float = 0.0  # the share of a document's score that comes from similar documents
    passages: str = MAX  # how rescorers turn the scores of passages into the score of their document
    scale_alone: bool = False  # whether the scores of one retriever alone are scaled by the fusion, too
    lift_names: bool = False  # whether documents whose name is the query move up: see plait.search.names

    def __post_init__(self) -> None:
        if not self.retrievers:
            raise ConfigError("a plan needs at least one retriever")
        if self.depth < 1:
            raise ConfigError(f"the depth of a plan is {self.depth}; it must be at least 1")

    @property
    def needs_encoder(self) -> bool:
        retrieval = any(retriever.needs_encoder for retriever in self.retrievers)
        return retrieval or any(rescorer.needs_encoder for rescorer in self.rescorers)

    def describe(self) -> list[str]:
        """The plan in lines, for people."""
        lines = [f"retrieve {_settings(retriever)}" for retriever in self.retrievers]
        lines += [f"rescore {rescorer.name}" for rescorer in self.rescorers]
        if self.is_fused:
            lines.append(f"fuse lists of {max(self.k, self.depth)} documents by {self.fusion}")
        if self.smoothing:
            lines.append(f"smooth scores by {self.smoothing:g}")
        return [*lines, f"return {self.k} documents"]

    def without_text(self) -> Plan:
        """The same plan for queries that are vectors only: stages that read text are left out."""
        retrievers = tuple(retriever for retriever in self.retrievers if not retriever.reads_text)
        if not retrievers:
            raise ConfigError("this mode reads the query's text, and only vectors were given; pass texts as well")
        rescorers = tuple(rescorer for rescorer in self.rescorers if not rescorer.reads_text)
        return replace(self, retrievers=retrievers, rescorers=rescorers)

    def run(
        self, snapshot: Snapshot, batch: QueryBatch, doc_filter: DocFilter | None = None, trace: Trace | None = None
    ) -> list[Ranking]:
        """The k best documents of each query, among those that meet its conditions."""
        trace = trace or Trace()
        if any(query.has_conditions for query in batch.asked):
            rankings = []
            for number, query in enumerate(batch.asked):
                with trace.stage("conditions"):
                    within = restrict(snapshot, query, doc_filter)
                rankings += self._run(snapshot, batch.part(number, number + 1), within, trace)
        else:
            rankings = self._run(snapshot, batch, doc_filter, trace)
        if verification.needs_attention:  # a file that was used may be known by now to be damaged
            verification.raise_damage(snapshot.files)
        return rankings

    def _run(self, snapshot: Snapshot, batch: QueryBatch, doc_filter: DocFilter | None, trace: Trace) -> list[Ranking]:
        if not self.is_fused:
            rankings = self.retrieve_alone(snapshot, batch, doc_filter, trace)
            return [self._lift_alone(snapshot, batch, number, ranking) for number, ranking in enumerate(rankings)]
        lists = self.lists(snapshot, batch, doc_filter, trace)
        with trace.stage("fuse"):
            fused = [
                self.fuse(rankings, self.lengths(snapshot, batch, number), batch.names(number))
                for number, rankings in enumerate(lists)
            ]
        if self.smoothing:
            with trace.stage(smoothing.NAME):
                fused = [self.smooth(ranking, partial(dense_vectors, snapshot.segments)) for ranking in fused]
        return [self.lift_fused(ranking, batch.names(number)) for number, ranking in enumerate(fused)]

    # -- the steps after retrieval. A cluster runs them on the lists of all shards.

    def fuse(
        self, rankings: Mapping[str, Ranking], lengths: Mapping[str, float], names: Mapping[int, float]
    ) -> Ranking:
        """One ranking of the lists of a query."""
        n_fused = max(self.k, smoothing.N_SMOOTHED) if self.smoothing else self.k
        if names:  # a named document may be far below
            n_fused = sum(map(len, rankings.values()))
        return self.fusion.fuse(rankings, n_fused, lengths)

    def smooth(self, fused: Ranking, vectors_of: VectorsOf) -> Ranking:
        return smoothing.smooth_scores(fused, vectors_of, self.smoothing)

    def lift_fused(self, fused: Ranking, names: Mapping[int, float]) -> Ranking:
        """The k best documents, with named ones moved up."""
        if self.lift_names:
            fused = lift(fused, names, 1.0 if isinstance(self.fusion, BoundedSum) else MAX_UNBOUNDED)
        return fused.top(self.k)

    def _lift_alone(self, snapshot: Snapshot, batch: QueryBatch, number: int, ranking: Ranking) -> Ranking:
        (retriever,), names = self.retrievers, batch.names(number)
        if not self.lift_names or not names or not isinstance(retriever, Bounded):
            return ranking
        return lift(ranking, names, retriever.highest(snapshot, batch, number)).top(self.k)

    def lengths(self, snapshot: Snapshot, batch: QueryBatch, number: int) -> dict[str, float]:
        """By list, what its scores are divided by before fusion: MaxSim by the number of query vectors, which makes its
        sum a mean. If the fusion has bounds, scores of vectors by the lengths of the query's vectors, which makes them
        cosines, and those of words by the bound of the query."""
        if not isinstance(self.fusion, BoundedSum):
            multi = batch.embeddings.multi
            return {} if multi is None else {"multi": float(max(len(multi[number]), 1))}
        lengths = vector_lengths(batch.embeddings, number)
        for stage in self.rescorers or self.retrievers:
            if isinstance(stage, Bounded):
                lengths[stage.name] = stage.bound(snapshot, batch, number)
        return lengths

    def lists(
        self, snapshot: Snapshot, batch: QueryBatch, doc_filter: DocFilter | None, trace: Trace
    ) -> list[dict[str, Ranking]]:
        """For each query, the rankings to fuse, by name."""
        lists = self.retrieve(snapshot, batch, doc_filter, trace)
        if not self.rescorers:
            return lists
        with trace.stage("rescore") as stage:
            unions = [
                union([*(ranking.docs for ranking in rankings.values()), _allowed(batch.names(number), doc_filter)])
                for number, rankings in enumerate(lists)
            ]
            lists = self.rescore(snapshot, batch, unions, lists, trace)
            stage.counts["items"] = sum(max(map(len, rankings.values())) for rankings in lists)
        return lists

    def retrieve(
        self, snapshot: Snapshot, batch: QueryBatch, doc_filter: DocFilter | None, trace: Trace
    ) -> list[dict[str, Ranking]]:
        """For each query, what each retriever finds, by name."""
        retrieved = {}
        for retriever in self.retrievers:
            with trace.stage(retriever.name):
                retrieved[retriever.name] = retriever.retrieve(snapshot, batch, self.list_depth, doc_filter, trace)
        return [{name: rankings[number] for name, rankings in retrieved.items()} for number in range(len(batch))]

    @property
    def list_depth(self) -> int:
        """The documents of each list that is fused."""
        return max(self.k, self.depth)

    @property
    def is_fused(self) -> bool:
        return len(self.retrievers) > 1 or bool(self.rescorers) or self.scale_alone

    def rescore(
        self,
        snapshot: Snapshot,
        batch: QueryBatch,
        unions: Sequence[NDArray[np.int64]],
        lists: Sequence[Mapping[str, Ranking]],
        trace: Trace,
    ) -> list[dict[str, Ranking]]:
        """For each query, its documents of `unions`, which ascend, as each rescorer ranks them. `lists` are what the
        retrievers found: their scores need not be computed again."""
        within = Trace()
        rescored: list[dict[str, Ranking]] = [{} for _ in unions]
        # With one passage for each document, a retriever's scores are those that its rescorer would give. Of several
        # passages, a retriever may not have seen the best.
        reuse = self.passages == MAX and snapshot.n_rows == snapshot.n_documents
        for rescorer in self.rescorers:
            scorer = rescorer.scorer(snapshot, batch, self.passages, Trace())
            with within.stage(rescorer.name):
                for number, docs in enumerate(unions):
                    check_deadline()
                    known = lists[number].get(rescorer.name) if reuse else None
                    ranking = scorer(number, docs) if known is None else _complete(known, docs, number, scorer)
                    rescored[number][rescorer.name] = ranking
        trace.add(within, under="rescore")
        return rescored

    def retrieve_alone(
        self, snapshot: Snapshot, batch: QueryBatch, doc_filter: DocFilter | None, trace: Trace
    ) -> list[Ranking]:
        """For each query, what the only retriever finds, and the documents whose name is the query."""
        (retriever,) = self.retrievers
        with trace.stage(retriever.name):
            rankings = retriever.retrieve(snapshot, batch, self.k, doc_filter, trace)
            if self.lift_names:
                rankings = [
                    self._with_named(retriever, snapshot, batch, number, ranking, doc_filter)
                    for number, ranking in enumerate(rankings)
                ]
        return [replace(ranking, parts={**ranking.parts, retriever.name: ranking.scores}) for ranking in rankings]

    def _with_named(
        self,
        retriever: Retriever,
        snapshot: Snapshot,
        batch: QueryBatch,
        number: int,
        ranking: Ranking,
        doc_filter: DocFilter | None,
    ) -> Ranking:
        """The ranking with the documents whose name is the query, also if they share no word with it."""
        named = np.setdiff1d(_allowed(batch.names(number), doc_filter), ranking.docs)
        if not len(named):
            return ranking
        within = DocFilter(snapshot.segments, named)
        (scored,) = retriever.retrieve(snapshot, batch.part(number, number + 1), len(named), within, Trace())
        rest = np.setdiff1d(named, scored.docs)
        unscored = Ranking(rest, np.zeros(len(rest), np.float32), np.full(len(rest), UNKNOWN_ROW, np.int64))
        return merge([ranking, scored, unscored], len(ranking) + len(named))


def vector_lengths(embeddings: Embeddings, number: int) -> dict[str, float]:
    """The length of the dense vector of an item, and the sum of the lengths of its multi vectors."""
    lengths = {}
    if embeddings.dense is not None:
        lengths["dense"] = float(np.linalg.norm(embeddings.dense[number])) or 1.0
    if embeddings.multi is not None:
        rows = np.asarray(embeddings.multi[number], np.float32)
        lengths["multi"] = float(np.linalg.norm(rows, axis=1).sum()) or 1.0
    return lengths


def _allowed(names: Mapping[int, float], doc_filter: DocFilter | None) -> NDArray[np.int64]:
    """The named documents that a filter accepts, ascending."""
    docs = np.sort(np.fromiter(names, np.int64, len(names)))
    if doc_filter is None or doc_filter.docs is None or not len(docs):
        return docs
    return np.intersect1d(docs, doc_filter.docs)


def union(lists: Sequence[NDArray[np.int64]]) -> NDArray[np.int64]:
    """The documents of all lists, ascending, each once."""
    docs = np.sort(np.concatenate(lists or [np.zeros(0, np.int64)]))
    # numpy.unique would import numpy.ma, which takes longer than a search.
    return np.asarray(docs[np.diff(docs, prepend=-1) != 0])


def _complete(known: Ranking, docs: NDArray[np.int64], number: int, scorer: Scorer) -> Ranking:
    """A ranking of all `docs`, which ascend; only those that are not in `known` are scored."""
    known_docs = np.sort(known.docs)
    position = np.minimum(np.searchsorted(known_docs, docs), max(len(known_docs) - 1, 0))
    missing = docs[known_docs[position] != docs] if len(known_docs) else docs
    return merge([known, scorer(number, missing)], len(docs)) if len(missing) else known


def _settings(retriever: Retriever) -> str:
    """`multi: exhaustive_below=1024, n_threads=1`."""
    named = [field for field in fields(retriever) if field.repr and field.name != "name"]  # type: ignore[arg-type]
    values = ", ".join(f"{field.name}={getattr(retriever, field.name)!r}" for field in named)
    return f"{retriever.name}: {values}" if values else retriever.name

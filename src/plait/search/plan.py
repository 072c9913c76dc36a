"""`Plan`: retrievers, rescorers, a fusion and score smoothing, with every number settled. `resolve` in `modes.py` makes
it; `run` only runs it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace

import numpy as np
from numpy.typing import NDArray

from plait.deadline import check_deadline
from plait.errors import ConfigError
from plait.search import smoothing
from plait.search.filtering import DocFilter
from plait.search.fusion import Fusion, ReciprocalRank
from plait.search.query import QueryBatch
from plait.search.ranking import Ranking, merge
from plait.search.retriever import MAX, Rescorer, Retriever, Scorer
from plait.search.trace import Trace
from plait.storage import verification
from plait.storage.snapshot import Snapshot

DEFAULT_DEPTH = 100


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
        if self._is_fused:
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
        """The k best documents of each query."""
        rankings = self._run(snapshot, batch, doc_filter, trace or Trace())
        if verification.needs_attention:  # a file that was used may be known by now to be damaged
            verification.raise_damage(snapshot.files)
        return rankings

    def _run(self, snapshot: Snapshot, batch: QueryBatch, doc_filter: DocFilter | None, trace: Trace) -> list[Ranking]:
        if not self._is_fused:
            return self._run_alone(self.retrievers[0], snapshot, batch, doc_filter, trace)
        lists = self.lists(snapshot, batch, doc_filter, trace)
        with trace.stage("fuse"):
            n_fused = max(self.k, smoothing.N_SMOOTHED) if self.smoothing else self.k
            fused = [
                self.fusion.fuse(rankings, n_fused, query_lengths(batch, number))
                for number, rankings in enumerate(lists)
            ]
        if not self.smoothing:
            return fused
        with trace.stage(smoothing.NAME):
            return [smoothing.smooth_scores(ranking, snapshot, self.smoothing).top(self.k) for ranking in fused]

    def lists(
        self, snapshot: Snapshot, batch: QueryBatch, doc_filter: DocFilter | None, trace: Trace
    ) -> list[dict[str, Ranking]]:
        """For each query, the rankings to fuse, by name."""
        depth = max(self.k, self.depth)
        retrieved = {}
        for retriever in self.retrievers:
            with trace.stage(retriever.name):
                retrieved[retriever.name] = retriever.retrieve(snapshot, batch, depth, doc_filter, trace)
        lists = [{name: rankings[number] for name, rankings in retrieved.items()} for number in range(len(batch))]
        if not self.rescorers:
            return lists
        with trace.stage("rescore") as stage:
            lists = self._rescore(snapshot, batch, lists, trace)
            stage.counts["items"] = sum(max(map(len, rankings.values())) for rankings in lists)
        return lists

    @property
    def _is_fused(self) -> bool:
        return len(self.retrievers) > 1 or bool(self.rescorers)

    def _rescore(
        self, snapshot: Snapshot, batch: QueryBatch, lists: Sequence[Mapping[str, Ranking]], trace: Trace
    ) -> list[dict[str, Ranking]]:
        within = Trace()
        rescored: list[dict[str, Ranking]] = [{} for _ in lists]
        unions = [_union(list(rankings.values())) for rankings in lists]
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

    def _run_alone(
        self,
        retriever: Retriever,
        snapshot: Snapshot,
        batch: QueryBatch,
        doc_filter: DocFilter | None,
        trace: Trace,
    ) -> list[Ranking]:
        with trace.stage(retriever.name):
            rankings = retriever.retrieve(snapshot, batch, self.k, doc_filter, trace)
        return [replace(ranking, parts={**ranking.parts, retriever.name: ranking.scores}) for ranking in rankings]


def query_lengths(batch: QueryBatch, number: int) -> dict[str, float]:
    """By list, what its scores are divided by before fusion: MaxSim by the number of query vectors, which makes its
    sum a mean."""
    multi = batch.embeddings.multi
    return {} if multi is None else {"multi": float(max(len(multi[number]), 1))}


def _union(rankings: Sequence[Ranking]) -> NDArray[np.int64]:
    """The documents of all rankings, ascending, each once."""
    docs = np.sort(np.concatenate([ranking.docs for ranking in rankings] or [np.zeros(0, np.int64)]))
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

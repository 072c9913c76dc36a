"""One shard of a collection: an index, and the steps of a search that need its files. `plait.cluster.searcher` asks."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from plait.cluster.messages import (
    Docs,
    FetchOptions,
    FoundRows,
    MethodSizes,
    MethodStep,
    ShardFacts,
    ShardLists,
    ShardQuery,
    ShardScores,
    SpellingQuestion,
    StaleShardError,
    StoredQuery,
    Survey,
)
from plait.codec.residual import ResidualCodec
from plait.deadline import deadline_scope
from plait.errors import ConfigError
from plait.locks import ForkSafeLock, OnceDict
from plait.records import Document, Hit
from plait.search.bm25 import bm25_statistics
from plait.search.filtering import DocFilter, SegmentRows, filter_candidates, filter_documents, or_everything
from plait.search.hits import fetch_documents, make_hits
from plait.search.modes import PlanContext, resolve
from plait.search.multivector.method import FoundItems, MethodRetriever, check_one_segment
from plait.search.multivector.passages import ExactMulti, score_passages
from plait.search.multivector.query import MultiVectorQuery
from plait.search.multivector.steps import Part, Sizes, SteppedMethod, replay
from plait.search.names import find_names
from plait.search.plan import Plan
from plait.search.query import QueryBatch, multi_queries, sparse_queries
from plait.search.ranking import UNKNOWN_ROW, Ranking, merge
from plait.search.rescoring import RescoredMulti
from plait.search.retriever import rank_segment
from plait.search.smoothing import dense_vectors
from plait.search.sparse import sparse_peaks
from plait.search.text_query import SnapshotFacts, restrict
from plait.search.trace import Trace
from plait.similar import document_query
from plait.storage.fields import Facets, count_values, count_values_of
from plait.storage.segment import segment_errors
from plait.storage.snapshot import Snapshot
from plait.storage.store import Store

ALL_VALUES = 1 << 40  # of a field
MAX_SNAPSHOTS = 4  # commits that stay open for searches that began with them


class LocalShard:
    """A shard on this machine, read-only. Threads may share it."""

    def __init__(self, path: Path, *, n_threads: int = 1) -> None:
        self.path, self._n_threads = path, n_threads
        self._store = Store.open(path, read_only=True)
        self._lock = ForkSafeLock()
        self._snapshots: OrderedDict[int, Snapshot] = OrderedDict()
        self.refresh()

    @property
    def fingerprint(self) -> str:
        return self._store.fingerprint

    def refresh(self) -> ShardFacts:
        """Opens the newest commit. Searches that began with an earlier one go on."""
        newest = self._store.snapshot()
        with self._lock:
            if newest.commit in self._snapshots:
                newest.close()
            else:
                self._snapshots[newest.commit] = newest
            while len(self._snapshots) > MAX_SNAPSHOTS:
                self._snapshots.popitem(last=False)[1].close()
        return self.facts()

    def close(self) -> None:
        with self._lock:
            while self._snapshots:
                self._snapshots.popitem()[1].close()
            self._store.close()

    # -- what a coordinator asks

    def facts(self) -> ShardFacts:
        snapshot = self._newest()
        return ShardFacts(
            commit=snapshot.commit,
            n_documents=snapshot.n_documents,
            n_passages=snapshot.n_rows,
            field_names=SnapshotFacts(snapshot).field_names(),
            codebook=codebook_digest(snapshot),
        )

    def spelling(self, commit: int, question: SpellingQuestion) -> tuple[list[str], list[tuple[int, int]]]:
        """The words that no document has, and the support of each variant."""
        facts = SnapshotFacts(self._snapshot(commit))
        return facts.absent(question.words), facts.support(question.variants, question.known)

    def survey(self, commit: int, queries: Sequence[tuple[str, str, str]], names: bool = True) -> Survey:
        """What this shard knows of queries: each as it was given, as its encoder reads it, and its words."""
        snapshot = self._snapshot(commit)
        facts = SnapshotFacts(snapshot)
        absent = []
        for _, _, words in queries:
            terms = snapshot.analyser.query_terms(words)
            absent.append(frozenset(facts.absent([word for word, term in terms.items() if not term.is_prefix])))
        return Survey(
            absent=absent,
            names=[find_names(snapshot, given, text) if names else {} for given, text, _ in queries],
            statistics=bm25_statistics(snapshot, [words for _, _, words in queries]),
        )

    def retrieve(self, query: ShardQuery, k: int | None) -> ShardLists:
        """What each retriever of the plan for k documents finds."""
        snapshot, plan, batch = self._prepared(query, k)
        lists: list[dict[str, Ranking]] = []
        named: list[Docs] = []
        with deadline_scope(query.seconds):
            for part, within in self._parts(snapshot, query, batch):
                if plan.is_fused:
                    lists += plan.retrieve(snapshot, part, within, Trace())
                else:
                    name = plan.retrievers[0].name
                    lists += [{name: ranking} for ranking in plan.retrieve_alone(snapshot, part, within, Trace())]
                named += [_named(part, number, within) for number in range(len(part))]
        peaks = None
        if snapshot.spec.sparse is not None and batch.embeddings.sparse is not None:
            peaks = [sparse_peaks(snapshot, one) for one in sparse_queries(snapshot, batch)]
        return ShardLists(lists=lists, named=named, peaks=peaks)

    def rescore(self, query: ShardQuery, k: int | None, docs: Sequence[Docs]) -> ShardScores:
        """These documents of each query, ascending, as each rescorer of the plan scores them."""
        snapshot, plan, batch = self._prepared(query, k)
        with deadline_scope(query.seconds):
            lists = plan.rescore(snapshot, batch, docs, [{} for _ in docs], Trace())
        if not plan.smoothing:
            return ShardScores(lists=lists)
        rows = [_known_rows(list(rankings.values())) for rankings in lists]
        vectors = [dense_vectors(snapshot.segments, one) for one in rows]
        empty = np.zeros((0, snapshot.spec.dense or 0), np.float32)
        return ShardScores(lists=lists, rows=rows, vectors=[empty if one is None else one for one in vectors])

    def candidates(self, query: ShardQuery, k: int | None) -> list[Ranking]:
        """For each query, what the first stage of the plan finds, whose documents MaxSim is to rank."""
        snapshot, plan, batch = self._prepared(query, k)
        rescored, rankings = rescored_multi(plan), list[Ranking]()
        with deadline_scope(query.seconds):
            for part, within in self._parts(snapshot, query, batch):
                depth = max(plan.k, rescored.n_candidates)
                rankings += rescored.first.retrieve(snapshot, part, depth, within, Trace())
        return rankings

    def score_candidates(self, query: ShardQuery, k: int | None, docs: Sequence[Docs]) -> list[Ranking]:
        """The best of these documents of each query by MaxSim."""
        snapshot, plan, batch = self._prepared(query, k)
        scorer, rankings = ExactMulti(n_threads=self._n_threads), list[Ranking]()
        with deadline_scope(query.seconds):
            for number, of_query in enumerate(docs):
                within = DocFilter(snapshot.segments, of_query)
                rankings += scorer.retrieve(snapshot, batch.part(number, number + 1), plan.k, within, Trace())
        return rankings

    def method_sizes(self, query: ShardQuery, k: int) -> list[MethodSizes]:
        """For each query, what the method of the plan has to search here."""
        snapshot, plan, batch = self._prepared(query, k)
        method = _stepped(plan)
        rows, answers = multi_queries(snapshot, batch), []
        with deadline_scope(query.seconds):
            for number, within in enumerate(self._filters(snapshot, query, batch)):
                coded, others = _method_parts(snapshot, plan.retrievers[0].name, method, within)
                floats = [
                    rank_segment(part, score_passages(part.segment, part.rows, rows[number], 1, Trace()), k)
                    for part in others
                ]
                sizes = None
                if coded is not None:
                    assert coded.segment.coded is not None
                    sizes = Sizes.of(coded.segment.coded, coded.item_filter)
                n_documents = 0 if coded is None else coded.n_documents
                answers.append(MethodSizes(sizes=sizes, n_documents=n_documents, rest=merge(floats, k)))
        return answers

    def method_steps(self, query: ShardQuery, k: int, steps: Sequence[MethodStep]) -> list[Part | FoundRows]:
        """The next part of each of these queries, or the passages that were found."""
        snapshot, plan, batch = self._prepared(query, k)
        rows, filters = multi_queries(snapshot, batch), self._filters(snapshot, query, batch)
        answers: list[Part | FoundRows] = []
        with deadline_scope(query.seconds):
            for step in steps:
                part, _ = _method_parts(snapshot, plan.retrievers[0].name, step.method, filters[step.number])
                assert part is not None
                answers.append(_method_step(part, rows[step.number], step, self._n_threads))
        return answers

    def fetch(self, query: ShardQuery, rankings: Sequence[Ranking], options: FetchOptions) -> list[list[Hit]]:
        """The hits of documents of this shard, in the order of their rankings."""
        snapshot, batch = self._snapshot(query.commit), _batch(query)
        answers = []
        for number, ranking in enumerate(rankings):
            with deadline_scope(query.seconds):
                answers.append(_hits(snapshot, batch, number, ranking, options))
        return answers

    def get(self, ids: Sequence[str]) -> list[Document | None]:
        snapshot = self._newest()
        numbers = snapshot.lookup(ids)
        known = [id for id in ids if id in numbers]
        stored = dict(zip(known, snapshot.fetch([numbers[id] for id in known]), strict=True))
        return [
            None if (one := stored.get(id)) is None else Document(one.id, one.text, one.title, one.metadata)
            for id in ids
        ]

    def count(self, filter: str | None) -> int:
        snapshot = self._newest()
        return snapshot.n_documents if filter is None else len(snapshot.filtered(filter))

    def stored_query(self, commit: int, id: str, kinds: Sequence[str]) -> StoredQuery | None:
        """A document as a query for similar ones; None if the shard does not have it."""
        made = document_query(self._snapshot(commit), id, kinds)
        return None if made is None else StoredQuery(doc=made[0], embeddings=made[1], words=made[2])

    def facets(self, commit: int, field: str, filter: str | None, docs: Docs | None) -> Facets:
        """All values of a field, in these documents or in all that a filter accepts."""
        catalogue = self._snapshot(commit).catalogue
        if docs is None:
            return count_values(catalogue, field, filter, ALL_VALUES)
        return count_values_of(catalogue, field, docs.tolist(), ALL_VALUES)

    def unknown_filter_fields(self, filter: str) -> str:
        return self._newest().unknown_filter_fields(filter)

    # -- snapshots and plans

    def _newest(self) -> Snapshot:
        with self._lock:
            if not self._snapshots:
                raise StaleShardError(f"shard {self.path} is closed; open the collection again")
            return next(reversed(self._snapshots.values()))

    def _snapshot(self, commit: int) -> Snapshot:
        with self._lock:
            known = self._snapshots.get(commit)
        if known is None:  # another replica may have seen a newer commit
            self.refresh()
            with self._lock:
                known = self._snapshots.get(commit)
        if known is None:
            raise StaleShardError(f"commit {commit} of shard {self.path} is not open any more; search again")
        return known

    def _prepared(self, query: ShardQuery, k: int | None) -> tuple[Snapshot, Plan, QueryBatch]:
        snapshot = self._snapshot(query.commit)
        plan = shard_plan(query, k, PlanContext(spec=snapshot.spec, n_threads=self._n_threads, path=snapshot.path))
        return snapshot, plan, _batch(query)

    def _parts(
        self, snapshot: Snapshot, query: ShardQuery, batch: QueryBatch
    ) -> list[tuple[QueryBatch, DocFilter | None]]:
        """The queries with the documents that they may find: together, or one by one if they have conditions."""
        within = self._within(snapshot, query)
        if not any(asked.has_conditions for asked in batch.asked):
            return [(batch, within)]
        return [
            (batch.part(number, number + 1), restrict(snapshot, asked, within))
            for number, asked in enumerate(batch.asked)
        ]

    def _filters(self, snapshot: Snapshot, query: ShardQuery, batch: QueryBatch) -> list[DocFilter | None]:
        """For each query, the documents that it may find."""
        within = self._within(snapshot, query)
        if not any(asked.has_conditions for asked in batch.asked):
            return [within] * len(batch)
        return [restrict(snapshot, asked, within) for asked in batch.asked]

    def _within(self, snapshot: Snapshot, query: ShardQuery) -> DocFilter | None:
        within = None if query.filter is None else filter_documents(snapshot, query.filter)
        return within if query.candidates is None else filter_candidates(snapshot, query.candidates, within)


def shard_plan(query: ShardQuery, k: int | None, context: PlanContext) -> Plan:
    """The plan of a query for k documents: the same in the coordinator and in every shard."""
    plan = resolve(
        query.mode,
        query.params,
        replace(
            context,
            k=k,
            exact=query.exact,
            n_passages=query.n_passages,
            bounds=query.bounds,
            exclude_from_hybrid=tuple(query.exclude_from_hybrid),
            cache=OnceDict(),
        ),
    )
    return plan.without_text() if query.without_text else plan


def codebook_digest(snapshot: Snapshot) -> str | None:
    """The digest of the codec of the largest compressed segment; None if there is none."""
    coded = [segment for segment in snapshot.segments if segment.residual_file is not None]
    if not coded:
        return None
    file = max(coded, key=lambda segment: segment.n_rows).residual_file
    assert file is not None
    return codec_digest(file.codec)


def codec_digest(codec: ResidualCodec) -> str:
    """Equal for codecs whose codes can be compared."""
    digest = hashlib.sha256(repr((codec.bits, codec.codebook.scale, codec.codebook.longest)).encode())
    arrays: list[NDArray[np.generic]] = [codec.codebook.centroids, codec.steps, codec.lengths, codec.factors]
    for array in arrays:
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def rescored_multi(plan: Plan) -> RescoredMulti:
    (retriever,) = plan.retrievers
    assert isinstance(retriever, RescoredMulti)
    return retriever


def _stepped(plan: Plan) -> SteppedMethod:
    (retriever,) = plan.retrievers
    assert isinstance(retriever, MethodRetriever)
    assert isinstance(retriever.method, SteppedMethod)
    return retriever.method


def _method_parts(
    snapshot: Snapshot, name: str, method: SteppedMethod, within: DocFilter | None
) -> tuple[SegmentRows | None, list[SegmentRows]]:
    """The compressed segment that a method searches, if it has documents that may be found, and the segments that are
    not compressed."""
    if not method.comparable:
        check_one_segment(name, snapshot)
    parts = or_everything(snapshot, within).segment_rows
    coded = [part for part in parts if part.segment.coded is not None]
    if len(coded) > 1:
        raise ConfigError(
            f"mode {name!r} needs one compressed segment in each shard, and {snapshot.path} has {len(coded)}; compact "
            f"the collection: open_cluster(path, read_only=False).compact()"
        )
    return coded[0] if coded else None, [part for part in parts if part.segment.coded is None]


def _method_step(part: SegmentRows, rows: NDArray[np.float32], step: MethodStep, n_threads: int) -> Part | FoundRows:
    segment = part.segment
    assert segment.coded is not None
    with segment_errors(segment):
        asked = MultiVectorQuery(rows, segment.coded)
        steps = step.method.steps(asked, step.n_wanted, part.item_filter, step.sizes, n_threads=n_threads)
        result = replay(steps, step.answers)
    if not isinstance(result, FoundItems):
        return result
    return FoundRows(segment.docs[result.items], part.base + result.items, result.scores, result.imputed)


def _batch(query: ShardQuery) -> QueryBatch:
    return QueryBatch(query.texts, query.embeddings, query.asked, query.statistics)


def _named(batch: QueryBatch, number: int, within: DocFilter | None) -> Docs:
    names = batch.names(number)
    docs = np.sort(np.fromiter(names, np.int64, len(names)))
    return docs if within is None or within.docs is None else np.intersect1d(docs, within.docs)


def _known_rows(rankings: Sequence[Ranking]) -> NDArray[np.int64]:
    rows = np.unique(np.concatenate([np.zeros(0, np.int64), *(ranking.rows for ranking in rankings)]))
    return np.asarray(rows[rows != UNKNOWN_ROW], np.int64)


def _hits(snapshot: Snapshot, batch: QueryBatch, number: int, ranking: Ranking, options: FetchOptions) -> list[Hit]:
    documents = fetch_documents(snapshot, batch.texts[number], ranking)
    positions = list(range(len(ranking)))
    hits = make_hits(ranking, documents, positions)
    if options.passages > 1:
        from plait.search.best_passages import best_passages

        stored = [documents[doc].stored for doc in ranking.docs.tolist()]
        hits = best_passages(snapshot, batch, number, hits, stored, options.passages)
    if options.highlight:
        from plait.search.snippets import with_highlights

        hits = with_highlights(snapshot, batch, number, ranking, None, hits, documents, positions)
    if options.explain:
        from plait.search.explain import Explainer

        hits = Explainer(snapshot, batch, number, ranking, None).explain_hits(hits, documents, positions)
    return hits

"""`ShardedSearcher`: one search over all shards of a collection, with the hits and scores of one index.

read the query -> encode it once -> each shard retrieves -> merge the lists -> each shard rescores its documents of the
merged lists -> fuse, smooth, lift -> page -> each shard fetches its hits

Lists are merged before they are rescored and fused, so a document is found if and only if one index would find it.
Where a retriever probes, each shard probes for itself and together they find at least as much. Documents are numbered
over all shards: the shard in the high bits, the number in the shard in the low ones.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from plait.checks import as_list
from plait.cluster.fan_out import FanOut, ShardUnavailableError
from plait.cluster.hashing import owned, owner
from plait.cluster.manifest import Manifest
from plait.cluster.messages import (
    Docs,
    FetchOptions,
    ShardFacts,
    ShardLists,
    ShardQuery,
    ShardScores,
    SpellingQuestion,
    StaleShardError,
    StoredQuery,
    Survey,
)
from plait.cluster.method_search import search_in_steps
from plait.cluster.shard import shard_plan
from plait.deadline import current_deadline, deadline_scope
from plait.embeddings import Embeddings
from plait.encode.chunking import with_title
from plait.encode.load import LazyEncoder
from plait.encode.protocol import TokenReader
from plait.errors import ConfigError, QueryError
from plait.records import Group, Hit
from plait.search.fusion import BoundedSum, bounds_of
from plait.search.modes import PlanContext, find_mode
from plait.search.multivector.method import MethodRetriever
from plait.search.multivector.steps import SteppedMethod
from plait.search.names import WITHIN, lift
from plait.search.paging import concatenate, join, levels, take, without
from plait.search.plan import Plan, union, vector_lengths
from plait.search.ranking import UNKNOWN_ROW, Ranking, best_first
from plait.search.rescoring import RescoredMulti
from plait.search.scores import at_least, resolve_min_score, with_confidence
from plait.search.text_query import NO_NAMES, TextQuery, understand
from plait.search.trace import Trace
from plait.search.word_statistics import WordStatistics
from plait.search_run import best_of_groups, sort_positions
from plait.searcher import SearchRequest, check_query
from plait.storage.fields import Facets
from plait.text.analyser import Analyser, QueryTerm
from plait.text.query_syntax import parse_query

if TYPE_CHECKING:
    from plait.rerank.reranker import Reranker

T = TypeVar("T")

SHIFT = 40  # bits of a number within its shard
MASK = (1 << SHIFT) - 1
# The modes with a budget of calls to a cross-encoder choose each document by the scores of those before it.
MODES = (
    "hybrid",
    "dense",
    "sparse",
    "multi",
    "bm25",
    "exhaustive",
    "m3-dense-sparse",
    "m3-all",
    "plaid",
    "xtr",
    "colxtr",
    "warp",
    "dense-then-multi",
    "bm25-then-multi",
)
MAX_STALE = 2  # searches that are begun again because a shard was refreshed meanwhile


@dataclass(frozen=True, slots=True)
class ShardedAnswer:
    """The hits of each query, and the shards whose documents are not among them because they did not answer."""

    hits: list[list[Hit]]
    missing_shards: tuple[int, ...] = ()
    trace: Trace = field(default_factory=Trace)


class ShardedSearcher:
    """Searches a collection. It holds the encoder; the shards hold the documents. Threads may share it."""

    def __init__(
        self,
        manifest: Manifest,
        fan_out: FanOut,
        source: LazyEncoder,
        *,
        partial: bool = False,
        load_reranker: Callable[[Any], Reranker | None] | None = None,
    ) -> None:
        """With `partial`, a search of which some shards do not answer returns what the others find."""
        self._manifest, self._fan_out, self._source, self._partial = manifest, fan_out, source, partial
        self._analyser = Analyser(manifest.language)
        self._load_reranker = load_reranker
        self.facts: dict[int, ShardFacts] = {}  # of the newest commit that is known of each shard
        self.refresh()

    def refresh(self) -> None:
        """Sees what was written to the shards since."""
        self.facts = {**self.facts, **self._fan_out.call("refresh", dict.fromkeys(range(self._fan_out.n_shards), ()))}

    @property
    def n_documents(self) -> int:
        return sum(facts.n_documents for facts in self.facts.values())

    def search(self, queries: Sequence[str], request: SearchRequest) -> ShardedAnswer:
        """The hits of each query."""
        queries = as_list("queries", queries, "texts", QueryError)
        for query in queries:
            check_query(query)
        return self._answer(queries, None, request)

    def search_embeddings(
        self, embeddings: Embeddings, texts: Sequence[str] | None, request: SearchRequest
    ) -> ShardedAnswer:
        """The same for queries that are encoded already; without texts, stages that read text are left out."""
        return self._answer(None if texts is None else list(texts), embeddings, request)

    def search_stored(
        self, id: str, kinds: Sequence[str], request: SearchRequest, *, reads_text: bool
    ) -> ShardedAnswer | None:
        """The documents similar to the document of an id, by its stored embeddings; None if it does not exist."""

        def run() -> ShardedAnswer | None:
            shard, facts = owner(self._manifest.starts, id), self.facts
            shards = _Shards(self._fan_out, partial=False)
            known = shards.call("stored_query", {shard: (facts[shard].commit, id, kinds)} if shard in facts else {})
            if shard not in known:
                raise ShardUnavailableError(f"shard {shard}, which has the document, did not answer; try again")
            stored: StoredQuery | None = known[shard]
            if stored is None:
                return None
            texts = [stored.words] if reads_text else None
            return _Run(self, request, texts, stored.embeddings, exclude=(shard << SHIFT) + stored.doc).answer()

        return self._again(request, run)

    def facets(self, field: str, query: str | None, request: SearchRequest) -> dict[int, Facets]:
        """All values of a field, by shard: in the `window` best documents of a query, or in all that a filter
        accepts."""

        def run() -> dict[int, Facets]:
            facts, shards = self.facts, _Shards(self._fan_out, partial=False)
            if len(facts) < self._fan_out.n_shards:
                raise ShardUnavailableError("not all shards have answered; try again")
            docs: dict[int, Docs | None] = dict.fromkeys(facts)
            if query is not None:
                best = replace(request, k=request.window, offset=0, sort=None, group_by=None)
                (ranking,) = _Run(self, best, [query], None).rankings()
                ordered = np.sort(ranking.docs)
                docs = {shard: _of_shard(ordered, shard) for shard in facts}
            return shards.call("facets", {n: (facts[n].commit, field, request.filter, docs[n]) for n in facts})

        return self._again(request, run)

    def _answer(
        self, queries: Sequence[str] | None, embeddings: Embeddings | None, request: SearchRequest
    ) -> ShardedAnswer:
        return self._again(request, lambda: _Run(self, request, queries, embeddings).answer())

    def _again(self, request: SearchRequest, run: Callable[[], T]) -> T:
        """Runs a search, and again if a shard was refreshed meanwhile."""
        _check_mode(request)
        with deadline_scope(request.timeout):
            for attempt in range(MAX_STALE + 1):
                try:
                    return run()
                except StaleShardError:
                    if attempt == MAX_STALE:
                        raise
                    self.refresh()
        raise AssertionError


@dataclass
class _Shards:
    """Calls shards, and remembers those that did not answer: a search leaves them out from then on."""

    fan_out: FanOut
    partial: bool
    missing: set[int] = field(default_factory=set)

    def call(self, method: str, arguments: Mapping[int, Sequence[Any]]) -> dict[int, Any]:
        wanted = {number: given for number, given in arguments.items() if number not in self.missing}
        answers = self.fan_out.call(method, wanted)
        silent = sorted(set(wanted) - set(answers))
        self.missing.update(silent)
        if silent and (not self.partial or len(self.missing) == self.fan_out.n_shards):
            raise ShardUnavailableError(
                f"shards {', '.join(map(str, silent))} of {self.fan_out.n_shards} did not answer; try again, or "
                f"accept partial answers"
            )
        return answers


class _Run:
    """One search."""

    def __init__(
        self,
        searcher: ShardedSearcher,
        request: SearchRequest,
        queries: Sequence[str] | None,
        embeddings: Embeddings | None,
        *,
        exclude: int | None = None,
    ) -> None:
        """`exclude` is the number of a document that is not to be found."""
        self._exclude = exclude
        self._searcher, self._request, self._manifest = searcher, request, searcher._manifest
        self._given, self._embeddings = queries, embeddings
        self._facts = searcher.facts
        self._shards = _Shards(searcher._fan_out, searcher._partial)
        self._shards.missing.update(set(range(searcher._fan_out.n_shards)) - set(self._facts))
        if self._shards.missing and not searcher._partial:
            raise ShardUnavailableError(f"shards {sorted(self._shards.missing)} did not answer; try again")
        self._trace = request.trace or Trace()
        self._calibration = self._manifest.calibration
        exact = request.exact or (request.candidates is not None and find_mode(request.mode).exact_candidates)
        self._query = ShardQuery(
            commit=0,
            texts=(),
            embeddings=Embeddings(),
            asked=(),
            statistics=None,
            mode=request.mode,
            params=request.params,
            exact=exact,
            n_passages=sum(facts.n_passages for facts in self._facts.values()),
            bounds=dict(bounds_of(self._calibration)),
            exclude_from_hybrid=tuple(self._manifest.exclude_from_hybrid),
            filter=request.filter,
            without_text=queries is None,
        )
        self.plan = self._make_plan(request.n_ranked)
        self._asked: list[TextQuery] = []
        self._statistics: WordStatistics | None = None
        self._candidates = (
            None
            if request.candidates is None
            else owned(self._manifest.starts, as_list("candidates", request.candidates, "ids", QueryError))
        )

    def answer(self) -> ShardedAnswer:
        if self._given is not None and not self._given:
            return ShardedAnswer([])
        self._read_queries()
        if not len(self._texts):
            return ShardedAnswer([])
        reranker = self._reranker()
        n_ranked = self._request.n_ranked or self.plan.k
        if reranker is not None:  # whole blocks
            n_ranked = -(-n_ranked // reranker.depth) * reranker.depth
        rankings = self._rankings(n_ranked)
        hits = self._pages(rankings, reranker)
        return ShardedAnswer(hits, tuple(sorted(self._shards.missing)), self._trace)

    def rankings(self) -> list[Ranking]:
        """The documents of each query, without reranking."""
        self._read_queries()
        return self._rankings(self._request.n_ranked or self.plan.k)

    # -- reading queries

    def _read_queries(self) -> None:
        """What each query asks for, its embeddings, and the statistics of its words."""
        plan = self.plan
        encode = plan.needs_encoder and self._embeddings is None
        encoder = self._searcher._source.get() if encode else None
        reads_text = [stage.reads_text for stage in plan.retrievers] + [stage.reads_text for stage in plan.rescorers]
        surveyed: list[_Words] = []
        surveys: dict[int, Survey] = {}
        if self._given is not None:
            with self._trace.stage("read query"):
                surveyed = [self._words_of(query) for query in self._given]
                if plan.lift_names or any(reads_text):
                    surveys = self._survey(surveyed, names=plan.lift_names)
                reader = encoder if isinstance(encoder, TokenReader) else None
                for number, words in enumerate(surveyed):
                    facts = _CollectionFacts(self, words, {n: _of_query(one, number) for n, one in surveys.items()})
                    self._asked.append(
                        understand(
                            facts,
                            words.given,
                            syntax=self._request.syntax,
                            words=plan.lift_names,
                            correct=self._embeddings is None,
                            reader=reader,
                        )
                    )
        self._texts = [query.words for query in self._asked] or [""] * len(self._embeddings or ())
        if encoder is not None:
            with self._trace.stage("encode"):
                self._embeddings = encoder.encode_queries([query.text for query in self._asked])
        elif self._embeddings is None:
            self._embeddings = Embeddings()
        if self._embeddings.present() and len(self._texts) != len(self._embeddings):
            raise QueryError(f"{len(self._texts)} texts were given for {len(self._embeddings)} queries")
        if any(reads_text):
            if self._texts != [words.words for words in surveyed]:  # misspelt words were corrected
                corrected = [_Words(query.given, query.text, query.words) for query in self._asked]
                surveys = self._survey(corrected, names=False)
            self._statistics = WordStatistics.total([survey.statistics for survey in surveys.values()])

    def _words_of(self, query: str) -> _Words:
        if not self._request.syntax:
            return _Words(query, query, query)
        names = field_names(self._facts)
        parsed = parse_query(query, lambda name: name in names)
        return _Words(query, parsed.text, parsed.words)

    def _survey(self, queries: Sequence[_Words], *, names: bool) -> dict[int, Survey]:
        """What each shard knows of the words of queries: one round for all of them."""
        asked = [tuple(query) for query in queries]
        return self._shards.call("survey", {n: (facts.commit, asked, names) for n, facts in self._facts.items()})

    def _terms(self, number: int) -> list[QueryTerm]:
        return list(self._searcher._analyser.query_terms(self._texts[number]).values())

    def _names(self, number: int) -> Mapping[int, float]:
        return self._asked[number].names if self._asked else NO_NAMES

    # -- ranking

    def _make_plan(self, k: int | None) -> Plan:
        return shard_plan(self._query, k, PlanContext(spec=self._manifest.spec))

    def _rankings(self, n_ranked: int) -> list[Ranking]:
        """The best documents of each query, by the levels that one index has: see `plait.search.paging`."""
        queries = self._shard_queries()
        n_wanted = n_ranked + (self._exclude is not None)
        ends = levels(self.plan, n_wanted, self._query.n_passages)
        runs = [self._run_plan(end, queries) for end in ends]
        joined = [join([run[number] for run in runs], ends, n_wanted) for number in range(len(self._texts))]
        if self._exclude is not None:
            joined = [without(ranking, self._exclude).top(n_ranked) for ranking in joined]
        min_score = resolve_min_score(self._request.min_score, self.plan, self._calibration)
        return [at_least(ranking, min_score) for ranking in joined]

    def _shard_queries(self) -> dict[int, ShardQuery]:
        """The queries for each shard: with the names and candidates that it has."""
        queries = {}
        deadline = current_deadline()
        seconds = None if deadline is None or deadline.seconds is None else max(deadline.remaining(), 1e-3)
        assert self._embeddings is not None
        for number, facts in self._facts.items():
            asked = [
                replace(
                    query,
                    names={doc & MASK: strength for doc, strength in query.names.items() if doc >> SHIFT == number},
                )
                for query in self._asked
            ]
            queries[number] = replace(
                self._query,
                commit=facts.commit,
                texts=self._texts,
                embeddings=self._embeddings,
                asked=asked,
                statistics=self._statistics,
                candidates=None if self._candidates is None else self._candidates.get(number, []),
                seconds=seconds,
            )
        return queries

    def _run_plan(self, k: int, queries: Mapping[int, ShardQuery]) -> list[Ranking]:
        """The k best documents of each query."""
        plan = self._make_plan(k)
        first = plan.retrievers[0]
        if isinstance(first, MethodRetriever) and isinstance(first.method, SteppedMethod):
            return self._run_method(first.name, first.method, k, queries)
        if isinstance(first, RescoredMulti):
            return self._run_rescored(first, k, queries)
        with self._trace.stage("retrieve"):
            retrieved: dict[int, ShardLists] = self._shards.call(
                "retrieve", {n: (query, k) for n, query in queries.items()}
            )
        if not plan.is_fused:
            return [self._merge_alone(plan, retrieved, number) for number in range(len(self._texts))]
        lists = [self._merge_lists(plan, retrieved, number) for number in range(len(self._texts))]
        scored: dict[int, ShardScores] = {}
        if plan.rescorers:
            docs = [
                union(
                    [
                        *(one.docs for one in rankings.values()),
                        *(lists_.named[number] + (n << SHIFT) for n, lists_ in retrieved.items()),
                    ]
                )
                for number, rankings in enumerate(lists)
            ]
            with self._trace.stage("rescore"):
                arguments = {
                    n: (query, k, [_of_shard(one, n) for one in docs]) for n, query in queries.items() if n in retrieved
                }
                arguments = {n: given for n, given in arguments.items() if any(map(len, given[2]))}
                scored = self._shards.call("rescore", arguments) if arguments else {}
            lists = [_merge_scores(plan, scored, number) for number in range(len(self._texts))]
        with self._trace.stage("fuse"):
            rankings = []
            for number, by_name in enumerate(lists):
                fused = plan.fuse(by_name, self._lengths(plan, retrieved, number), self._names(number))
                if plan.smoothing:
                    fused = plan.smooth(fused, _Vectors(scored, number).of)
                rankings.append(plan.lift_fused(fused, self._names(number)))
            return rankings

    def _run_method(self, name: str, method: SteppedMethod, k: int, queries: Mapping[int, ShardQuery]) -> list[Ranking]:
        n_documents = sum(facts.n_documents for facts in self._facts.values())
        n_first = k if self._query.n_passages == n_documents else 2 * k
        with self._trace.stage("retrieve"):
            rankings = search_in_steps(self._shards.call, queries, method, k, n_first, _numbered)
        return [replace(ranking, parts={name: ranking.scores}) for ranking in rankings]

    def _run_rescored(self, retriever: RescoredMulti, k: int, queries: Mapping[int, ShardQuery]) -> list[Ranking]:
        """As `RescoredMulti.retrieve`: the candidates of all shards are cut to those that one index would have."""
        depth, first = max(k, retriever.n_candidates), retriever.first.name
        with self._trace.stage(first):
            listed = self._shards.call("candidates", {n: (query, k) for n, query in queries.items()})
        candidates = [
            _best([_numbered(rankings[number], n) for n, rankings in listed.items()], depth)
            for number in range(len(self._texts))
        ]
        docs = [np.sort(ranking.docs) for ranking in candidates]
        arguments = {n: (queries[n], k, [_of_shard(one, n) for one in docs]) for n in listed}
        arguments = {n: given for n, given in arguments.items() if any(map(len, given[2]))}
        with self._trace.stage("rescore"):
            scored = self._shards.call("score_candidates", arguments) if arguments else {}
        answers = []
        for number, ranking in enumerate(candidates):
            best = _best([_numbered(rankings[number], n) for n, rankings in scored.items()], k)
            order = np.argsort(ranking.docs)
            scores = ranking.scores[order][np.searchsorted(ranking.docs[order], best.docs)]
            answers.append(replace(best, parts={first: scores, retriever.name: best.scores}))
        return answers

    def _merge_alone(self, plan: Plan, retrieved: Mapping[int, ShardLists], number: int) -> Ranking:
        name = plan.retrievers[0].name
        names = self._names(number)
        parts = [_numbered(lists.lists[number][name], shard) for shard, lists in retrieved.items()]
        merged = _best(parts, plan.k + len(names))
        if not plan.lift_names or not names or self._statistics is None:
            return merged.top(plan.k)
        return lift(merged, names, self._statistics.highest(self._terms(number))).top(plan.k)

    def _merge_lists(self, plan: Plan, retrieved: Mapping[int, ShardLists], number: int) -> dict[str, Ranking]:
        return {
            retriever.name: _best(
                [_numbered(lists.lists[number][retriever.name], shard) for shard, lists in retrieved.items()],
                plan.list_depth,
            )
            for retriever in plan.retrievers
        }

    def _lengths(self, plan: Plan, retrieved: Mapping[int, ShardLists], number: int) -> dict[str, float]:
        """As `Plan.lengths`, from what the shards know of the collection."""
        assert self._embeddings is not None
        if not isinstance(plan.fusion, BoundedSum):
            multi = self._embeddings.multi
            return {} if multi is None else {"multi": float(max(len(multi[number]), 1))}
        lengths = vector_lengths(self._embeddings, number)
        for stage in plan.rescorers or plan.retrievers:
            if stage.name == "bm25" and self._statistics is not None:
                lengths["bm25"] = self._statistics.bound(self._terms(number))
            elif stage.name == "sparse":
                lengths["sparse"] = self._sparse_bound(retrieved, number)
        return lengths

    def _sparse_bound(self, retrieved: Mapping[int, ShardLists], number: int) -> float:
        assert self._embeddings is not None
        assert self._embeddings.sparse is not None
        _, weights = self._embeddings.sparse[number]
        peaks = [lists.peaks[number] for lists in retrieved.values() if lists.peaks is not None]
        return float((np.max(peaks, axis=0) * weights[weights > 0]).sum()) if peaks and len(weights) else 1.0

    # -- pages

    def _reranker(self) -> Reranker | None:
        given = self._request.rerank
        if given is None or given is False:
            return None
        if self._given is None:
            raise ConfigError("reranking reads the query's text, and only vectors were given; pass texts as well")
        from plait.rerank.reranker import Reranker

        if isinstance(given, Reranker):
            return given
        return None if self._searcher._load_reranker is None else self._searcher._load_reranker(given)

    def _pages(self, rankings: list[Ranking], reranker: Reranker | None) -> list[list[Hit]]:
        """The hits of the page that the request names."""
        request = self._request
        everything = reranker is not None or request.sort is not None or request.group_by is not None
        pages, groups = [], list[dict[int, Group]]()
        stored = self._fetch(rankings, FetchOptions()) if everything else [[] for _ in rankings]
        if reranker is not None:
            rankings, stored = self._rerank(reranker, rankings, stored)
        for ranking, hits in zip(rankings, stored, strict=True):
            positions, of_page = list(range(len(ranking))), dict[int, Group]()
            if request.group_by is not None:
                positions, of_page = best_of_groups(hits, request.group_by)
            if request.sort is not None:
                positions = sort_positions(positions, hits, request.sort)
            positions = positions[request.offset : None if request.k is None else request.offset + request.k]
            pages.append(np.asarray(positions, np.int64))
            groups.append(of_page)
        options = FetchOptions(passages=request.passages, explain=request.explain, highlight=request.highlight)
        answers = self._fetch([take(one, page) for one, page in zip(rankings, pages, strict=True)], options)
        return [
            self._finished(hits, page.tolist(), of_page, reranked=reranker is not None)
            for hits, page, of_page in zip(answers, pages, groups, strict=True)
        ]

    def _finished(
        self, hits: list[Hit], positions: list[int], groups: Mapping[int, Group], *, reranked: bool
    ) -> list[Hit]:
        hits = [
            replace(
                hit,
                group=groups.get(position),
                explanation=None if hit.explanation is None else replace(hit.explanation, rank=position + 1),
            )
            for hit, position in zip(hits, positions, strict=False)
        ]
        return hits if reranked else with_confidence(hits, self.plan, self._calibration)

    def _rerank(
        self, reranker: Reranker, rankings: Sequence[Ranking], stored: Sequence[Sequence[Hit]]
    ) -> tuple[list[Ranking], list[list[Hit]]]:
        """Each block of `depth` documents reordered, so that a page is the same whatever k is."""
        new_rankings, new_hits = [], []
        for number, (ranking, hits) in enumerate(zip(rankings, stored, strict=True)):
            by_doc = dict(zip(ranking.docs.tolist(), hits, strict=True))
            blocks = []
            for start in range(0, len(ranking), reranker.depth):
                block = take(ranking, np.arange(start, min(start + reranker.depth, len(ranking))))
                texts = [_passage(by_doc[doc]) for doc in block.docs.tolist()]
                blocks += reranker.rerank([self._texts[number]], [texts], [block], reranker.depth, self._trace)
            reranked = concatenate(blocks) if blocks else ranking
            new_rankings.append(reranked)
            new_hits.append([by_doc[doc] for doc in reranked.docs.tolist()])
        return new_rankings, new_hits

    def _fetch(self, rankings: Sequence[Ranking], options: FetchOptions) -> list[list[Hit]]:
        """The hits of each ranking, in its order. Of a shard that does not answer any more they are left out."""
        queries, owners = self._shard_queries(), [ranking.docs >> SHIFT for ranking in rankings]
        arguments = {}
        for shard in sorted({int(number) for one in owners for number in one.tolist()}):
            local = [
                _local(take(ranking, np.flatnonzero(of == shard))) for ranking, of in zip(rankings, owners, strict=True)
            ]
            arguments[shard] = (queries[shard], local, options)
        with self._trace.stage("fetch"):
            fetched: dict[int, list[list[Hit]]] = self._shards.call("fetch", arguments) if arguments else {}
        answers = []
        for number, of in enumerate(owners):
            waiting = {shard: iter(hits[number]) for shard, hits in fetched.items()}
            answers.append([next(waiting[shard]) for shard in of.tolist() if shard in waiting])
        return answers


class _Words(NamedTuple):
    """A query as it was given, as an encoder reads it, and its words."""

    given: str
    text: str
    words: str


class _Surveyed(NamedTuple):
    """What a shard knows of one query."""

    absent: frozenset[str]
    names: Mapping[int, float]


def _of_query(survey: Survey, number: int) -> _Surveyed:
    return _Surveyed(survey.absent[number], survey.names[number])


def field_names(facts: Mapping[int, ShardFacts]) -> frozenset[str]:
    """The metadata fields of all shards."""
    return frozenset().union(*(one.field_names for one in facts.values()))


class _CollectionFacts:
    """What `understand` needs to know of all shards together: from the survey of the query, and for a misspelt one by
    asking again."""

    def __init__(self, run: _Run, query: _Words, surveyed: Mapping[int, _Surveyed]) -> None:
        self._run, self._query, self._surveyed = run, query, surveyed
        self._terms = set(run._searcher._analyser.query_terms(query.words)) if surveyed else set[str]()

    @property
    def analyser(self) -> Analyser:
        return self._run._searcher._analyser

    def field_names(self) -> frozenset[str]:
        return field_names(self._run._facts)

    def absent(self, words: Sequence[str]) -> list[str]:
        if not words:
            return []
        if self._terms.issuperset(words):
            answers = [set(one.absent) for one in self._surveyed.values()]
        else:
            answers = [set(missing) for missing, _ in self._ask(SpellingQuestion(words=words))]
        absent = set(words).intersection(*answers)
        return [word for word in words if word in absent]

    def support(self, variants: Sequence[str], known: Sequence[str]) -> list[tuple[int, int]]:
        if not variants:
            return []
        counts = [support for _, support in self._ask(SpellingQuestion(variants=variants, known=known))]
        return [
            (sum(one[number][0] for one in counts), sum(one[number][1] for one in counts))
            for number in range(len(variants))
        ]

    def names(self, given: str, text: str) -> Mapping[int, float]:
        if text == self._query.text:
            by_shard = {shard: one.names for shard, one in self._surveyed.items()}
        else:
            surveys = self._run._survey([_Words(given, text, "")], names=True)
            by_shard = {shard: one.names[0] for shard, one in surveys.items()}
        names = {(shard << SHIFT) + doc: strength for shard, one in by_shard.items() for doc, strength in one.items()}
        # Identifiers within a query count only if no document has the whole query as its name.
        least = WITHIN if max(names.values(), default=0.0) > WITHIN else 0.0
        return {doc: strength for doc, strength in names.items() if strength > least}

    def _ask(self, question: SpellingQuestion) -> list[tuple[list[str], list[tuple[int, int]]]]:
        facts = self._run._facts
        answers = self._run._shards.call("spelling", {n: (one.commit, question) for n, one in facts.items()})
        return list(answers.values())


class _Vectors:
    """The dense vectors of passages that shards sent with their scores, by row."""

    def __init__(self, scored: Mapping[int, ShardScores], number: int) -> None:
        parts = [(shard, one.rows[number], one.vectors[number]) for shard, one in scored.items() if one.rows]
        self._rows = np.concatenate([np.zeros(0, np.int64), *(rows + (shard << SHIFT) for shard, rows, _ in parts)])
        self._vectors = [vectors for _, _, vectors in parts]
        order = np.argsort(self._rows)
        self._rows = self._rows[order]
        self._values = np.concatenate(self._vectors)[order] if self._vectors else np.zeros((0, 0), np.float32)

    def of(self, rows: NDArray[np.int64]) -> NDArray[np.float32] | None:
        at = np.minimum(np.searchsorted(self._rows, rows), max(len(self._rows) - 1, 0))
        if not len(self._rows) or np.any(self._rows[at] != rows) or len(self._values) != len(self._rows):
            return None
        return self._values[at]


def _merge_scores(plan: Plan, scored: Mapping[int, ShardScores], number: int) -> dict[str, Ranking]:
    return {
        rescorer.name: _best(
            [_numbered(one.lists[number][rescorer.name], shard) for shard, one in scored.items()], None
        )
        for rescorer in plan.rescorers
    }


def _best(parts: Sequence[Ranking], k: int | None) -> Ranking:
    """One ranking of the k best, or of all, from the rankings of shards, which share no document."""
    none = np.zeros(0, np.int64)
    if not parts:
        return Ranking(none, np.zeros(0, np.float32), none)
    names = set.intersection(*(set(part.parts) for part in parts))
    parts = [replace(part, parts={name: part.parts[name] for name in part.parts if name in names}) for part in parts]
    joined = concatenate(parts)
    order = best_first(joined.docs, joined.scores, np.arange(len(joined)), len(joined) if k is None else k)
    return take(joined, order.rows)


def _numbered(ranking: Ranking, shard: int) -> Ranking:
    """The ranking of a shard with the numbers of the collection."""
    base = shard << SHIFT
    rows = np.where(ranking.rows == UNKNOWN_ROW, UNKNOWN_ROW, ranking.rows + base)
    return replace(ranking, docs=ranking.docs + base, rows=rows, imputed=None)


def _local(ranking: Ranking) -> Ranking:
    """The reverse of `_numbered`."""
    rows = np.where(ranking.rows == UNKNOWN_ROW, UNKNOWN_ROW, ranking.rows & MASK)
    return replace(ranking, docs=ranking.docs & MASK, rows=rows)


def _of_shard(docs: Docs, shard: int) -> Docs:
    """The documents of one shard among ascending ones, with its own numbers."""
    begin, end = np.searchsorted(docs, [shard << SHIFT, (shard + 1) << SHIFT])
    return docs[begin:end] & MASK


def _passage(hit: Hit) -> str:
    assert hit.span is not None
    return with_title(hit.title, hit.text[hit.span.start : hit.span.end])


def _check_mode(request: SearchRequest) -> None:
    mode = find_mode(request.mode)  # raises for an unknown one
    if mode.asks_cross_encoder:
        raise ConfigError(
            f"mode {mode.name!r} spends its calls of a cross-encoder step by step in a single index, and is not for "
            f"sharded collections; search with rerank instead, or choose one of {', '.join(MODES)}"
        )
    if mode.name not in MODES:
        raise ConfigError(
            f"mode {mode.name!r} depends on what a single index found, and is not for sharded collections; choose one "
            f"of {', '.join(MODES)}"
        )

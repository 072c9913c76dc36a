"""`Searcher` answers a `SearchRequest`: from queries to hits on one snapshot. It holds the encoder, the rerankers and
what modes keep between searches.

Importing this module declares the modes that ask a cross-encoder, which live above `plait.search`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

from plait.checks import as_list, as_path, check_count, check_flag, check_type, shown
from plait.deadline import Timeout, check_timeout, deadline_scope
from plait.embeddings import Embeddings
from plait.encode.load import EXTERNAL, LazyEncoder
from plait.encode.protocol import Encoder, TermReader, TokenReader
from plait.errors import ConfigError, FilterError, InputError, QueryError
from plait.locks import OnceDict
from plait.records import Explanation, Hit
from plait.search.filtering import DocFilter, filter_candidates, filter_documents
from plait.search.hits import FoundDocument, fetch_documents
from plait.search.modes import PlanContext, declare, find_mode, resolve
from plait.search.params import Params
from plait.search.plan import Plan
from plait.search.query import QueryBatch
from plait.search.ranking import Ranking
from plait.search.scores import check_min_score
from plait.search.text_query import TextQuery, understand
from plait.search.trace import Trace
from plait.search_run import SearchRun
from plait.storage.store import Snapshot, Store

if TYPE_CHECKING:
    from plait.rerank.cross_encoder import PairScorer
    from plait.rerank.reranker import Reranker

    # A model folder, an installed model, one of the hub, or True for plait-cross-small.
    Rerank = Reranker | PairScorer | str | Path | bool | None

DEFAULT_WINDOW = 100

declare(dict.fromkeys(("anncur", "adacur", "axn"), "plait.cur.modes"))


class SearchKeywords(TypedDict, total=False):
    """The keywords of every search call; `SearchRequest` describes them."""

    mode: str
    params: Params | None
    filter: str | None
    candidates: Sequence[str] | None
    exact: bool
    rerank: Rerank
    explain: bool
    trace: Trace | None
    timeout: Timeout
    offset: int
    sort: str | None
    group_by: str | None
    window: int
    passages: int
    min_score: float | str | None
    syntax: bool
    highlight: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchRequest:
    """What a search is to do, apart from its queries."""

    k: int | None = 10  # documents to return; None: as many as the mode looks at
    mode: str = "hybrid"
    params: Params | None = None  # of the mode's class, such as DenseParams; None: defaults
    filter: str | None = None  # a condition on metadata
    candidates: Sequence[str] | None = None  # ids: no other documents are scored
    exact: bool = False  # score every passage
    rerank: Rerank = None
    explain: bool = False  # fill in `Hit.explanation`
    trace: Trace | None = None  # stages and their times are added to it
    timeout: Timeout = None  # seconds, or a Deadline: the search then ends with SearchTimeoutError
    offset: int = 0  # documents to skip: those of the pages before
    sort: str | None = None  # a field: the best `window` documents in its order; "-year" descends
    group_by: str | None = None  # a field: of the best `window` documents the best one for each of its values
    window: int = DEFAULT_WINDOW  # documents that `sort`, `group_by` and facets look at
    passages: int = 1  # of each hit, at most
    # Hits score at least this; "auto", in mode hybrid: more than nearly all queries that nothing in the index is about.
    min_score: float | str | None = None
    syntax: bool = True  # read operators in queries: "a phrase", -word, field:word, prefix*
    highlight: bool = False  # fill in `Hit.highlights`

    def __post_init__(self) -> None:
        if self.k is not None and (type(self.k) is not int or self.k < 1):
            raise ConfigError(f"k is {shown(self.k)}; it must be a whole number of at least 1")
        check_type("mode", self.mode, str, "the name of a mode", ConfigError)
        if self.filter is not None:
            check_type("a filter", self.filter, str, "text, such as 'year >= 2020'", FilterError)
        if self.trace is not None:
            check_type("trace", self.trace, Trace, "a plait.Trace", ConfigError)
        check_flag("exact", self.exact)
        check_flag("explain", self.explain)
        check_flag("syntax", self.syntax)
        check_flag("highlight", self.highlight)
        check_min_score(self.min_score)
        check_timeout(self.timeout)
        check_count("offset", self.offset, least=0)
        check_count("window", self.window)
        check_count("passages", self.passages)
        if self.sort is not None or self.group_by is not None:
            from plait.filters.parser import field_named  # most searches do neither
            from plait.storage.fields import Sort

            _ = None if self.sort is None else Sort.parse(self.sort)
            _ = None if self.group_by is None else field_named(self.group_by)

    @property
    def n_ranked(self) -> int | None:
        """How many documents must be ranked; None: as many as the mode looks at."""
        if self.sort is not None or self.group_by is not None:
            return self.window
        return None if self.k is None else self.offset + self.k


class Searcher:
    """What stays the same between the searches of an index, while its snapshots change. Threads may share it."""

    def __init__(self, store: Store, source: LazyEncoder, *, n_threads: int) -> None:
        self._store, self._source, self._n_threads = store, source, n_threads
        self._mode_cache: OnceDict[str, Any] = OnceDict()  # models and tables that modes keep between searches
        self._rerankers: OnceDict[str | None, Reranker] = OnceDict()  # loaded ones, by model

    def close(self) -> None:
        """Forgets loaded models and tables. Searches that have begun finish."""
        self._mode_cache.clear()
        self._rerankers.clear()

    def search(self, snapshot: Snapshot, queries: Sequence[str], request: SearchRequest) -> list[list[Hit]]:
        """The hits of each query."""
        queries = as_list("queries", queries, "texts", QueryError)
        if not queries:
            return []
        with deadline_scope(request.timeout):
            run = self._run(snapshot, request)
            batch = self._encode(snapshot, queries, run.plan, run.trace, syntax=request.syntax)
            return run.hits(batch, self._token_reader(run.plan, request))

    def search_embeddings(
        self,
        snapshot: Snapshot,
        embeddings: Embeddings,
        texts: Sequence[str] | None,
        request: SearchRequest,
        *,
        exclude: int | None = None,
        stored: bool = False,
    ) -> list[list[Hit]]:
        """The same for queries that are encoded already; without texts, stages that read text are left out. `exclude`
        is the number of a document that is not to be found. `stored` says that the embeddings are those that the index
        stores, and not those that the model gives."""
        due = "plait.Embeddings, such as Embeddings(dense=array)"
        check_type("the embeddings of queries", embeddings, Embeddings, due, InputError)
        if texts is not None:
            texts = as_list("texts", texts, "texts", QueryError)
            for text in texts:
                check_type("each of the texts", text, str, "text", QueryError)
        with deadline_scope(request.timeout):
            run = self._run(snapshot, request, exclude=exclude, without_text=texts is None)
            if texts is not None and embeddings.present() and len(texts) != len(embeddings):
                raise QueryError(f"{len(texts)} texts were given for {len(embeddings)} queries")
            embeddings = embeddings if stored else snapshot.projected(embeddings)
            if texts is None:
                batch = QueryBatch([""] * len(embeddings), embeddings)
            else:
                words, syntax = run.plan.lift_names, request.syntax
                asked = [understand(snapshot, text, syntax=syntax, words=words, correct=False) for text in texts]
                batch = QueryBatch([query.words for query in asked], embeddings, asked)
            return run.hits(batch, self._token_reader(run.plan, request))

    def best_documents(self, snapshot: Snapshot, query: str, request: SearchRequest) -> list[int]:
        """The numbers of the `window` best documents of a query."""
        with deadline_scope(request.timeout):
            run = self._run(snapshot, replace(request, k=request.window, offset=0, sort=None, group_by=None))
            (ranking,) = run.rankings(self._encode(snapshot, [query], run.plan, run.trace, syntax=request.syntax))
            return [int(doc) for doc in ranking.docs]

    def rank(self, snapshot: Snapshot, queries: Sequence[str], request: SearchRequest) -> list[Ranking]:
        """The rankings alone: document numbers and scores."""
        with deadline_scope(request.timeout):
            trace = request.trace or Trace()
            reranker = self._reranker(request.rerank, trace)
            plan = self._plan(snapshot, request, reranker)
            batch = self._encode(snapshot, queries, plan, trace, syntax=request.syntax)
            return self._rank(snapshot, plan, batch, request, reranker, trace)[0]

    def explain(self, snapshot: Snapshot, query: str, hit: Hit | str, request: SearchRequest) -> Explanation:
        """Explains a hit, or the document of an id, also if the search does not find it."""
        from plait.search.explain import Explainer

        with deadline_scope(request.timeout):
            trace = request.trace or Trace()
            reranker = self._reranker(request.rerank, trace)
            plan = self._plan(snapshot, request, reranker)
            batch = self._encode(snapshot, [query], plan, trace, syntax=request.syntax)
            (ranking,), _ = self._rank(snapshot, plan, batch, request, reranker, trace)
            with trace.stage("explain"):
                reader = self._token_reader(plan, replace(request, explain=True))
                return Explainer(snapshot, batch, 0, ranking, reader).explain(hit)

    def plan(self, snapshot: Snapshot, request: SearchRequest) -> Plan:
        """The plan of a request, with every number settled."""
        return self._plan(snapshot, request, self._reranker(request.rerank, Trace()))

    def fingerprint(self, snapshot: Snapshot, request: SearchRequest) -> str:
        """A digest of all that rankings depend on: the index at this commit, its encoder, the plan and the reranker."""
        files = [file.record for segment in snapshot.segments for file in segment.files.values()]
        reranker = self._reranker(request.rerank, Trace())
        facts = (
            self._store.created,
            snapshot.commit,
            self._store.fingerprint,
            files,
            self._plan(snapshot, request, reranker),
            *([] if reranker is None else [reranker.scorer.fingerprint, reranker.depth, reranker.blend]),
        )
        return hashlib.sha256(repr(facts).encode()).hexdigest()

    def _plan(
        self, snapshot: Snapshot, request: SearchRequest, reranker: Reranker | None, n_threads: int | None = None
    ) -> Plan:
        by_candidates = request.candidates is not None and find_mode(request.mode).exact_candidates
        k = request.k if reranker is None or request.k is None else max(request.k, reranker.depth)
        context = PlanContext.of(
            snapshot,
            k=k,
            exact=request.exact or by_candidates,
            n_threads=n_threads or self._n_threads,
            exclude_from_hybrid=self._store.exclude_from_hybrid,
            cache=self._mode_cache,
        )
        return resolve(request.mode, request.params, context)

    def _encode(
        self, snapshot: Snapshot, queries: Sequence[str], plan: Plan, trace: Trace, *, syntax: bool
    ) -> QueryBatch:
        for query in queries:
            check_query(query)
        encoder = None
        if plan.needs_encoder:
            with trace.stage("load"):
                encoder = self._source.get()
        with trace.stage("read query"):
            asked = [_understand(snapshot, query, plan, encoder, syntax=syntax) for query in queries]
        words = [query.words for query in asked]
        if encoder is None:
            return QueryBatch(words, Embeddings(), asked)
        with trace.stage("encode"):
            embeddings = encoder.encode_queries([query.text for query in asked])
            return QueryBatch(words, snapshot.projected(embeddings), asked)

    def _run(
        self, snapshot: Snapshot, request: SearchRequest, *, exclude: int | None = None, without_text: bool = False
    ) -> SearchRun:
        trace = request.trace or Trace()
        reranker = self._reranker(request.rerank, trace)
        if without_text and reranker is not None:
            raise ConfigError("reranking reads the query's text, and only vectors were given; pass texts as well")

        def make_plan(k: int | None, n_threads: int) -> Plan:
            plan = self._plan(snapshot, replace(request, k=k), None, n_threads)
            return plan.without_text() if without_text else plan

        return SearchRun(
            snapshot,
            request,
            make_plan,
            reranker=reranker,
            doc_filter=lambda: _doc_filter(snapshot, request, trace),
            exclude=exclude,
            n_threads=self._n_threads,
            trace=trace,
        )

    def _rank(
        self,
        snapshot: Snapshot,
        plan: Plan,
        batch: QueryBatch,
        request: SearchRequest,
        reranker: Reranker | None,
        trace: Trace,
    ) -> tuple[list[Ranking], list[dict[int, FoundDocument]] | None]:
        """The rankings, and the documents if reranking has fetched them."""
        doc_filter = _doc_filter(snapshot, request, trace)
        rankings = plan.run(snapshot, batch, doc_filter, trace)
        if reranker is None:
            return rankings, None
        documents = _fetch(snapshot, batch, rankings, trace)
        passages = [
            [by_number[doc].passage for doc in ranking.docs.tolist()]
            for ranking, by_number in zip(rankings, documents, strict=True)
        ]
        return reranker.rerank(batch.texts, passages, rankings, request.k or plan.k, trace), documents

    def _reranker(self, given: Rerank, trace: Trace) -> Reranker | None:
        """The reranker of a request; loaded if it is given by name."""
        if given is None or given is False:
            return None
        from plait.rerank.reranker import Reranker, load_reranker  # most searches are not reranked

        if isinstance(given, Reranker):
            return given
        if not isinstance(given, str | Path | bool) and hasattr(given, "score") and hasattr(given, "fingerprint"):
            return Reranker(given)
        model = None if given is True else str(as_path("rerank", given))

        def load() -> Reranker:
            with trace.stage("load reranker"):
                return load_reranker(model, n_threads=self._n_threads)

        return self._rerankers.get(model, load)

    def _token_reader(self, plan: Plan, request: SearchRequest) -> TokenReader | TermReader | None:
        """The encoder for explanations and highlights, if it was used and knows the tokens of vectors or the names of
        terms."""
        if not (request.explain or request.highlight) or not plan.needs_encoder or self._store.fingerprint == EXTERNAL:
            return None
        encoder = self._source.get()
        return encoder if isinstance(encoder, TokenReader | TermReader) else None


def _understand(snapshot: Snapshot, query: str, plan: Plan, encoder: Encoder | None, *, syntax: bool) -> TextQuery:
    reader = encoder if isinstance(encoder, TokenReader) else None
    return understand(snapshot, query, syntax=syntax, words=plan.lift_names, reader=reader)


def _doc_filter(snapshot: Snapshot, request: SearchRequest, trace: Trace) -> DocFilter | None:
    doc_filter = None
    if request.filter is not None:
        with trace.stage("filter"):
            doc_filter = filter_documents(snapshot, request.filter)
    if request.candidates is not None:
        doc_filter = filter_candidates(snapshot, request.candidates, doc_filter)
    return doc_filter


def _fetch(
    snapshot: Snapshot, batch: QueryBatch, rankings: Sequence[Ranking], trace: Trace
) -> list[dict[int, FoundDocument]]:
    with trace.stage("fetch"):
        return [fetch_documents(snapshot, text, ranking) for text, ranking in zip(batch.texts, rankings, strict=True)]


def check_query(query: str) -> None:
    """Raises QueryError for a query that is not text, is empty or cannot be encoded."""
    if not isinstance(query, str):
        raise QueryError(f"a query must be text; got {type(query).__name__}: {shown(query)}")
    if not query.strip():
        raise QueryError("the query is empty; say what to search for")
    try:
        query.encode()
    except UnicodeEncodeError as error:
        raise QueryError(
            f"the query has a lone surrogate at character {error.start}, which is not valid text; decode it again"
        ) from None

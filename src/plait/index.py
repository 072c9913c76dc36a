"""`Index`: what `plait.open` gives. It holds an encoder, a store and one view of it, and puts writing and searching
together; each of the parts is usable alone."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from plait.closing import Closing
from plait.codec.pooling import Pooling
from plait.embeddings import Embeddings
from plait.encode.chunking import with_title
from plait.encode.protocol import EmbeddingSpec, Encoder
from plait.encode.source import ARRAYS, EncoderSource
from plait.errors import ConfigError, NotAnIndexError, QueryError
from plait.records import Document, Explanation, Hit, Span
from plait.search.candidates import numbers_of
from plait.search.hits import load_hits
from plait.search.ranking import QueryBatch
from plait.search.trace import Trace
from plait.searcher import Searcher
from plait.storage.info import StoreInfo, info
from plait.storage.store import APART, Snapshot, Store, refuse_other_language, refuse_other_pooling

if TYPE_CHECKING:
    from plait.encode.preload import ModelPreload
    from plait.ingest import AddProgress, AddReport
    from plait.searcher import Rerank
    from plait.storage.compaction import CompactionReport
    from plait.storage.fusion_weights import FittedWeights
    from plait.tune.recall import OnProgress, Tuned
    from plait.tune.synthetic_queries import Queries
    from plait.tune.weight_search import Fitted

RANK_BATCH = 32  # queries that are encoded and searched together when many are ranked


def open_index(
    path: str | Path,
    *,
    create: bool = False,
    model: str | Path | None = None,
    encoder: Encoder | None = None,
    spec: EmbeddingSpec | None = None,
    fixed: int | None = None,
    pool_factor: int | None = None,
    pooling: str | None = None,
    language: str | None = None,
    precision: str | None = None,
    n_threads: int | None = None,
    read_only: bool = False,
    ahead: ModelPreload | None = None,
) -> Index:
    """Opens the index at `path`; with `create`, makes it if there is none.

    An index remembers the model it was built with and loads it when text is first encoded. `model` names another
    (bundled, or a model folder), `encoder` is any object of that protocol, and `shape` makes an index for vectors
    that the caller brings (see `Index.add_embeddings`).

    A new index may keep fewer vectors of the multi strand: exactly `fixed` for every passage, or one for every
    `pool_factor`, put together as `pooling` says ("hierarchical", the default, or "sequential"). It remembers that for
    all that is added later; opening it with another choice is an error, and without one is not.

    `language` ("de", "ru", ...) stems the full text of a new index for one language; without it English is stemmed, and
    texts of any languages may be mixed. It too is remembered.

    `ahead` is a model that is loading already; it is used if it is the
    index's.
    """
    if sum(given is not None for given in (model, encoder, spec)) > 1:
        raise ConfigError("give one of model, encoder and shape: they all say where the vectors come from")
    path = Path(path)
    threads = n_threads or os.cpu_count() or 1
    source = EncoderSource(model, encoder, precision=precision, n_threads=threads, ahead=ahead)
    try:
        store = Store.open(path, read_only=read_only)
    except NotAnIndexError:
        if not create:
            raise
        store = _create(path, source, spec, Pooling.asked(fixed, pool_factor, pooling), language)
    try:
        refuse_other_pooling(store, Pooling.asked(fixed, pool_factor, pooling, kept=store.pooling))
        refuse_other_language(store, language)
        source.serve(store)
    except BaseException:
        store.close()
        raise
    return Index(store, source, n_threads=threads)


def _create(
    path: Path, source: EncoderSource, spec: EmbeddingSpec | None, pooling: Pooling | None, language: str | None
) -> Store:
    chosen: dict[str, Any] = {"pooling": pooling, "language": language}
    if spec is not None:
        return Store.create(path, fingerprint=ARRAYS, spec=spec, facts={}, **chosen)
    facts: dict[str, Any] = {} if source.name is None else {"model": source.name}
    if apart := source.apart():
        facts[APART] = list(apart)
    return Store.create(path, fingerprint=source.fingerprint(), spec=source.spec(), facts=facts, **chosen)


class Index(Closing):
    """A store with an encoder. Reads see one state of it; writes through this object are seen at once."""

    def __init__(self, store: Store, source: EncoderSource, *, n_threads: int) -> None:
        self._store, self._source, self._n_threads = store, source, n_threads
        self._view: Snapshot | None = None
        self._searcher = Searcher(store, source, n_threads=n_threads)

    # -- looking after it

    @property
    def path(self) -> Path:
        return self._store.path

    @property
    def spec(self) -> EmbeddingSpec:
        return self._store.spec

    @property
    def encoder(self) -> Encoder:
        """The encoder the index was built with; loaded now if it was not."""
        return self._source.get()

    def __len__(self) -> int:
        return self._snapshot().n_documents

    def info(self) -> StoreInfo:
        return info(self._store)

    def refresh(self) -> None:
        """Moves on to the newest state that any process has committed."""
        if self._view is not None:
            self._view.close()
        self._view = None

    def close(self) -> None:
        self.refresh()
        self._store.close()

    # -- writing

    def add(
        self,
        documents: Iterable[Document | Mapping[str, Any]],
        *,
        commit_every: int = 2000,
        merge: bool = True,
        on_progress: Callable[[AddProgress], None] | None = None,
    ) -> AddReport:
        """Adds documents, or replaces those whose id is there already; what is unchanged is not encoded again.

        A document is a mapping with `id` and `text`, perhaps `title`, and any other fields as metadata. Each
        `commit_every` documents are durable together; if an error or Ctrl-C ends the call, the batches before stay.
        With `merge`, small segments are put together on the way.
        """
        if isinstance(documents, Mapping | str):
            raise ConfigError("add takes a sequence of documents; put a single one in a list")
        from plait.ingest import add_documents  # searching does not need it

        with self._store.writer() as writer:
            try:
                return add_documents(
                    writer,
                    self._source.get(),
                    documents,
                    commit_every=commit_every,
                    merge=merge,
                    on_progress=on_progress,
                )
            finally:
                self.refresh()

    def add_embeddings(
        self,
        documents: Sequence[Document | Mapping[str, Any]],
        embeddings: Embeddings,
        *,
        spans: Sequence[Sequence[Span]] | None = None,
        merge: bool = True,
    ) -> None:
        """Adds documents with vectors made elsewhere: one item of `strands` for each, or for each of their `spans`.
        `merge` as in `add`."""
        from plait.ingest import as_document, merge_after

        checked = [as_document(document) for document in documents]
        if spans is None:
            spans = [[Span(0, len(document.text))] for document in checked]
        with self._store.writer() as writer:
            try:
                writer.write(checked, spans, embeddings)
                if merge:
                    merge_after("the documents were added", writer)
            finally:
                self.refresh()

    def delete(self, ids: Sequence[str] | None = None, *, filter: str | None = None, merge: bool = True) -> int:
        """Deletes by id, or what a filter accepts; says how many were there. They are gone from every later search, and
        cost what they are, not what the index is. With `merge`, segments of mostly deleted rows are rewritten."""
        if isinstance(ids, str):
            raise ConfigError("delete takes a sequence of ids; put a single one in a list")
        if (ids is None) == (filter is None):
            raise ConfigError("delete takes ids or a filter: one of the two")
        from plait.filters import compile_filter
        from plait.ingest import merge_after

        condition = None if filter is None else compile_filter(filter)
        with self._store.writer() as writer:
            try:
                n_deleted = writer.delete(ids or []) if condition is None else writer.delete_where(condition)
                if merge and n_deleted:
                    merge_after("the documents were deleted", writer)
            finally:
                self.refresh()
        return n_deleted

    def create_field_index(self, name: str) -> bool:
        """Makes filters on a field of the metadata quick, from now on: it need not be read from every document. It is
        named as in a filter (`year`, `author.name`). False if it was so already."""
        with self._store.writer() as writer:
            made = writer.create_field_index(name)
        self.refresh()
        return made

    def compact(
        self,
        *,
        bits: int | None = None,
        fine: bool | None = None,
        retrain: bool = False,
        fixed: int | None = None,
        pool_factor: int | None = None,
        pooling: str | None = None,
    ) -> CompactionReport:
        """Rewrites the index as one segment without what was deleted, and compresses the multi strand to `bits` (1, 2,
        4 or 8) a dimension; `fine` keeps 8 bits beside them for the last stage of a search. An index that does not pool
        yet can be pooled now, and from now on, with the choices of `plait.open`. See `Writer.compact`."""
        with self._store.writer() as writer:
            try:
                asked = Pooling.asked(fixed, pool_factor, pooling, kept=writer.pooling)
                return writer.compact(bits=bits, fine=fine, retrain=retrain, pooling=asked, n_threads=self._n_threads)
            finally:
                self.refresh()

    def tune(
        self,
        recall: float,
        k: int = 10,
        *,
        queries: Sequence[str] | Embeddings | Queries | None = None,
        n_queries: int | None = None,
        seed: int = 0,
        of: str | None = None,
        best: bool = False,
        on_progress: OnProgress | None = None,
    ) -> Tuned:
        """Finds the fastest search of the multi strand that reaches `recall` at k, and saves it in the index.

        `of` says what the recall is a share of: the best by the "vectors" as they were or by their "codes"; by default
        the first if `compact` has measured what codes lose. Nothing is saved where it is out of reach, unless `best`.
        """
        from plait.tune.recall import Goal
        from plait.tune.recall_of_index import tune_store

        goal = Goal(recall=recall, k=k, of=of, best=best)
        try:
            return tune_store(
                self._store,
                self._source.get,
                goal,
                queries=queries,
                n_queries=n_queries,
                seed=seed,
                n_threads=self._n_threads,
                on_progress=on_progress,
            )
        finally:
            self.refresh()

    def tune_fusion(
        self,
        queries: Mapping[str, str],
        qrels: Mapping[str, Mapping[str, int]],
        *,
        fusion: str | None = None,
        data: str = "",
        on_progress: Callable[[int], None] | None = None,
    ) -> tuple[Fitted, FittedWeights | None]:
        """Fits the weights that hybrid search gives to strands by nDCG@10 on judged queries (texts and judgements by
        query id), and saves them if they do better than the defaults on queries that took no part in choosing.

        Says what was found, and what was saved, if anything was.
        """
        from plait.tune.fusion_weights import weigh_store

        try:
            return weigh_store(
                self._store,
                self._source.get,
                queries,
                qrels,
                fusion=fusion,
                data=data,
                n_threads=self._n_threads,
                on_progress=on_progress,
            )
        finally:
            self.refresh()

    def reset_tuning(self) -> None:
        """Forgets what `tune` and `tune_fusion` saved; searches then use the defaults."""
        with self._store.writer() as writer:
            writer.tune(None)
            writer.weigh(None)
        self.refresh()

    # -- searching

    def search(
        self,
        query: str,
        k: int = 10,
        *,
        mode: str = "hybrid",
        filter: str | None = None,
        candidates: Sequence[str] | None = None,
        exact: bool = False,
        options: Mapping[str, object] | None = None,
        trace: Trace | None = None,
        explain: bool = False,
        rerank: Rerank = None,
    ) -> list[Hit]:
        """The k best documents for a query, best first.

        `options` are settings of the mode by name, such as {"n_probe": 16}. `candidates` are ids: only these documents
        are scored, and in mode multi every one of them. `explain` fills in why each is a hit (`Hit.explanation`).
        `rerank` is a cross-encoder that puts the best 50 in order: a `Reranker`, a model folder, or True for the
        bundled one.
        """
        found = self.search_many(
            [query],
            k,
            mode=mode,
            filter=filter,
            candidates=candidates,
            exact=exact,
            options=options,
            trace=trace,
            explain=explain,
            rerank=rerank,
        )
        return found[0]

    def search_many(
        self,
        queries: Sequence[str],
        k: int = 10,
        *,
        mode: str = "hybrid",
        filter: str | None = None,
        candidates: Sequence[str] | None = None,
        exact: bool = False,
        options: Mapping[str, object] | None = None,
        trace: Trace | None = None,
        explain: bool = False,
        rerank: Rerank = None,
    ) -> list[list[Hit]]:
        """`search` for each of the queries, encoded together."""
        if isinstance(queries, str):
            raise QueryError("search_many takes a sequence of queries; use search for one")
        trace = trace or Trace()
        exact = exact or (candidates is not None and mode == "multi")
        snapshot = self._snapshot()
        plan = self._searcher.plan(snapshot, mode, exact=exact, options=options)
        batch = self._searcher.encode(queries, plan, trace)
        rankings = self._searcher.run(
            snapshot, plan, batch, k, trace, filter=filter, candidates=candidates, rerank=rerank
        )
        with trace.stage("fetch"):
            hits = [load_hits(snapshot, text, found) for text, found in zip(queries, rankings, strict=True)]
        return self._searcher.explained(snapshot, plan, batch, rankings, hits, trace) if explain else hits

    def search_embeddings(
        self,
        embeddings: Embeddings,
        k: int = 10,
        *,
        texts: Sequence[str] | None = None,
        mode: str = "hybrid",
        filter: str | None = None,
        candidates: Sequence[str] | None = None,
        exact: bool = False,
        options: Mapping[str, object] | None = None,
        trace: Trace | None = None,
        explain: bool = False,
    ) -> list[list[Hit]]:
        """Search with query vectors made elsewhere; `texts` are needed only by modes that read text (bm25, hybrid)."""
        trace = trace or Trace()
        exact = exact or (candidates is not None and mode == "multi")
        snapshot = self._snapshot()
        plan = self._searcher.plan(snapshot, mode, exact=exact, options=options)
        if texts is None:
            plan = plan.without_text()
        elif len(texts) != len(embeddings):
            raise QueryError(f"{len(texts)} texts were given for {len(embeddings)} queries")
        batch = QueryBatch(texts if texts is not None else [""] * len(embeddings), embeddings)
        rankings = self._searcher.run(snapshot, plan, batch, k, trace, filter=filter, candidates=candidates)
        hits = [load_hits(snapshot, text, found) for text, found in zip(batch.texts, rankings, strict=True)]
        return self._searcher.explained(snapshot, plan, batch, rankings, hits, trace) if explain else hits

    def explain(
        self,
        query: str,
        hit: Hit | str,
        *,
        mode: str = "hybrid",
        filter: str | None = None,
        exact: bool = False,
        options: Mapping[str, object] | None = None,
    ) -> Explanation:
        """Why a document, given as a hit or by its id, is where it is for this query. One that the search does not find
        is explained all the same, without score and rank."""
        snapshot, trace = self._snapshot(), Trace()
        plan = self._searcher.plan(snapshot, mode, exact=exact, options=options)
        batch = self._searcher.encode([query], plan, trace)
        ranking = self._searcher.run(snapshot, plan, batch, plan.depth, trace, filter=filter)[0]
        from plait.search.explain import Explainer

        return Explainer(snapshot, batch, 0, ranking, self._searcher.tokens(plan)).explain(hit)

    def rank(
        self,
        queries: Sequence[str],
        k: int,
        *,
        mode: str = "hybrid",
        exact: bool = False,
        options: Mapping[str, object] | None = None,
        rerank: Rerank = None,
        on_progress: Callable[[int], None] | None = None,
    ) -> list[list[tuple[str, float]]]:
        """Ids and scores alone, for evaluation over many queries."""
        snapshot, trace = self._snapshot(), Trace()
        plan = self._searcher.plan(snapshot, mode, exact=exact, options=options)
        ranked = []
        for start in range(0, len(queries), RANK_BATCH):
            batch = self._searcher.encode(queries[start : start + RANK_BATCH], plan, trace)
            for found in self._searcher.run(snapshot, plan, batch, k, trace, rerank=rerank):
                ids = snapshot.fetch_ids([int(doc) for doc in found.docs])
                ranked.append([(id, float(score)) for id, score in zip(ids, found.scores, strict=True)])
            if on_progress is not None:
                on_progress(len(ranked))
        return ranked

    def state(
        self,
        *,
        mode: str = "hybrid",
        exact: bool = False,
        options: Mapping[str, object] | None = None,
        rerank: Rerank = None,
    ) -> str:
        """Names what `rank` answers from: the index at this commit, its encoder, and the plan of the mode. While it is
        the same, so are the answers."""
        snapshot = self._snapshot()
        return self._searcher.state(snapshot, self._searcher.plan(snapshot, mode, exact=exact, options=options), rerank)

    def texts(self, ids: Sequence[str]) -> list[str]:
        """Title and text of each of these documents, in this order; an id that is not there is a QueryError."""
        snapshot = self._snapshot()
        numbers_of(snapshot, ids)  # names what is missing
        found = snapshot.lookup(ids)
        return [with_title(one.title, one.text) for one in snapshot.fetch([found[id] for id in ids])]

    def unknown_filter_fields(self, filter: str) -> str:
        """`no document has a field langauge; did you mean language?` of a filter that found nothing; empty where every
        field that it names is one that some document has."""
        return self._snapshot().unknown_filter_fields(filter)

    # -- within

    def _snapshot(self) -> Snapshot:
        if self._view is None:
            self._view = self._store.snapshot()
        return self._view

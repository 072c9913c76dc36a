"""`Index`: what `plait.open` returns. It joins a store, an encoder and a searcher; each of them is usable alone."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, Unpack

from plait.checks import as_list, as_path, check_count, check_flag, check_type, shown
from plait.codec.pooling import Pooling
from plait.deadline import Timeout, check_timeout, deadline_scope
from plait.embeddings import Embeddings
from plait.encode.load import EXTERNAL, LazyEncoder, check_encoder
from plait.encode.protocol import EmbeddingSpec, Encoder
from plait.errors import ConfigError, InputError, NotAnIndexError, QueryError, StoreError
from plait.records import Document, Explanation, Hit, Span
from plait.searcher import Searcher, SearchKeywords, SearchRequest
from plait.storage.info import StoreInfo, info
from plait.storage.shared_snapshot import SharedSnapshot
from plait.storage.store import EXCLUDE_FROM_HYBRID, Snapshot, Store, check_same_language, check_same_pooling

if TYPE_CHECKING:
    from plait.encode.chunking import Chunker
    from plait.encode.preload import ModelPreload
    from plait.ingest import AddProgress, AddReport
    from plait.storage.compaction import CompactionReport
    from plait.storage.saved_settings import FittedWeights
    from plait.tune.fusion_weights import Fitted
    from plait.tune.recall import OnProgress, Tuned
    from plait.tune.synthetic_queries import Queries


def open_index(
    path: str | Path,
    *,
    create: bool = False,
    model: str | Path | None = None,
    encoder: Encoder | None = None,
    spec: EmbeddingSpec | None = None,
    pooling: Pooling | None = None,
    language: str | None = None,
    precision: str | None = None,
    n_threads: int | None = None,
    device: str | None = None,
    read_only: bool = False,
    write_timeout: float = 30.0,
    preload: ModelPreload | None = None,
) -> Index:
    """Opens the index at `path`. With `create`, makes one if the folder does not exist or is empty.

    Vectors come from one of three sources. `model` is the name of a bundled model or a model folder; `encoder` is any
    object with the `Encoder` protocol; `spec` is for an index whose vectors the caller makes (`Index.add_embeddings`).
    An index remembers a bundled or installed model and loads it when a text is first encoded. A model folder must be
    given again to encode texts: plait loads no folder because an index names it.

    `pooling` stores fewer vectors for each passage: `Pooling(fixed=32)` or `Pooling(factor=2)`. `language` ("de",
    "ru", ...) stems the full text for that language; the default stems English and takes texts in any language. The
    index remembers both. Opening an index with a different value is a ConfigError; leaving them out is not.

    A write waits at most `write_timeout` seconds for other writers, of any thread or process, and then raises
    LockedError; 0 does not wait.

    `device` is where a model runs: "cpu", which is the default, or "cuda", which needs onnxruntime-gpu. A given
    `encoder` runs where it was loaded.

    `preload` is a model that is already loading in the background; it is used if it is the model of the index.
    """
    source = _source(model, encoder, spec, pooling, precision, n_threads, device, preload)
    path = as_path("the path of an index", path)
    check_flag("create", create)
    check_flag("read_only", read_only)
    try:
        store = Store.open(path, read_only=read_only, write_timeout=write_timeout)
    except NotAnIndexError:
        if not create:
            raise
        try:
            store = _create(path, source, spec, pooling, language, write_timeout=write_timeout)
        except StoreError:
            store = _open_if_created(path, read_only=read_only, write_timeout=write_timeout)
    return _bind(store, source, pooling, language)


def _source(
    model: str | Path | None,
    encoder: Encoder | None,
    spec: EmbeddingSpec | None,
    pooling: Pooling | None,
    precision: str | None,
    n_threads: int | None,
    device: str | None,
    preload: ModelPreload | None = None,
) -> LazyEncoder:
    if sum(given is not None for given in (model, encoder, spec)) > 1:
        raise ConfigError("give one of model, encoder and spec: each says where the vectors come from")
    if pooling is not None and not isinstance(pooling, Pooling):
        raise ConfigError(f"pooling must be a plait.Pooling, such as Pooling(fixed=32); got {shown(pooling)}")
    if n_threads is not None:
        check_count("n_threads", n_threads)
    if encoder is not None:
        check_encoder(encoder)
    if spec is not None:
        check_type("spec", spec, EmbeddingSpec, "a plait.EmbeddingSpec, such as EmbeddingSpec(dense=384)", ConfigError)
    model = model if model is None or isinstance(model, str) else as_path("model", model)
    n_threads = n_threads or os.cpu_count() or 1
    return LazyEncoder(model, encoder, precision=precision, n_threads=n_threads, preload=preload, device=device)


def _open_if_created(path: Path, *, read_only: bool, write_timeout: float) -> Store:
    """The index that another thread or process has created meanwhile; else raises the error of creating it."""
    error = sys.exception()
    try:
        return Store.open(path, read_only=read_only, write_timeout=write_timeout)
    except StoreError:
        assert error is not None
        raise error from None


def _bind(store: Store, source: LazyEncoder, pooling: Pooling | None, language: str | None) -> Index:
    try:
        check_same_pooling(store, pooling)
        check_same_language(store, language)
        source.bind(store.path, fingerprint=store.fingerprint, model=store.properties.get("model"))
    except BaseException:
        store.close()
        raise
    return Index(store, source, n_threads=source.n_threads)


def _create(
    path: Path,
    source: LazyEncoder,
    spec: EmbeddingSpec | None,
    pooling: Pooling | None,
    language: str | None,
    *,
    write_timeout: float,
) -> Store:
    chosen: dict[str, Any] = {"pooling": pooling, "language": language, "write_timeout": write_timeout}
    if spec is not None:
        return Store.create(path, fingerprint=EXTERNAL, spec=spec, properties={}, **chosen)
    properties: dict[str, Any] = {} if source.name is None else {"model": source.name}
    if excluded := source.exclude_from_hybrid():
        properties[EXCLUDE_FROM_HYBRID] = list(excluded)
    return Store.create(path, fingerprint=source.fingerprint(), spec=source.spec(), properties=properties, **chosen)


class Index:
    """Documents on disk, with the encoder that made their embeddings.

    Searches see one committed state of the index. Writes through this object are visible to it at once; writes of
    other processes after `refresh`. Use it in a `with` statement, or call `close`.

    Threads may share it and call every method at any time. Searches run side by side; writes wait for one another.
    """

    def __init__(self, store: Store, source: LazyEncoder, *, n_threads: int) -> None:
        """Not called by users: see `plait.open`, `Index.open` and `Index.create`."""
        self._store, self._source, self._n_threads = store, source, n_threads
        self._snapshots = SharedSnapshot(store.snapshot)
        self._searcher = Searcher(store, source, n_threads=n_threads)
        self._closed = False

    @classmethod
    def create(
        cls,
        path: str | Path,
        *,
        model: str | Path | None = None,
        encoder: Encoder | None = None,
        spec: EmbeddingSpec | None = None,
        pooling: Pooling | None = None,
        language: str | None = None,
        precision: str | None = None,
        n_threads: int | None = None,
        device: str | None = None,
        write_timeout: float = 30.0,
    ) -> Index:
        """Makes a new index; StoreError if `path` holds one already. The arguments are those of `plait.open`."""
        try:
            Store.open(Path(path), read_only=True).close()
        except NotAnIndexError:
            pass
        else:
            raise StoreError(f"{path} holds an index already; open it with Index.open, or choose another folder")
        source = _source(model, encoder, spec, pooling, precision, n_threads, device)
        store = _create(Path(path), source, spec, pooling, language, write_timeout=write_timeout)
        return _bind(store, source, pooling, language)

    @classmethod
    def open(
        cls,
        path: str | Path,
        *,
        model: str | Path | None = None,
        encoder: Encoder | None = None,
        precision: str | None = None,
        n_threads: int | None = None,
        device: str | None = None,
        read_only: bool = False,
        write_timeout: float = 30.0,
    ) -> Index:
        """Opens an index that exists; NotAnIndexError if there is none. The arguments are those of `plait.open`."""
        return open_index(
            path,
            model=model,
            encoder=encoder,
            precision=precision,
            n_threads=n_threads,
            device=device,
            read_only=read_only,
            write_timeout=write_timeout,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        kinds = ", ".join(f"{kind} {size}" for kind, size in self.spec.sizes().items()) or "text only"
        try:
            state = f"{len(self):,} documents"
        except StoreError:
            state = "closed" if self._closed else "unreadable"
        return f"<plait.Index {str(self.path)!r}: {state}, {kinds}>"

    # -- state

    @property
    def path(self) -> Path:
        return self._store.path

    @property
    def spec(self) -> EmbeddingSpec:
        """Which kinds of embeddings the index holds, and their sizes."""
        return self._store.spec

    @property
    def encoder(self) -> Encoder:
        """The encoder that the index was built with; loads it if that has not happened yet. All indexes of a process
        with the same model share one."""
        self._store.check_open()
        return self._source.get()

    @property
    def snapshot(self) -> Snapshot:
        """The committed state that searches see now. It stays valid as long as you refer to it, also after a write or
        `refresh`; until then it keeps files of older commits."""
        return self._snapshots.pinned()

    @property
    def searcher(self) -> Searcher:
        """Plans and runs searches on a snapshot; for code that needs rankings rather than hits."""
        return self._searcher

    def __len__(self) -> int:
        """The number of documents."""
        with self._snapshots.use() as snapshot:
            return snapshot.n_documents

    def info(self) -> StoreInfo:
        """Counts, sizes on disk, model and tuning."""
        self._store.check_open()
        return info(self._store)

    def refresh(self) -> None:
        """Makes the newest commit of any process visible to searches."""
        self._snapshots.replace()

    def close(self) -> None:
        """Releases files and memory; the index cannot be used afterwards. Searches and writes of other threads that
        have begun are finished first. Closing twice does nothing."""
        self._closed = True
        self._store.close()
        self._snapshots.replace()
        self._searcher.close()
        self._source.release()

    # -- writing

    def add(
        self,
        documents: Iterable[Document | Mapping[str, Any]],
        *,
        commit_every: int = 2000,
        chunker: Chunker | None = None,
        merge: bool = True,
        on_progress: Callable[[AddProgress], None] | None = None,
    ) -> AddReport:
        """Adds documents; a document whose id exists is replaced, or skipped without encoding if it did not change.

        A document is a mapping with `id` and `text`, optionally `title`; all other fields are metadata. Every
        `commit_every` documents are one commit: an error or Ctrl-C leaves the commits before it in place. `chunker`
        splits long documents into passages; None uses the one that fits the encoder. `merge` allows small segments to
        be merged after each commit.
        """
        if isinstance(documents, Mapping | str | bytes) or not isinstance(documents, Iterable):
            raise ConfigError(
                f"add takes a sequence of documents; put a single document in a list (got {shown(documents)})"
            )
        check_count("commit_every", commit_every)
        check_flag("merge", merge)
        from plait.ingest import add_documents  # searches do not need it

        with self._store.writer() as writer:
            try:
                return add_documents(
                    writer,
                    self._source.get(),
                    documents,
                    commit_every=commit_every,
                    chunker=chunker,
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
        """Adds documents with embeddings made by the caller.

        `embeddings` has one item for each document; with `spans`, one for each passage of each document, in order.
        `merge` is as in `add`.
        """
        from plait.ingest import as_document, merge_after

        documents = as_list("documents", documents, "documents")
        check_flag("merge", merge)
        if spans is not None:
            of = "spans for each document"
            spans = [as_list("the spans of a document", part, "Span") for part in as_list("spans", spans, of)]
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

    def delete(
        self,
        ids: Sequence[str] | None = None,
        *,
        filter: str | None = None,
        merge: bool = True,
        timeout: Timeout = None,
    ) -> int:
        """Deletes documents by id, or all that a filter accepts; returns how many were deleted.

        Unknown ids are ignored. The cost grows with the documents deleted, not with the index. `merge` allows
        segments with many deleted rows to be rewritten. `timeout` is for the filter, as in `search`; if it ends the
        filter, nothing is deleted.
        """
        if ids is not None:
            ids = as_list("the ids to delete", ids, "texts", ConfigError)
        check_flag("merge", merge)
        if (ids is None) == (filter is None):
            raise ConfigError("delete takes ids or a filter: one of the two")
        from plait.filters import compile_filter
        from plait.ingest import merge_after

        check_timeout(timeout)
        condition = None if filter is None else compile_filter(filter)
        with self._store.writer() as writer:
            try:
                if condition is None:
                    n_deleted = writer.delete(ids or [])
                else:
                    with deadline_scope(timeout):
                        n_deleted = writer.delete_where(condition)
                if merge and n_deleted:
                    merge_after("the documents were deleted", writer)
            finally:
                self.refresh()
        return n_deleted

    def create_field_index(self, name: str) -> bool:
        """Makes filters on a metadata field fast, for present and later documents; False if the field has an index.

        The field is named as in a filter: `year`, `author.name`.
        """
        with self._store.writer() as writer:
            created = writer.create_field_index(name)
        self.refresh()
        return created

    def compact(
        self,
        *,
        bits: int | None = None,
        keep_8bit: bool | None = None,
        retrain: bool = False,
        pooling: Pooling | None = None,
    ) -> CompactionReport:
        """Rewrites the index as one segment without deleted rows, and compresses the multi vectors.

        `bits` (1, 2, 4 or 8) is the size of a residual code for each dimension; by default the current size, or 2.
        `keep_8bit` stores 8-bit codes as well, for the last stage of a search. `retrain` fits the codec again.
        `pooling` pools an index that has no pooling yet, now and for documents added later. Readers are not disturbed;
        if it fails, the index is unchanged.
        """
        with self._store.writer() as writer:
            try:
                return writer.compact(
                    bits=bits, keep_8bit=keep_8bit, retrain=retrain, pooling=pooling, n_threads=self._n_threads
                )
            finally:
                self.refresh()

    # -- tuning

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
        """Finds the fastest multi-vector search that reaches `recall` at k, and saves its parameters in the index.

        The recall is measured against exhaustive search over the original "vectors" or over their "codes" (`of`); the
        default is "vectors" if `compact` has measured what the codes lose. Queries are made from the documents unless
        given. If the recall is out of reach nothing is saved; `best` saves the best parameters in that case.
        """
        from plait.tune.recall import Goal, tune_index

        goal = Goal(recall=recall, k=k, of=of, best=best)
        try:
            return tune_index(
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
        """Fits the fusion weights of hybrid search to judged queries, by nDCG@10.

        `queries` and `qrels` are texts and judgements by query id; `data` names them in reports. Half of the queries
        choose the weights, the other half tests them: they are saved only if they beat the default weights there.
        Returns the fit, and the saved weights or None.
        """
        from plait.tune.fusion_weights import tune_fusion_weights

        check_type("queries", queries, Mapping, "a mapping of query ids to texts", QueryError)
        check_type("qrels", qrels, Mapping, "a mapping of query ids to mappings of document ids to gains", InputError)
        try:
            return tune_fusion_weights(
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
        """Deletes what `tune` and `tune_fusion` saved; searches use the defaults again."""
        with self._store.writer() as writer:
            writer.save_tuned_params(None)
            writer.save_fusion_weights(None)
        self.refresh()

    # -- searching

    def search(self, query: str, k: int = 10, **keywords: Unpack[SearchKeywords]) -> list[Hit]:
        """The k best documents for a query, best first.

        `mode` is the way of searching; `params` are its parameters, such as DenseParams(n_probe=16). `filter` is a
        condition on metadata. `candidates` are ids: only these documents are scored, in mode multi every one of them.
        `exact` scores every passage. `rerank` is a cross-encoder that reorders the best 50: a `Reranker`, a model
        folder, or True for the bundled one. `explain` fills in `Hit.explanation`; `trace` collects stages and times.
        `timeout` is seconds, or a `Deadline` that another thread can cancel: a search that does not end in time is a
        SearchTimeoutError.
        """
        request = SearchRequest(k=k, **keywords)
        with self._snapshots.use() as snapshot:
            return self._searcher.search(snapshot, [query], request)[0]

    def search_many(self, queries: Sequence[str], k: int = 10, **keywords: Unpack[SearchKeywords]) -> list[list[Hit]]:
        """`search` for each of the queries, which are encoded together."""
        if isinstance(queries, str):
            raise QueryError("search_many takes a sequence of queries; use search for one")
        queries = as_list("queries", queries, "texts", QueryError)
        request = SearchRequest(k=k, **keywords)
        with self._snapshots.use() as snapshot:
            return self._searcher.search(snapshot, queries, request)

    def search_embeddings(
        self,
        embeddings: Embeddings,
        k: int = 10,
        *,
        texts: Sequence[str] | None = None,
        **keywords: Unpack[SearchKeywords],
    ) -> list[list[Hit]]:
        """`search` with embeddings of queries that the caller made. `texts` are needed only by modes that read text:
        hybrid search without them leaves BM25 out."""
        request = SearchRequest(k=k, **keywords)
        with self._snapshots.use() as snapshot:
            return self._searcher.search_embeddings(snapshot, embeddings, texts, request)

    def explain(self, query: str, hit: Hit | str, **keywords: Unpack[SearchKeywords]) -> Explanation:
        """Why a document, given as a hit or by its id, has its rank for this query. A document that the search does not
        find is explained too, without score and rank."""
        request = SearchRequest(k=None, **keywords)
        with self._snapshots.use() as snapshot:
            return self._searcher.explain(snapshot, query, hit, request)

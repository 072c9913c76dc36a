"""`Index`: what `plait.open` returns. It joins a store, an encoder and a searcher; each of them is usable alone."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self, Unpack

from plait.checks import as_list, as_path, check_count, check_flag, check_type, shown
from plait.codec.pooling import Pooling
from plait.codec.projection import FittedProjection, Projection
from plait.deadline import Timeout, check_timeout, deadline_scope
from plait.embeddings import Embeddings
from plait.encode.chunking import Chunking
from plait.encode.load import EXTERNAL, LazyEncoder, check_encoder
from plait.encode.protocol import EmbeddingSpec, Encoder
from plait.errors import (
    ConfigError,
    DocumentError,
    FilterError,
    InputError,
    NotAnIndexError,
    PlaitError,
    QueryError,
    StoreError,
)
from plait.records import Document, Explanation, Hit, Span
from plait.searcher import Searcher, SearchKeywords, SearchRequest
from plait.storage.info import StoreInfo, info
from plait.storage.origins import read_roots
from plait.storage.shared_snapshot import SharedSnapshot
from plait.storage.snapshot import StoredDocument
from plait.storage.store import (
    EXCLUDE_FROM_HYBRID,
    IMPORTED,
    Snapshot,
    Store,
    check_same_chunking,
    check_same_language,
    check_same_pooling,
    check_same_projection,
    check_same_spec,
)

if TYPE_CHECKING:
    from plait.encode.chunking import Chunker
    from plait.encode.preload import ModelPreload
    from plait.folder_sync.run import FileProgress, SyncReport
    from plait.ingest import AddProgress, AddReport
    from plait.readers import ReadOptions, SourceReport
    from plait.storage.compaction import CompactionReport
    from plait.storage.fields import Facets
    from plait.storage.saved_settings import Calibration, FittedWeights
    from plait.storage.writer import Writer
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
    projection: Projection | None = None,
    language: str | None = None,
    chunking: Chunking | None = None,
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

    `pooling` stores fewer vectors for each passage: `Pooling(fixed=32)` or `Pooling(factor=2)`. `projection` makes
    multi vectors narrower, by directions that the first `compact` with enough vectors fits: `Projection(dims=128)`.
    `language` ("de", "ru", ...) stems the full text for that language; the default stems English and takes texts in
    any language. `chunking` says how documents are split into passages, such as `Chunking(size=200, by="sentence")`;
    the default is as long as the model takes. The index remembers the four. Opening an index with a different value is
    a ConfigError; leaving them out is not.

    A write waits at most `write_timeout` seconds for other writers, of any thread or process, and then raises
    LockedError; 0 does not wait.

    `device` is where a model runs: "cpu", which is the default, or "cuda", which needs onnxruntime-gpu. A given
    `encoder` runs where it was loaded.

    `preload` is a model that is already loading in the background; it is used if it is the model of the index.

        reader = plait.open("my-index", read_only=True)
    """
    source = _source(model, encoder, spec, precision, n_threads, device, preload)
    chosen = _Chosen(spec, pooling, projection, language, chunking)
    path = as_path("the path of an index", path)
    check_flag("create", create)
    check_flag("read_only", read_only)
    if create and read_only:
        raise ConfigError("create and read_only exclude each other: a new index would stay empty; give one of them")
    try:
        store = Store.open(path, read_only=read_only, write_timeout=write_timeout)
    except NotAnIndexError:
        if not create:
            raise
        try:
            store = _create(path, source, chosen, write_timeout=write_timeout)
        except StoreError:
            store = _open_if_created(path, read_only=read_only, write_timeout=write_timeout)
    return _bind(store, source, chosen)


@dataclass(frozen=True, slots=True)
class _Chosen:
    """What a caller chose of an index: kept by a new one, compared with one that exists. None accepts any."""

    spec: EmbeddingSpec | None
    pooling: Pooling | None
    projection: Projection | None
    language: str | None
    chunking: Chunking | None

    def __post_init__(self) -> None:
        if self.pooling is not None and not isinstance(self.pooling, Pooling):
            raise ConfigError(f"pooling must be a plait.Pooling, such as Pooling(fixed=32); got {shown(self.pooling)}")
        if self.projection is not None:
            due = "a plait.Projection, such as Projection(dims=128)"
            check_type("projection", self.projection, Projection, due, ConfigError)
        if self.chunking is not None:
            due = "a plait.Chunking, such as Chunking(size=200)"
            check_type("chunking", self.chunking, Chunking, due, ConfigError)

    def check(self, store: Store) -> None:
        """Raises ConfigError if an index was made with other values."""
        check_same_spec(store, self.spec)
        check_same_pooling(store, self.pooling)
        check_same_projection(store, self.projection)
        check_same_language(store, self.language)
        check_same_chunking(store, self.chunking)


def _source(
    model: str | Path | None,
    encoder: Encoder | None,
    spec: EmbeddingSpec | None,
    precision: str | None,
    n_threads: int | None,
    device: str | None,
    preload: ModelPreload | None = None,
) -> LazyEncoder:
    if sum(given is not None for given in (model, encoder, spec)) > 1:
        raise ConfigError("give one of model, encoder and spec: each says where the vectors come from")
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


def _bind(store: Store, source: LazyEncoder, chosen: _Chosen) -> Index:
    try:
        chosen.check(store)
        imported = store.properties.get(IMPORTED)
        source.bind(
            store.path,
            fingerprint=store.fingerprint,
            model=store.properties.get("model"),
            imported=imported.get("model", "") if isinstance(imported, dict) else None,
            spec=store.spec,
        )
    except BaseException:
        store.close()
        raise
    return Index(store, source, n_threads=source.n_threads)


def _create(path: Path, source: LazyEncoder, chosen: _Chosen, *, write_timeout: float) -> Store:
    options: dict[str, Any] = {
        "pooling": chosen.pooling,
        "projection": chosen.projection,
        "language": chosen.language,
        "chunking": chosen.chunking,
        "write_timeout": write_timeout,
    }
    if chosen.spec is not None:
        return Store.create(path, fingerprint=EXTERNAL, spec=chosen.spec, properties={}, **options)
    properties: dict[str, Any] = {} if source.name is None else {"model": source.name}
    if excluded := source.exclude_from_hybrid():
        properties[EXCLUDE_FROM_HYBRID] = list(excluded)
    return Store.create(path, fingerprint=source.fingerprint(), spec=source.spec(), properties=properties, **options)


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
        projection: Projection | FittedProjection | None = None,
        language: str | None = None,
        chunking: Chunking | None = None,
        precision: str | None = None,
        n_threads: int | None = None,
        device: str | None = None,
        write_timeout: float = 30.0,
    ) -> Index:
        """Makes a new index; StoreError if `path` holds one already. The arguments are those of `plait.open`.

        `projection` may also be that of another index, `other.projection`: parts of one collection that share it give
        scores that can be compared.
        """
        try:
            Store.open(Path(path), read_only=True).close()
        except NotAnIndexError:
            pass
        else:
            raise StoreError(f"{path} holds an index already; open it with Index.open, or choose another folder")
        source = _source(model, encoder, spec, precision, n_threads, device)
        wanted = None if isinstance(projection, FittedProjection) else projection
        chosen = _Chosen(spec, pooling, wanted, language, chunking)
        store = _create(Path(path), source, chosen, write_timeout=write_timeout)
        if isinstance(projection, FittedProjection):
            with store.writer() as writer:
                writer.adopt_projection(projection)
        return _bind(store, source, chosen)

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
        """Which kinds of embeddings the index takes, and their sizes: those of its model. A projection stores multi
        vectors with fewer dimensions."""
        return self._store.spec

    @property
    def projection(self) -> FittedProjection | None:
        """The projection of the multi vectors, if one was fitted; see `Index.create` for another index with it."""
        with self._snapshots.use() as snapshot:
            return None if snapshot.projection is None else snapshot.projection.fitted

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
                report = add_documents(
                    writer,
                    self._source.get(),
                    documents,
                    commit_every=commit_every,
                    chunker=chunker,
                    merge=merge,
                    on_progress=on_progress,
                )
                self._calibrate_if_due(writer)
                return report
            finally:
                self.refresh()

    def add_files(
        self,
        paths: str | Path | Sequence[str | Path],
        *,
        options: ReadOptions | None = None,
        on_error: str = "skip",
        report: SourceReport | None = None,
        commit_every: int = 2000,
        chunker: Chunker | None = None,
        merge: bool = True,
        on_progress: Callable[[FileProgress], None] | None = None,
    ) -> AddReport:
        """Adds the documents of files and folders; "-" is JSON lines on standard input. The guide "Files" has the
        formats, and how a file gets its id.

        `options` choose files and fields. With on_error="skip", what cannot be read is counted and named in `report`
        and left out; "stop" raises SourceError. The other arguments are as in `add`. Files that are gone stay in the
        index: see `sync`.
        """
        from plait.folder_sync.load import add_files

        check_count("commit_every", commit_every)
        check_flag("merge", merge)
        with self._store.writer() as writer:
            try:
                loaded = add_files(
                    writer,
                    self._source.get,
                    paths,
                    options=options,
                    on_error=on_error,
                    report=report,
                    commit_every=commit_every,
                    chunker=chunker,
                    merge=merge,
                    on_progress=on_progress,
                )
                self._calibrate_if_due(writer)
                return loaded
            finally:
                self.refresh()

    def sync(
        self,
        folders: str | Path | Sequence[str | Path],
        *,
        options: ReadOptions | None = None,
        name: str | None = None,
        allow_empty: bool = False,
        dry_run: bool = False,
        commit_every: int = 2000,
        chunker: Chunker | None = None,
        merge: bool = True,
        on_progress: Callable[[FileProgress], None] | None = None,
    ) -> SyncReport:
        """Makes the index equal to folders: adds, changes and removes the documents of their files.

        What other sources added is not touched: the index remembers the folder of each file. A file is read again if
        its size or time changed, and encoded again only if its text did. A file that was renamed or moved is not
        encoded again. A file that cannot be read is named in the report and stops nothing.

        `name` is the name of the folder in the index, for a folder that was moved. `allow_empty` allows the removal of
        all documents of a folder without files. With `dry_run` nothing is written.

            report = index.sync("notes")
            print(report.added, report.removed)
        """
        from plait.folder_sync.run import plan_only, sync_folders

        check_count("commit_every", commit_every)
        for flag, value in (("allow_empty", allow_empty), ("dry_run", dry_run), ("merge", merge)):
            check_flag(flag, value)
        if dry_run:
            with self._snapshots.use() as snapshot:
                rows = snapshot.catalogue.rows
                return plan_only(rows, read_roots(rows), folders, options, name)
        with self._store.writer() as writer:
            try:
                report = sync_folders(
                    writer,
                    self._source.get,
                    folders,
                    options=options,
                    name=name,
                    allow_empty=allow_empty,
                    commit_every=commit_every,
                    chunker=chunker,
                    merge=merge,
                    on_progress=on_progress,
                )
                self._calibrate_if_due(writer)
                return report
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
                self._calibrate_if_due(writer)
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
        if filter is not None and not n_deleted:
            with self._snapshots.use() as snapshot:
                _warn_of_unknown_fields(snapshot, filter)
        return n_deleted

    def update_metadata(self, changes: Mapping[str, Mapping[str, Any]], *, replace: bool = False) -> int:
        """Changes the metadata of documents, given by id, in one commit; returns how many are different now.

        Texts are not encoded again. Fields that are not named stay; with `replace`, the metadata of a document is the
        given one alone. An unknown id or a value that cannot be stored is a DocumentError, and then nothing changes.

            index.update_metadata({"intro": {"year": 2025, "tags": ["new"]}})
        """
        check_type("changes", changes, Mapping, "a mapping of ids to metadata", ConfigError)
        check_flag("replace", replace)
        for id, metadata in changes.items():
            check_type(f"the metadata of {shown(id)}", metadata, Mapping, "a mapping", DocumentError)
        with self._store.writer() as writer:
            try:
                return writer.update_metadata(changes, replace_all=replace)
            finally:
                self.refresh()

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
        projection: Projection | Literal[False] | None = None,
        refit: bool = False,
    ) -> CompactionReport:
        """Rewrites the index as one segment without deleted rows, and compresses the multi vectors.

        `bits` (1, 2, 4 or 8) is the size of a residual code for each dimension; by default the current size, or 2.
        `keep_8bit` stores 8-bit codes as well, for the last stage of a search. `retrain` fits the codec again.
        `pooling` pools an index that has no pooling yet, now and for documents added later. Readers are not disturbed;
        if it fails, the index is unchanged.

        `projection` is the one to fit, now if there are enough vectors; False wants none. Projected vectors cannot be
        made whole again. So another projection, or none, needs `refit`: it encodes all texts again, which takes as long
        as indexing did, and fits the projection to the new vectors.
        """
        check_flag("refit", refit)
        encode = None
        if refit:
            from plait.ingest import encode_passages

            is_late = self._store.chunking is not None and self._store.chunking.late
            encode = partial(encode_passages, self._encoder_for_refit(), is_late=is_late)

        with self._store.writer() as writer:
            try:
                report = writer.compact(
                    bits=bits,
                    keep_8bit=keep_8bit,
                    retrain=retrain,
                    pooling=pooling,
                    projection=projection,
                    encode=encode,
                    n_threads=self._n_threads,
                )
                self._calibrate_if_due(writer, always=True)
                return report
            finally:
                self.refresh()

    def _encoder_for_refit(self) -> Encoder:
        if self._store.fingerprint == EXTERNAL:
            raise ConfigError(
                "refit encodes the texts again, but the vectors of this index were made by the caller; build the index "
                "again"
            )
        return self._source.get()

    # -- what scores mean

    def calibrate(self) -> Calibration:
        """Measures what hybrid scores mean on this index, and saves it.

        `compact`, and adding documents until the index has doubled, do this too. Bounds of scores depend on the model
        and stay; what is measured again is the best scores of queries that are about nothing in the index, for
        `Hit.confidence` and `min_score="auto"`.
        """
        with self._store.writer() as writer:
            try:
                return self._measure(writer)
            finally:
                self.refresh()

    def _calibrate_if_due(self, writer: Writer, *, always: bool = False) -> None:
        """Measures an index that has no calibration or has grown; with `always`, one that changed."""
        known, n_documents = writer.calibration()
        if always and known is not None and n_documents and n_documents != known.n_documents:
            self._measure(writer)
            return
        from plait.search.calibration import is_due

        if is_due(known, n_documents):
            self._measure(writer)

    def _measure(self, writer: Writer) -> Calibration:
        from plait.search.calibration import calibrate

        encoder = None if self._store.fingerprint == EXTERNAL else self._encoder_or_none()
        with self._store.snapshot() as snapshot:
            calibration = calibrate(
                snapshot,
                encoder,
                exclude_from_hybrid=self._store.exclude_from_hybrid,
                n_threads=self._n_threads,
            )
        writer.save_calibration(calibration)
        return calibration

    def _encoder_or_none(self) -> Encoder | None:
        """The encoder; None if its model is not at hand, as for a compaction without the model folder."""
        try:
            return self._source.get()
        except PlaitError:
            return None

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

    # -- reading

    def __contains__(self, id: object) -> bool:
        """Whether the index has a document with this id."""
        if not isinstance(id, str):
            return False
        with self._snapshots.use() as snapshot:
            return bool(snapshot.lookup([id]))

    def get(self, ids: Sequence[str], *, timeout: Timeout = None) -> list[Document | None]:
        """The documents with these ids, in this order; None for an id that the index does not have.

        documents = index.get(["intro", "no such id"])
        """
        ids = as_list("the ids to get", ids, "texts", ConfigError)
        check_timeout(timeout)
        with self._snapshots.use() as snapshot, deadline_scope(timeout):
            numbers = snapshot.lookup(ids)
            stored = dict(zip(numbers, snapshot.fetch(list(numbers.values())), strict=True))
        return [_document(stored[id]) if id in stored else None for id in ids]

    def count(self, filter: str | None = None, *, timeout: Timeout = None) -> int:
        """The number of documents that a filter accepts; of all without one."""
        check_timeout(timeout)
        if filter is None:
            return len(self)
        check_type("a filter", filter, str, "text, such as 'year >= 2020'", FilterError)
        with self._snapshots.use() as snapshot, deadline_scope(timeout):
            n_documents = len(snapshot.filtered(filter))
            if not n_documents:
                _warn_of_unknown_fields(snapshot, filter)
        return n_documents

    def iterate(
        self,
        batch_size: int = 1000,
        *,
        filter: str | None = None,
        sort: str | None = None,
        timeout: Timeout = None,
    ) -> Iterator[list[Document]]:
        """All documents that a filter accepts, in batches; no batch is empty. They are as they were when the iteration
        began, whatever is written meanwhile.

        Without `sort` the order is that in which documents were added or last changed, and memory does not grow with
        the index. `sort` is a field, `-year` for descending; documents without it come last. `timeout` is for each
        batch.

            for batch in index.iterate(batch_size=500, filter="year >= 2020"):
                print(len(batch))
        """
        check_count("batch_size", batch_size)
        check_timeout(timeout)
        if sort is not None:
            from plait.storage.fields import Sort

            Sort.parse(sort)
        return self._iterate(batch_size, filter, sort, timeout)

    def __iter__(self) -> Iterator[Document]:
        """All documents, in the order in which they were added or last changed, of one state of the index."""
        for batch in self.iterate():
            yield from batch

    def _iterate(
        self, batch_size: int, filter: str | None, sort: str | None, timeout: Timeout
    ) -> Iterator[list[Document]]:
        with self._snapshots.use() as snapshot:
            batches = _batches(snapshot, batch_size, filter, sort)
            n_batches = 0
            while True:
                with deadline_scope(timeout):
                    docs = next(batches, None)
                    batch = [] if docs is None else [_document(stored) for stored in snapshot.fetch(docs)]
                if not batch:
                    break
                n_batches += 1
                yield batch
            if not n_batches and filter is not None:
                _warn_of_unknown_fields(snapshot, filter)

    def facets(
        self,
        field: str,
        query: str | None = None,
        *,
        k: int = 10,
        **keywords: Unpack[SearchKeywords],
    ) -> Facets:
        """The values of a metadata field with the number of documents that have each: the k most frequent.

        Without a query, all documents that `filter` accepts are counted. With one, the `window` best documents of the
        search that the keywords describe. An element of a list counts as a value; documents without the field count as
        the value None.

            for one in index.facets("year", filter='lang = "en"').counts:
                print(one.value, one.count)
        """
        from plait.storage.fields import count_values, count_values_of

        check_count("k", k)
        request = SearchRequest(**keywords)
        with self._snapshots.use() as snapshot, deadline_scope(request.timeout):
            if query is None:
                facets = count_values(snapshot.catalogue, field, request.filter, k)
            else:
                docs = self._searcher.best_documents(snapshot, query, request)
                facets = count_values_of(snapshot.catalogue, field, docs, k)
            if all(one.value is None for one in facets.counts):
                _warn_of_unknown_fields(snapshot, request.filter, field)
        return facets

    # -- searching

    def search(self, query: str, k: int = 10, **keywords: Unpack[SearchKeywords]) -> list[Hit]:
        """The k best documents for a query, best first.

        `mode` is the way of searching; `params` are its parameters, such as DenseParams(n_probe=16). `filter` is a
        condition on metadata. `candidates` are ids: only these documents are scored, in mode multi every one of them.
        `exact` scores every passage. `rerank` is a cross-encoder that reorders the best 50: a `Reranker`, a model
        folder, or True for plait-cross-small. `explain` fills in `Hit.explanation`; `trace` collects stages and times.
        `timeout` is seconds, or a `Deadline` that another thread can cancel: a search that does not end in time is a
        SearchTimeoutError.

        `offset` skips the documents of the pages before: the rank of a document does not depend on k, so that pages of
        any size fit together. `passages` is how many passages `Hit.passages` has at most. `group_by` is a field: the
        search returns the best document for each of its values, with the size of the group in `Hit.group`. `sort` is a
        field whose order replaces that of scores; `-year` descends, and documents without the field come last. Both
        look at the best `window` documents.

            page_2 = index.search("how are vectors combined", k=10, offset=10)
            newest = index.search("how are vectors combined", sort="-year")
        """
        request = SearchRequest(k=k, **keywords)
        with self._snapshots.use() as snapshot:
            (hits,) = self._searcher.search(snapshot, [query], request)
            _check_fields(snapshot, request, hits)
        return hits

    def search_many(self, queries: Sequence[str], k: int = 10, **keywords: Unpack[SearchKeywords]) -> list[list[Hit]]:
        """`search` for each of the queries. They are encoded together, and all cores search.

        answers = index.search_many(["how are vectors combined", "what is a loom"], k=3)
        """
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

    def similar(
        self,
        id: str | None = None,
        k: int = 10,
        *,
        text: str | None = None,
        embeddings: Embeddings | None = None,
        **keywords: Unpack[SearchKeywords],
    ) -> list[Hit]:
        """The k documents that are most similar to a document, best first: to the one with this id, to a text that is
        encoded as a document, or to embeddings of one document that the caller made.

        A document of the index is compared by its stored embeddings, nothing is encoded, and it is not among the hits.
        Of a long one the mean dense vector and 256 multi vectors are used. The keywords are those of `search`, without
        `rerank`. The default mode is hybrid without full text; an index of text alone is searched by the words.

            related = index.similar("intro", k=5)
        """
        from plait.similar import similar_query

        if sum(given is not None for given in (id, text, embeddings)) != 1:
            raise ConfigError("similar takes an id, a text or embeddings: one of the three")
        request = SearchRequest(k=k, **keywords)
        with self._snapshots.use() as snapshot, deadline_scope(request.timeout):
            query = similar_query(snapshot, self._source, request, id=id, text=text, embeddings=embeddings)
            (hits,) = self._searcher.search_embeddings(
                snapshot,
                query.embeddings,
                query.texts,
                query.request,
                exclude=query.exclude,
                stored=query.exclude is not None,
            )
            _check_fields(snapshot, request, hits)
        return hits

    def explain(self, query: str, hit: Hit | str, **keywords: Unpack[SearchKeywords]) -> Explanation:
        """Why a document, given as a hit or by its id, has its rank for this query. A document that the search does not
        find is explained too, without score and rank.

            print(index.explain("how are vectors combined", "intro").bm25)
        """
        request = SearchRequest(k=None, **keywords)
        with self._snapshots.use() as snapshot:
            return self._searcher.explain(snapshot, query, hit, request)


def _document(stored: StoredDocument) -> Document:
    return Document(stored.id, stored.text, stored.title, stored.metadata, stored.sections, stored.origin)


def _batches(snapshot: Snapshot, size: int, filter: str | None, sort: str | None) -> Iterator[list[int]]:
    """The numbers of the documents that a filter accepts, `size` at a time."""
    if sort is not None:
        from plait.storage.fields import Sort, sorted_documents

        docs = sorted_documents(snapshot.catalogue, Sort.parse(sort), filter)
        yield from (docs[start : start + size] for start in range(0, len(docs), size))
        return
    last = 0
    while batch := snapshot.batch_after(last, size, filter):
        last = batch[-1]
        yield batch


def _check_fields(snapshot: Snapshot, request: SearchRequest, hits: Sequence[Hit]) -> None:
    """Warns of unknown fields if a filter accepts nothing, or if no hit has the field to sort or to group by."""
    if not hits and request.filter is not None:
        _warn_of_unknown_fields(snapshot, request.filter)
    if not hits or request.group_by is None is request.sort:
        return
    from plait.storage.fields import has_field

    for name in (request.group_by, None if request.sort is None else request.sort.removeprefix("-")):
        if name is not None and not has_field(name, hits):
            _warn_of_unknown_fields(snapshot, None, name)


def _warn_of_unknown_fields(snapshot: Snapshot, filter: str | None, *fields: str) -> None:
    from plait.filters.unknown_fields import warn

    conditions = [*([] if filter is None else [filter]), *(f"{name} is null" for name in fields)]
    for condition in conditions:
        if message := snapshot.unknown_filter_fields(condition):
            warn(message, stacklevel=3)


def sync(
    index: Index,
    folders: str | Path | Sequence[str | Path],
    *,
    options: ReadOptions | None = None,
    name: str | None = None,
    allow_empty: bool = False,
    dry_run: bool = False,
    on_progress: Callable[[FileProgress], None] | None = None,
) -> SyncReport:
    """Makes an index equal to folders; see `Index.sync`."""
    check_type("index", index, Index, "a plait.Index, from plait.open", ConfigError)
    return index.sync(
        folders, options=options, name=name, allow_empty=allow_empty, dry_run=dry_run, on_progress=on_progress
    )

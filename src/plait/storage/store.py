"""An index on disk: a folder with a catalogue, segments and a lock. Snapshots read it and the one writer changes it; a
`Store` itself holds no file open."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from plait.codec.pooling import MAX_FIXED, Pooling
from plait.codec.projection import Projection
from plait.encode.chunking import Chunking
from plait.encode.protocol import EmbeddingSpec
from plait.errors import ConfigError, CorruptIndexError, NewerFormatError, NotAnIndexError, ReadOnlyError, StoreError
from plait.storage.catalogue import (
    create_schema,
    parse_chunking,
    parse_pooling,
    parse_projection,
    parse_properties,
    read_meta,
)
from plait.storage.connection import CATALOGUE, ReadTransaction, open_for_writing
from plait.storage.folder import SEGMENTS, check_folder
from plait.storage.fsync import make_folders, storage_errors, sync_folder
from plait.storage.lock import LOCK, WriterLock, check_write_timeout
from plait.storage.network import refuse_network_disk
from plait.storage.schema import FIRST_FORMAT, check_format
from plait.storage.segment import leftover_folders
from plait.storage.snapshot import Snapshot, StoredDocument
from plait.storage.stored_values import stored_json, stored_text
from plait.text.analyser import VERSION, Analyser
from plait.text.fts_table import analyser_from_meta, analyser_meta
from plait.text.stemming import stemming_language
from plait.version import __version__

if TYPE_CHECKING:
    from plait.storage.writer import Writer

__all__ = ["Snapshot", "Store", "StoredDocument"]

IMPORTED = "imported"  # key of the properties: the format and the model of the source of an imported index
EXCLUDE_FROM_HYBRID = "exclude_from_hybrid"  # key of the properties: kinds that hybrid search leaves out by default
MAX_VOCABULARY = 2**31 - 1
MAX_DIM = 1 << 16
FILE_NAMES = {CATALOGUE, f"{CATALOGUE}-wal", f"{CATALOGUE}-shm", f"{CATALOGUE}-journal", SEGMENTS, LOCK}


class Store:
    """One index. Every snapshot sees the newest commit of any process."""

    def __init__(self, path: Path, meta: Mapping[str, Any], *, read_only: bool, write_timeout: float) -> None:
        """Private: use `create` or `open`."""
        self.path, self.read_only, self.write_timeout = path, read_only, write_timeout
        self.format: int = meta["format"]
        self.created: str = meta["created"]
        self.fingerprint: str = meta["fingerprint"]
        self.spec: EmbeddingSpec = meta["embedding_spec"]
        self.properties: Mapping[str, Any] = meta["properties"]
        self.pooling: Pooling | None = meta["pooling"]  # at opening; a compaction may have chosen one since
        self.projection: Projection | None = meta["projection"]  # at opening, as the pooling
        self.chunking: Chunking | None = meta["chunking"]  # None: as the encoder splits documents
        self.language = analyser_from_meta(meta).language  # of the stemmer; None stems English and suits any language
        self._closed = False

    @property
    def exclude_from_hybrid(self) -> tuple[str, ...]:
        """The kinds of embedding that hybrid search leaves out unless they are given a weight."""
        return tuple(self.properties.get(EXCLUDE_FROM_HYBRID, ()))

    @classmethod
    def create(
        cls,
        path: Path,
        *,
        fingerprint: str,
        spec: EmbeddingSpec,
        properties: Mapping[str, Any],
        pooling: Pooling | None = None,
        projection: Projection | None = None,
        language: str | None = None,
        chunking: Chunking | None = None,
        write_timeout: float = 0.0,
    ) -> Store:
        """Makes an empty index in a folder that is absent or empty, or in which creating one was interrupted. The index
        pools all multi vectors by `pooling`, fits `projection` to them when it has enough, stems its full text by
        `language` and splits documents by `chunking`."""
        _check_spec(spec)
        analyser = Analyser(language)
        if pooling is not None:
            check_poolable(spec)
            properties = {**properties, "pooling": pooling.to_dict()}
        if projection is not None:
            check_projectable(spec, projection)
            properties = {**properties, "projection": projection.to_dict()}
        if chunking is not None:
            properties = {**properties, "chunking": chunking.to_dict()}
        meta = {
            "format": FIRST_FORMAT,
            "plait_version": __version__,
            "created": datetime.now(UTC).isoformat(timespec="seconds"),
            "fingerprint": fingerprint,
            "embedding_spec": json.dumps(asdict(spec)),
            "properties": _to_json(properties),
            **analyser_meta(analyser),
        }
        with storage_errors(path):
            make_folders(path)
            refuse_network_disk(path)
            other_files = sorted(entry.name for entry in path.iterdir() if entry.name not in FILE_NAMES)
            if other_files:
                raise NotAnIndexError(
                    f"{path} is not empty (it has {', '.join(other_files[:3])}) and not an index; choose another folder"
                )
            lock = WriterLock(path / LOCK, timeout=check_write_timeout(write_timeout))
            try:
                _create_files(path, meta, analyser)
            finally:
                lock.release()
        return cls.open(path, write_timeout=write_timeout)

    @classmethod
    def open(cls, path: Path, *, read_only: bool = False, write_timeout: float = 0.0) -> Store:
        """Opens an index that exists. Its writers wait at most `write_timeout` seconds for other writers."""
        write_timeout = check_write_timeout(write_timeout)
        if not (path / CATALOGUE).is_file():
            seen = "there is no such folder" if not path.exists() else f"it has no {CATALOGUE}"
            raise NotAnIndexError(f"{path} is not a plait index: {seen}; check the path, or create an index there")
        with ReadTransaction(path / CATALOGUE) as view:
            if not _is_committed(path, view):
                raise NotAnIndexError(f"{path} is not an index yet: its creation was interrupted; create it again")
            meta = read_meta(view)
        return cls(path, _parse_meta(path, meta), read_only=read_only, write_timeout=write_timeout)

    def snapshot(self) -> Snapshot:
        """A view of the newest commit; the caller closes it."""
        self.check_open()
        return Snapshot.open(self.path, self.spec)

    def writer(self) -> Writer:
        """Locks the index for writing. Raises LockedError, which names the holder, if another writer still has it after
        `write_timeout` seconds."""
        self.check_open()
        if self.read_only:
            raise ReadOnlyError(f"index {self.path} was opened read-only; open it without read_only to write")
        from plait.storage.writer import Writer  # readers need not wait for its import

        writer = Writer(self.path, self.spec, timeout=self.write_timeout)
        if self._closed:  # while it waited
            writer.close()
            self.check_open()
        return writer

    def close(self) -> None:
        """Refuses new snapshots and writers; open ones stay usable until they are closed."""
        self._closed = True

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def check_open(self) -> None:
        """Raises StoreError if the index was closed."""
        if self._closed:
            raise StoreError(f"index {self.path} is closed; open it again")


def _create_files(path: Path, meta: Mapping[str, object], analyser: Analyser) -> None:
    if (path / CATALOGUE).exists():
        with ReadTransaction(path / CATALOGUE) as view:
            if _is_committed(path, view):
                raise StoreError(f"{path} is an index already; open it, or choose another folder")
    if not check_folder(path / SEGMENTS):
        make_folders(path / SEGMENTS)
    connection = open_for_writing(path / CATALOGUE, create=True)
    try:
        connection.execute("BEGIN IMMEDIATE")
        create_schema(connection, meta, analyser)
        connection.execute("COMMIT")
    finally:
        connection.close()
    for folder in (path / SEGMENTS, path):
        sync_folder(folder)


def _is_committed(path: Path, view: ReadTransaction) -> bool:
    """Whether the catalogue was created; False if its first transaction never committed."""
    if view.rows("SELECT 1 FROM sqlite_schema LIMIT 1"):
        return True
    # An interrupted creation has no segments; an empty catalogue beside segments was lost.
    if leftover_folders(path, set()):
        raise CorruptIndexError(
            f"{path / CATALOGUE} is damaged: it is empty, but there are segments; restore the index from a copy, or "
            f"remove the folder and build it again"
        )
    return False


def _parse_meta(path: Path, meta: Mapping[str, Any]) -> dict[str, Any]:
    format_number, analyser_version = meta.get("format"), meta.get("analyser")
    if isinstance(format_number, int):
        check_format(path, format_number)
    if isinstance(analyser_version, int) and analyser_version > VERSION:
        raise NewerFormatError(
            f"index {path} splits words by rules {analyser_version}, but this plait ({__version__}) knows up to "
            f"{VERSION}; install the plait that wrote it, or a newer one"
        )
    if not isinstance(format_number, int) or format_number < 1 or not isinstance(analyser_version, int):
        raise CorruptIndexError(
            f"{path / CATALOGUE} is damaged: its format is {format_number!r}, its analyser {analyser_version!r}"
        )
    try:
        spec = EmbeddingSpec(**stored_json(meta["embedding_spec"]))
        _check_spec(spec)
        properties = parse_properties(meta["properties"])
        for kind in properties.get(EXCLUDE_FROM_HYBRID, []):
            stored_text(kind, EXCLUDE_FROM_HYBRID)
        for key in ("created", "fingerprint"):
            stored_text(meta[key], f"{key!r} in its meta table")
        return {
            **meta,
            "embedding_spec": spec,
            "properties": properties,
            "pooling": parse_pooling(meta["properties"]),
            "projection": parse_projection(meta["properties"]),
            "chunking": parse_chunking(meta["properties"]),
        }
    except (KeyError, TypeError, ValueError, ConfigError) as error:
        raise CorruptIndexError(f"{path / CATALOGUE} is damaged: its meta table is invalid ({error!r})") from error


def check_poolable(spec: EmbeddingSpec) -> None:
    """Raises ConfigError if there are no multi vectors to pool."""
    if spec.multi is None:
        raise ConfigError("pooling is for multi vectors, and the index has none; leave pooling out")
    if spec.fixed is not None:
        raise ConfigError(f"the model gives {spec.fixed} vectors for every passage already; leave pooling out")


def check_projectable(spec: EmbeddingSpec, projection: Projection) -> None:
    """Raises ConfigError if the multi vectors cannot be projected so."""
    if spec.multi is None:
        raise ConfigError("a projection is for multi vectors, and the index has none; leave it out")
    projection.check_width(spec.multi)


def check_same_projection(store: Store, requested: Projection | None) -> None:
    """Raises ConfigError if an index does not project as requested; None accepts any projection."""
    if requested is None or requested == store.projection:
        return
    before = "without a projection" if store.projection is None else f"with a projection to {store.projection}"
    raise ConfigError(
        f"index {store.path} was made {before}, but was opened with {requested}; open it without projection, or change "
        f"it with plait compact --dims"
    )


def check_same_pooling(store: Store, requested: Pooling | None) -> None:
    """Raises ConfigError if an index does not pool as requested; None accepts any pooling."""
    if requested is None or requested == store.pooling:
        return
    if store.pooling is not None:
        raise ConfigError(
            f"index {store.path} pools its vectors ({store.pooling}), but was opened with another pooling "
            f"({requested}); "
            f"open it without pooling, or build another index"
        )
    raise ConfigError(
        f"index {store.path} was made without pooling, but was opened with {requested}; run plait compact with it, or "
        f"open it without pooling"
    )


def check_same_chunking(store: Store, requested: Chunking | None) -> None:
    """Raises ConfigError if an index does not split documents as requested; None accepts any chunking."""
    if requested is None or requested == store.chunking:
        return
    made = "as its model does" if store.chunking is None else f"by {store.chunking}"
    raise ConfigError(
        f"index {store.path} splits documents {made}, but was opened with another chunking ({requested}); open it "
        f"without chunking, or build another index"
    )


def check_same_spec(store: Store, requested: EmbeddingSpec | None) -> None:
    """Raises ConfigError if an index has other kinds or sizes of embeddings than requested; None accepts any."""
    if requested is not None and requested != store.spec:
        raise ConfigError(
            f"index {store.path} stores {store.spec}, but was opened with {requested}; open it without spec, or build "
            f"another index"
        )


def check_same_language(store: Store, requested: str | None) -> None:
    """Raises ConfigError if an index does not stem as requested; None accepts any language."""
    if requested is None or stemming_language(requested) == store.language:
        return
    made = "without a language" if store.language is None else f"for the language {store.language!r}"
    raise ConfigError(
        f"index {store.path} was made {made}, but was opened for {requested!r}; open it without language, or build "
        f"another index"
    )


def _to_json(properties: Mapping[str, Any]) -> str:
    try:
        return json.dumps(dict(properties), allow_nan=False)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"the properties of an index must be valid JSON values: {error}") from None


def _check_spec(spec: EmbeddingSpec) -> None:
    vocabulary = spec.sparse
    if vocabulary is not None and (type(vocabulary) is not int or not 1 <= vocabulary <= MAX_VOCABULARY):
        raise ConfigError(
            f"the sparse vectors have a vocabulary of {vocabulary!r}; it must be from 1 to {MAX_VOCABULARY}"
        )
    for kind in ("dense", "multi"):
        dim = getattr(spec, kind)
        if dim is not None and (type(dim) is not int or not 1 <= dim <= MAX_DIM):
            raise ConfigError(f"the {kind} vectors have {dim!r} dimensions; it must be from 1 to {MAX_DIM}")
    fixed = spec.fixed
    if fixed is not None and (type(fixed) is not int or not 1 <= fixed <= MAX_FIXED or spec.multi is None):
        raise ConfigError(
            f"the spec has {fixed!r} multi vectors for every passage; it must be from 1 to {MAX_FIXED}, and the spec "
            f"must "
            f"have multi vectors"
        )

"""An index on disk: a folder with a catalogue, segments and a lock. Made or opened here; read through snapshots,
changed through the one writer. It holds no file open itself."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from plait.closing import Closing
from plait.codec.pooling import MAX_FIXED, Pooling
from plait.encode.protocol import EmbeddingSpec
from plait.errors import ConfigError, CorruptIndexError, NewerFormatError, NotAnIndexError, ReadOnlyError, StoreError
from plait.storage.catalogue import (
    APPLICATION_ID,
    PLAIN_FORMAT,
    POOLED_FORMAT,
    SPARSE_FORMAT,
    create_schema,
    pooling_in,
    read_meta,
    refuse_newer,
)
from plait.storage.connection import ReadTransaction, open_for_writing
from plait.storage.fsync import storage_errors, sync_folder
from plait.storage.lock import LOCK, WriterLock
from plait.storage.snapshot import CATALOGUE, Snapshot, StoredDocument
from plait.text.analyser import VERSION, Analyser
from plait.text.fts_table import analyser_from_meta, analyser_meta
from plait.text.stemming import stemming_language
from plait.version import __version__

if TYPE_CHECKING:
    from plait.storage.writer import Writer

__all__ = ["Snapshot", "Store", "StoredDocument"]

EXCLUDE_FROM_HYBRID = "exclude_from_hybrid"  # a key of the properties: kinds that hybrid search leaves out by default
MOST_TERMS = 2**31 - 1
_OWN_NAMES = {CATALOGUE, f"{CATALOGUE}-wal", f"{CATALOGUE}-shm", f"{CATALOGUE}-journal", "segments", LOCK}


class Store(Closing):
    """One index. Cheap to hold; every snapshot sees the newest commit of any process."""

    def __init__(self, path: Path, meta: Mapping[str, Any], *, read_only: bool) -> None:
        """Not to be called: `create` and `open` make it."""
        self.path, self.read_only = path, read_only
        self.format: int = meta["format"]
        self.created: str = meta["created"]
        self.fingerprint: str = meta["fingerprint"]
        self.spec: EmbeddingSpec = meta["shape"]
        self.properties: Mapping[str, Any] = meta["facts"]
        self.pooling: Pooling | None = meta["pooling"]  # as it was at opening; a compaction may have chosen one since
        self.language = analyser_from_meta(meta).language  # that the full text is stemmed for; None is any
        self._closed = False

    @property
    def exclude_from_hybrid(self) -> tuple[str, ...]:
        """The strands that hybrid search leaves out unless they are given a weight."""
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
        language: str | None = None,
    ) -> Store:
        """Makes an empty index in a folder that is absent or empty, or where making one was cut short. All that is ever
        written to it is pooled as `pooling` says, and its full text stemmed as `language` asks."""
        _check_spec(spec)
        analyser = Analyser(language)
        if pooling is not None:
            check_poolable(spec)
            properties = {**properties, "pooling": pooling.to_dict()}
        meta = {
            "format": _format_of(spec, pooling),
            "plait": __version__,
            "created": datetime.now(UTC).isoformat(timespec="seconds"),
            "fingerprint": fingerprint,
            "shape": _spec_to_json(spec),
            "facts": _properties_to_json(properties),
            **analyser_meta(analyser),
        }
        with storage_errors(path):
            path.mkdir(parents=True, exist_ok=True)
            strangers = sorted(entry.name for entry in path.iterdir() if entry.name not in _OWN_NAMES)
            if strangers:
                raise NotAnIndexError(
                    f"{path} is not empty (it has {', '.join(strangers[:3])}) and not an index; choose another folder"
                )
            lock = WriterLock(path / LOCK)
            try:
                _make(path, meta, analyser)
            finally:
                lock.release()
        return cls.open(path)

    @classmethod
    def open(cls, path: Path, *, read_only: bool = False) -> Store:
        """Opens an index of this format or an older one."""
        if not (path / CATALOGUE).is_file():
            seen = "there is no such folder" if not path.exists() else f"it has no {CATALOGUE}"
            raise NotAnIndexError(f"{path} is not a plait index: {seen}; check the path, or create an index there")
        view = ReadTransaction(path / CATALOGUE)
        try:
            if not _is_committed(path, view):
                raise NotAnIndexError(f"{path} is not a plait index yet: making it was cut short; create it again")
            meta = read_meta(view)
        finally:
            view.close()
        return cls(path, _checked_meta(path, meta), read_only=read_only)

    def snapshot(self) -> Snapshot:
        """A view of the newest commit, to be closed by the caller."""
        self._check_open()
        return Snapshot.open(self.path, self.spec)

    def writer(self) -> Writer:
        """Takes the index for writing, at once or with a LockedError that names who has it."""
        self._check_open()
        if self.read_only:
            raise ReadOnlyError(f"index {self.path} was opened read-only; open it without read_only to write")
        from plait.storage.writer import Writer  # readers, who are many, do not wait for its import

        return Writer(self.path, self.spec)

    def close(self) -> None:
        """Gives no more snapshots or writers; those that were given stay until they are closed."""
        self._closed = True

    def _check_open(self) -> None:
        if self._closed:
            raise StoreError(f"index {self.path} is closed; open it again")


def _make(path: Path, meta: Mapping[str, object], analyser: Analyser) -> None:
    if (path / CATALOGUE).exists():
        view = ReadTransaction(path / CATALOGUE)
        try:
            if _is_committed(path, view):
                raise StoreError(f"{path} is an index already; open it, or choose another folder")
        finally:
            view.close()
    (path / "segments").mkdir(exist_ok=True)
    connection = open_for_writing(path / CATALOGUE, create=True)
    try:
        connection.execute("BEGIN IMMEDIATE")
        create_schema(connection, meta, analyser)
        connection.execute("COMMIT")
    finally:
        connection.close()
    for folder in (path / "segments", path, path.absolute().parent):
        sync_folder(folder)


def _is_committed(path: Path, view: ReadTransaction) -> bool:
    """Whether a catalogue is there in full; False is one whose first transaction never ended."""
    tables = {name for (name,) in view.rows("SELECT name FROM sqlite_schema WHERE type = 'table'")}
    application = view.rows("PRAGMA application_id")[0][0]
    if not tables and application == 0:
        # A first transaction that never ended has no segments yet; beside some, the catalogue was lost.
        from plait.storage.writer import leftovers

        if leftovers(path, set()):
            raise CorruptIndexError(
                f"{path / CATALOGUE} is damaged: it is empty, but there are segments; restore the index from a copy, "
                f"or remove the folder and build it again"
            )
        return False
    if application != APPLICATION_ID:
        raise NotAnIndexError(f"{path / CATALOGUE} is the database of another program; choose another folder")
    missing = {"meta", "documents", "words", "segments", "tombstones"} - tables
    if "meta" in missing:
        raise CorruptIndexError(f"{path / CATALOGUE} is damaged: it lacks the tables {sorted(missing)}")
    return True


def _checked_meta(path: Path, meta: Mapping[str, Any]) -> dict[str, Any]:
    number, words = meta.get("format"), meta.get("analyser")
    if isinstance(number, int):
        refuse_newer(path, number)
    if isinstance(words, int) and words > VERSION:
        raise NewerFormatError(
            f"index {path} splits words by rules {words}, and this plait ({__version__}) knows up to "
            f"{VERSION}; install the plait that wrote it, or a newer one"
        )
    if not isinstance(number, int) or number < 1 or not isinstance(words, int):
        raise CorruptIndexError(f"{path / CATALOGUE} is damaged: its format is {number!r}, its analyser {words!r}")
    try:
        spec = EmbeddingSpec(**json.loads(meta["shape"]))
        _check_spec(spec)
        return {**meta, "shape": spec, "facts": json.loads(meta["facts"]), "pooling": pooling_in(meta["facts"])}
    except (KeyError, TypeError, ValueError, ConfigError) as error:
        raise CorruptIndexError(f"{path / CATALOGUE}: what it says of itself is damaged ({error!r})") from error


def check_poolable(spec: EmbeddingSpec) -> None:
    """Raises if there is nothing to pool."""
    if spec.multi is None:
        raise ConfigError("pooling is for the multi strand, and there is none; leave pooling out")
    if spec.fixed is not None:
        raise ConfigError(f"the model gives {spec.fixed} rows for every document already; leave pooling out")


def refuse_other_pooling(store: Store, asked: Pooling | None) -> None:
    """Raises if an index does not pool as its opener asked. Asking for nothing is always fine."""
    if asked is None or asked == store.pooling:
        return
    if store.pooling is not None:
        raise ConfigError(
            f"index {store.path} pools its vectors ({store.pooling}), and was opened for another way ({asked}); open "
            f"it without pooling, or build another index"
        )
    raise ConfigError(
        f"index {store.path} was made without pooling, and was opened for {asked}; run plait compact with it, or open "
        f"it without pooling"
    )


def refuse_other_language(store: Store, asked: str | None) -> None:
    """Raises if the full text of an index is not stemmed as its opener asked. Asking for nothing is always fine."""
    if asked is None or stemming_language(asked) == store.language:
        return
    made = "without a language" if store.language is None else f"for the language {store.language!r}"
    raise ConfigError(
        f"index {store.path} was made {made}, and was opened for {asked!r}; open it without language, or build another "
        f"index"
    )


def _format_of(spec: EmbeddingSpec, pooling: Pooling | None) -> int:
    """The oldest that can hold it."""
    if spec.sparse is not None:
        return SPARSE_FORMAT
    return PLAIN_FORMAT if pooling is None and spec.fixed is None else POOLED_FORMAT


def _spec_to_json(spec: EmbeddingSpec) -> str:
    """Without the number of rows where there is none: a plait that does not know of it can then read the shape."""
    return json.dumps({name: size for name, size in asdict(spec).items() if name != "fixed" or size is not None})


def _properties_to_json(properties: Mapping[str, Any]) -> str:
    try:
        return json.dumps(dict(properties), allow_nan=False)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"the properties to keep with an index must be what JSON can hold: {error}") from None


def _check_spec(spec: EmbeddingSpec) -> None:
    terms = spec.sparse
    if terms is not None and (type(terms) is not int or not 1 <= terms <= MOST_TERMS):
        raise ConfigError(f"the sparse strand cannot have a vocabulary of {terms!r}; from 1 to {MOST_TERMS} can be")
    for name in ("dense", "multi"):
        dim = getattr(spec, name)
        if dim is not None and (type(dim) is not int or not 1 <= dim <= 1 << 16):
            raise ConfigError(f"the {name} strand cannot have {dim!r} dimensions; from 1 to {1 << 16} can be stored")
    fixed = spec.fixed
    if fixed is not None and (type(fixed) is not int or not 1 <= fixed <= MAX_FIXED or spec.multi is None):
        raise ConfigError(
            f"the multi strand cannot have {fixed!r} rows for every document; from 1 to {MAX_FIXED} can be"
        )

"""Files and folders that documents come from: what `plait.sync` must know, in the catalogue.

A document stores its file in its metadata, under a reserved key, so both change in one commit. The roots (folders that
were indexed) and the files that could not be read, which have no document, are in `meta`, under `roots`.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from plait.errors import CorruptIndexError, DocumentError, StoreError
from plait.records import Document, FileOrigin
from plait.storage.catalogue import chunks, metadata_json, placeholders, write_meta
from plait.storage.deletes import not_deleted, purge_ids
from plait.storage.stored_values import stored_json
from plait.storage.validate import RESERVED, content_digest, parse_reserved
from plait.text.analyser import Analyser

ROOTS = "roots"  # key of meta
MAX_UNREAD = 50_000  # files without a document that are remembered
_FILE = f"json_extract(metadata, '$.{RESERVED}.file')"

Rows = Callable[[str, Sequence[object]], Iterable[tuple[Any, ...]]]  # runs a statement


@dataclass(frozen=True, slots=True)
class UnreadFile:
    """A file without a document: empty, binary or damaged."""

    size: int
    mtime_ns: int
    reason: str
    is_error: bool


@dataclass(frozen=True, slots=True)
class StoredRoot:
    """A folder that was indexed."""

    name: str
    path: str
    prefix: str
    unread: Mapping[str, UnreadFile] = field(default_factory=dict)  # by path below the folder


def read_roots(rows: Rows) -> list[StoredRoot]:
    """The roots of an index, in the order in which they were added."""
    values = list(rows("SELECT value FROM meta WHERE key = ?", [ROOTS]))
    if not values:
        return []
    try:
        return [_parse_root(stored) for stored in stored_json(values[0][0])]
    except (ValueError, TypeError, KeyError, AttributeError):
        raise CorruptIndexError(
            f"the list of folders in the catalogue is damaged: {values[0][0]!r:.100}; run plait check"
        ) from None


def _parse_root(stored: Any) -> StoredRoot:
    name, path, prefix = (stored[key] for key in ("name", "path", "prefix"))
    unread = {relative: UnreadFile(*facts) for relative, facts in stored["unread"].items()}
    is_valid = all(isinstance(text, str) for text in (name, path, prefix)) and all(
        type(file.size) is int and type(file.mtime_ns) is int and isinstance(file.reason, str)
        for file in unread.values()
    )
    if not is_valid:
        raise ValueError
    return StoredRoot(name, path, prefix, unread)


def write_roots(connection: sqlite3.Connection, roots: Sequence[StoredRoot]) -> None:
    """Saves the roots, within a transaction."""
    stored = []
    for root in roots:
        unread = dict(list(root.unread.items())[:MAX_UNREAD])
        facts = {path: [file.size, file.mtime_ns, file.reason, file.is_error] for path, file in unread.items()}
        stored.append({"name": root.name, "path": root.path, "prefix": root.prefix, "unread": facts})
    write_meta(connection, ROOTS, json.dumps(stored, ensure_ascii=False))


def read_origins(rows: Rows, root: str) -> list[tuple[str, FileOrigin]]:
    """(id, origin) of all documents of a root, in the order in which they were written."""
    sql = f"SELECT id, {_FILE} FROM documents WHERE {_FILE} IS NOT NULL AND {not_deleted()} ORDER BY doc"
    origins = ((id, _parse_origin(id, stored)) for id, stored in rows(sql, []))
    return [(id, origin) for id, origin in origins if origin.root == root]


def origins_of(rows: Rows, ids: Sequence[str]) -> dict[str, tuple[int, FileOrigin | None]]:
    """The number and the origin of each of these documents that exists."""
    origins: dict[str, tuple[int, FileOrigin | None]] = {}
    for chunk in chunks(list(dict.fromkeys(ids))):
        condition = f"id IN ({placeholders(len(chunk))}) AND {not_deleted()}"
        for id, doc, stored in rows(f"SELECT id, doc, {_FILE} FROM documents WHERE {condition}", chunk):
            origins[id] = (doc, None if stored is None else _parse_origin(id, stored))
    return origins


def _parse_origin(id: object, stored: object) -> FileOrigin:
    try:
        _, origin = parse_reserved("", {RESERVED: {"sections": [], "file": stored_json(stored)}})
    except (ValueError, DocumentError):
        origin = None
    if origin is None:
        raise CorruptIndexError(f"the file of document {id!r:.100} in the catalogue is damaged; run plait check")
    return origin


def same_content(rows: Rows, documents: Sequence[Document]) -> set[str]:
    """The ids of documents that the index has with the same title, text and sections: their passages are the same."""
    by_id = {document.id: document for document in documents}
    same = set()
    for chunk in chunks(list(by_id)):
        condition = f"id IN ({placeholders(len(chunk))}) AND {not_deleted()}"
        for id, title, metadata, text in rows(
            f"SELECT id, title, metadata, text FROM documents WHERE {condition}", chunk
        ):
            document = by_id[id]
            try:
                sections, _ = parse_reserved("", stored_json(metadata))
            except (ValueError, DocumentError, AttributeError):
                continue
            if (document.title, document.text, document.sections) == (title, text, sections):
                same.add(id)
    return same


def rewrite_records(connection: sqlite3.Connection, analyser: Analyser, changes: Sequence[tuple[str, Document]]) -> int:
    """Gives documents another id and other metadata; passages, embeddings and full text stay. Each change is the id of
    a document and what it becomes, with the same title and text; returns how many documents are different now.

    Ids may be exchanged. StoreError, and no change, if an id does not exist, a text is another one, or a new id belongs
    to a document that keeps it.
    """
    leaving = {id for id, _ in changes}
    arriving = [document.id for _, document in changes]
    if len(leaving) < len(changes) or len(set(arriving)) < len(changes):
        raise StoreError("two changes name one document; give each document one change")
    moved = [(id, document) for id, document in changes if id != document.id]
    stored = _stored_for(connection, changes)
    new_ids = [document.id for _, document in moved if document.id not in leaving]
    taken = origins_of(connection.execute, new_ids)
    if taken:
        raise StoreError(f"there is a document {next(iter(taken))!r:.100} already; delete it first")
    purge_ids(connection, analyser, new_ids)  # tombstones with these ids
    # In two steps, so that ids can be exchanged: no step may give two documents one id.
    parked = [(f"\x1f{stored[id][0]}", stored[id][0]) for id, _ in moved]
    connection.executemany("UPDATE documents SET id = ? WHERE doc = ?", parked)
    updates = [
        (document.id, metadata_json(document), digest, stored[id][0])
        for id, document in changes
        if (digest := content_digest(document)) != stored[id][1]
    ]
    connection.executemany("UPDATE documents SET id = ?, metadata = ?, digest = ? WHERE doc = ?", updates)
    return len(updates)


def _stored_for(
    connection: sqlite3.Connection, changes: Sequence[tuple[str, Document]]
) -> dict[str, tuple[int, bytes]]:
    """The number and the digest of each document; StoreError if one does not exist, or has another title or text."""
    stored: dict[str, tuple[int, bytes]] = {}
    by_id = dict(changes)
    for chunk in chunks(list(by_id)):
        condition = f"id IN ({placeholders(len(chunk))}) AND {not_deleted()}"
        sql = f"SELECT id, doc, digest, title, text FROM documents WHERE {condition}"
        for id, doc, digest, title, text in connection.execute(sql, chunk):
            if (title, text) == (by_id[id].title, by_id[id].text):
                stored[id] = (doc, digest)
    missing = next((id for id in by_id if id not in stored), None)
    if missing is not None:
        raise StoreError(f"there is no document {missing!r:.100} with this title and text; add it instead")
    return stored

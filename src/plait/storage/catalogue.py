"""The catalogue: one SQLite database with the documents, their full text, the list of segments and the deletions.

meta               settings and counts by key; opening reads the counts here and never counts documents
documents          each document with its content, and the rows of the segment that are its passages
words              full-text table (FTS5); see plait.text.fts_table
segments           the live segments and their files
deleted_rows       rows of live segments that are deleted
deleted_documents  documents that are deleted and not purged yet; see plait.storage.deletes

The transactions of the catalogue are the only commit points of an index. Each function here is a step inside a
transaction of its caller.
"""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import chain, pairwise
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from plait.codec.pooling import Pooling
from plait.codec.projection import Projection
from plait.encode.chunking import Chunking
from plait.errors import ConfigError, CorruptIndexError, DocumentError
from plait.records import Document
from plait.storage.connection import ReadTransaction
from plait.storage.schema import APPLICATION_ID, TABLES
from plait.storage.segment_file import FileRecord
from plait.storage.stored_values import MAX_NUMBER, stored_json, stored_number
from plait.storage.validate import check_document, content_digest, matches_digest, parse_reserved, plain_metadata
from plait.text.analyser import Analyser
from plait.text.fts_table import add_to_fts, fts_schema, optimize_fts

# Limits of reads: a damaged or hostile table may have no end.
MAX_SETTINGS = 10_000
MAX_SEGMENTS = 100_000
N_ROWS = "(SELECT max(ifnull(sum(n_rows), 0), 0) + 1 FROM (SELECT n_rows FROM segments LIMIT 100000))"
MAX_PARAMETERS = 500  # of one statement; every SQLite allows as many

T = TypeVar("T")
FILE_NAME = re.compile(r"[a-z][a-z0-9_-]*\.plait")


@dataclass(frozen=True, slots=True)
class SegmentRecord:
    """A segment as the catalogue lists it."""

    number: int
    n_rows: int
    files: Mapping[str, FileRecord]  # by name


@dataclass(frozen=True, slots=True)
class Placement:
    """The rows of a segment that belong to a document."""

    doc: int
    segment: int
    first_row: int
    n_rows: int


@dataclass(frozen=True, slots=True)
class SegmentRun:
    """Neighbouring segments, and the range of document numbers that only they have."""

    segments: tuple[int, ...]
    first_doc: int
    last_doc: int


def create_schema(connection: sqlite3.Connection, meta: Mapping[str, object], analyser: Analyser) -> None:
    """Creates all tables."""
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    for statement in [*TABLES.values(), fts_schema(analyser)]:
        connection.execute(statement)
    counts = {"commit": 0, "next_segment": 1, "n_documents": 0}
    connection.executemany("INSERT INTO meta VALUES (?, ?)", list({**meta, **counts}.items()))


def read_count(connection: sqlite3.Connection, key: str) -> int:
    """A number in meta: format, commit, next_segment or n_documents."""
    row = connection.execute("SELECT value FROM meta WHERE key = ?", [key]).fetchone()
    return stored_number(row and row[0], f"{key!r} in its meta table")


def add_to_count(connection: sqlite3.Connection, key: str, difference: int) -> None:
    write_meta(connection, key, read_count(connection, key) + difference)


def write_meta(connection: sqlite3.Connection, key: str, value: object) -> None:
    connection.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", [key, value])


def delete_meta(connection: sqlite3.Connection, key: str) -> None:
    connection.execute("DELETE FROM meta WHERE key = ?", [key])


def read_meta(view: ReadTransaction) -> dict[str, Any]:
    return dict(view.rows(f"SELECT key, value FROM meta LIMIT {MAX_SETTINGS}"))


def next_doc(connection: sqlite3.Connection) -> int:
    """The number of the next document."""
    row = connection.execute("SELECT seq FROM sqlite_sequence WHERE name = 'documents'").fetchone()
    return 1 if row is None else stored_number(row[0], "the largest document number") + 1


def insert_document(
    connection: sqlite3.Connection, document: Document, placement: Placement, analyser: Analyser
) -> None:
    """Adds a document and its words. No other document may have its id."""
    connection.execute(
        "INSERT INTO documents (doc, id, digest, segment, first_row, n_rows, title, metadata, text)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
        [
            placement.doc,
            document.id,
            content_digest(document),
            placement.segment,
            placement.first_row,
            placement.n_rows,
            document.title,
            metadata_json(document),
            document.text,
        ],
    )
    add_to_fts(connection, analyser, [(placement.doc, document.title, document.text)])


class MetadataUpdate(NamedTuple):
    """The new metadata of a document, as it is stored."""

    metadata: str
    digest: bytes
    doc: int


def metadata_updates(
    connection: sqlite3.Connection, changes: Mapping[str, Mapping[str, Any]], not_deleted: str, *, replace_all: bool
) -> list[MetadataUpdate]:
    """What `changes`, metadata by id, make of documents; those that stay equal are left out. With `replace_all` the
    metadata is the new one alone, otherwise fields that are not named stay. DocumentError for an unknown id."""
    updates: list[MetadataUpdate] = []
    for chunk in chunks(list(changes)):
        condition = f"id IN ({placeholders(len(chunk))}) AND {not_deleted}"
        sql = f"SELECT id, doc, title, metadata, text, digest FROM documents WHERE {condition}"
        n_found = 0
        for id, doc, title, metadata, text, digest in connection.execute(sql, chunk):
            n_found += 1
            if not matches_digest(id, text, title, metadata, digest):  # a new digest would hide the damage
                raise CorruptIndexError(f"document {id!r:.100} does not match its content digest; run plait check")
            stored_fields = stored_json(metadata)
            sections, origin = parse_reserved(f"document {id!r:.100}", stored_fields)
            fields = {**({} if replace_all else stored_fields), **changes[id]}
            document = Document(id, text, title, fields, sections, origin)
            check_document(document)
            new_digest = content_digest(document)
            if new_digest != digest:
                updates.append(MetadataUpdate(metadata_json(document), new_digest, doc))
        if n_found < len(chunk):
            raise _unknown_ids(connection, chunk, not_deleted)
    return updates


def write_metadata(connection: sqlite3.Connection, updates: Sequence[MetadataUpdate]) -> None:
    connection.executemany("UPDATE documents SET metadata = ?, digest = ? WHERE doc = ?", updates)


def metadata_json(document: Document) -> str:
    """The metadata of a document as the catalogue stores it."""
    return json.dumps(plain_metadata(document), ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def _unknown_ids(connection: sqlite3.Connection, ids: Sequence[str], not_deleted: str) -> DocumentError:
    condition = f"id IN ({placeholders(len(ids))}) AND {not_deleted}"
    known = {id for (id,) in connection.execute(f"SELECT id FROM documents WHERE {condition}", ids)}
    unknown = next(id for id in ids if id not in known)
    return DocumentError(f"there is no document {unknown!r:.100} in this index; add it, or leave it out")


def insert_segment(connection: sqlite3.Connection, record: SegmentRecord) -> None:
    """Makes a segment live and uses its number up."""
    connection.execute("INSERT INTO segments VALUES (?, ?, ?)", [record.number, record.n_rows, _files_json(record)])
    connection.execute("UPDATE meta SET value = ? WHERE key = 'next_segment'", [record.number + 1])


def update_segment_files(connection: sqlite3.Connection, record: SegmentRecord) -> None:
    connection.execute("UPDATE segments SET files = ? WHERE segment = ?", [_files_json(record), record.number])


def _files_json(record: SegmentRecord) -> str:
    return json.dumps({name: asdict(file) for name, file in record.files.items()})


def replace_segments(
    connection: sqlite3.Connection,
    record: SegmentRecord | None,
    documents: NDArray[np.int64],
    run: SegmentRun | None = None,
) -> None:
    """Replaces the segments of `run`, or all, by one; `record` is None if they have no live row.

    `documents` (documents, 3) has the number, the first row and the number of rows of each document in the new segment.
    Deleted documents must have been purged.
    """
    in_run, documents_in_run = "", ""
    if run is not None:
        in_run = f"WHERE segment IN ({', '.join(map(str, run.segments))})"
        documents_in_run = f"{in_run} AND doc BETWEEN {run.first_doc} AND {run.last_doc}"
    sql = f"SELECT COUNT(*) FROM (SELECT 1 FROM documents {documents_in_run} LIMIT {N_ROWS})"
    n_documents = connection.execute(sql).fetchone()[0]
    n_moved = 0
    if record is not None:
        sql = "UPDATE documents SET segment = ?, first_row = ? WHERE doc = ? AND n_rows = ?"
        for start in range(0, len(documents), MAX_PARAMETERS):
            chunk = documents[start : start + MAX_PARAMETERS].tolist()
            moves = [(record.number, first_row, doc, n_rows) for doc, first_row, n_rows in chunk]
            n_moved += connection.executemany(sql, moves).rowcount
    if not n_moved == n_documents == len(documents):
        raise CorruptIndexError(
            f"the segments have the rows of {len(documents)} documents, the catalogue has {n_documents} documents, and "
            f"{n_moved} of them match; run plait check"
        )
    connection.execute(f"DELETE FROM segments {in_run}")
    connection.execute(f"DELETE FROM deleted_rows {in_run}")
    if run is None:
        optimize_fts(connection)
    if record is not None:
        insert_segment(connection, record)


def parse_properties(stored: object) -> dict[str, Any]:
    """The properties of an index, from meta."""
    try:
        properties = stored_json(stored)
    except ValueError as error:
        raise CorruptIndexError(f"the properties in the catalogue are damaged ({error!s:.100})") from None
    if not isinstance(properties, dict):
        raise CorruptIndexError(f"the properties in the catalogue are damaged: {stored!r:.200}")
    return properties


def parse_pooling(properties: object) -> Pooling | None:
    """How an index pools its multi vectors, from the properties in meta."""
    try:
        return Pooling.from_dict(parse_properties(properties).get("pooling"))
    except (TypeError, ConfigError) as error:
        raise CorruptIndexError(f"the pooling in the catalogue is damaged ({error!r}): {properties!r:.200}") from error


def parse_projection(properties: object) -> Projection | None:
    """The projection that an index fits when it has enough vectors, from the properties in meta."""
    try:
        return Projection.from_dict(parse_properties(properties).get("projection"))
    except (TypeError, ConfigError) as error:
        raise CorruptIndexError(
            f"the projection in the catalogue is damaged ({error!r}): {properties!r:.200}"
        ) from error


def parse_chunking(properties: object) -> Chunking | None:
    """How an index splits documents, from the properties in meta; None: as the encoder does."""
    try:
        return Chunking.from_dict(parse_properties(properties).get("chunking"))
    except (TypeError, ConfigError) as error:
        raise CorruptIndexError(f"the chunking in the catalogue is damaged ({error!r}): {properties!r:.200}") from error


def read_chunking(connection: sqlite3.Connection) -> Chunking | None:
    return parse_chunking(_read_properties(connection))


def read_wanted_projection(connection: sqlite3.Connection) -> Projection | None:
    return parse_projection(_read_properties(connection))


def read_pooling(connection: sqlite3.Connection) -> Pooling | None:
    return parse_pooling(_read_properties(connection))


def _read_properties(connection: sqlite3.Connection) -> object:
    row = connection.execute("SELECT value FROM meta WHERE key = 'properties'").fetchone()
    return row and row[0]


def write_pooling(connection: sqlite3.Connection, pooling: Pooling) -> None:
    """From now on the index pools its multi vectors."""
    properties = parse_properties(_read_properties(connection))
    write_meta(connection, "properties", json.dumps({**properties, "pooling": pooling.to_dict()}))


def write_wanted_projection(connection: sqlite3.Connection, projection: Projection | None) -> None:
    """From now on the index fits this projection when it has enough vectors; None: it fits none."""
    properties = parse_properties(_read_properties(connection))
    properties.pop("projection", None)
    if projection is not None:
        properties["projection"] = projection.to_dict()
    write_meta(connection, "properties", json.dumps(properties))


def segment_numbers(connection: sqlite3.Connection) -> set[int]:
    sql = f"SELECT segment FROM segments ORDER BY segment LIMIT {MAX_SEGMENTS}"
    numbers = [number for (number,) in connection.execute(sql)]
    _check_ascending(numbers)
    return set(numbers)


def may_need_merge(connection: sqlite3.Connection, *, min_segments: int, max_deleted_share: float) -> bool:
    """Whether there are `min_segments` segments, or one with a larger share of deleted rows. Opens no segment."""
    if len(segment_numbers(connection)) >= min_segments:
        return True
    deleted = f"SELECT segment, COUNT(*) AS n FROM (SELECT segment FROM deleted_rows LIMIT {N_ROWS}) GROUP BY segment"
    sql = f"SELECT 1 FROM segments JOIN ({deleted}) USING (segment) WHERE n > ? * n_rows LIMIT 1"
    return connection.execute(sql, [max_deleted_share]).fetchone() is not None


def read_segments(view: ReadTransaction) -> list[SegmentRecord]:
    """The live segments, in the order of their numbers."""
    rows = view.rows(f"SELECT segment, n_rows, files FROM segments ORDER BY segment LIMIT {MAX_SEGMENTS}")
    _check_ascending([row[0] for row in rows])
    return [_parse_record(*row) for row in rows]


def _check_ascending(numbers: list[int]) -> None:
    if any(after <= before for before, after in pairwise(numbers)):
        raise CorruptIndexError("the catalogue is damaged: its segments are not in the order of their numbers")


def read_segment(view: ReadTransaction, number: int) -> SegmentRecord:
    """One segment; for callers that go on if another is damaged."""
    rows = view.rows("SELECT segment, n_rows, files FROM segments WHERE segment = ?", [number])
    if len(rows) != 1:
        raise CorruptIndexError(f"the catalogue has {len(rows)} segments with the number {number}")
    return _parse_record(*rows[0])


def largest_segment_with(connection: sqlite3.Connection, file_name: str) -> SegmentRecord | None:
    """The live segment with the most rows that has such a file; the first of equals."""
    sql = "SELECT segment, n_rows, files FROM segments WHERE instr(files, ?) ORDER BY n_rows DESC, segment LIMIT 1"
    row = connection.execute(sql, [f'"{file_name}"']).fetchone()
    return None if row is None else _parse_record(*row)


def _parse_record(number: object, n_rows: object, files: object) -> SegmentRecord:
    checked = stored_number(number, "the number of a segment", least=1)
    n_checked = stored_number(n_rows, f"the number of rows of segment {number}")
    return SegmentRecord(checked, n_checked, _parse_files(checked, files))


def _parse_files(number: int, stored: object) -> dict[str, FileRecord]:
    try:
        files = {name: FileRecord(**fields) for name, fields in stored_json(stored).items()}
        valid = all(FILE_NAME.fullmatch(name) for name in files) and all(
            type(size) is int and 0 <= size < MAX_NUMBER for file in files.values() for size in asdict(file).values()
        )
    except (ValueError, TypeError, AttributeError):
        valid = False
    if not valid:
        raise CorruptIndexError(f"the list of files of segment {number} in the catalogue is damaged: {stored!r:.200}")
    return files


def read_deleted_rows(view: ReadTransaction) -> dict[int, NDArray[np.int64]]:
    """The deleted rows of each segment that has any, ascending."""
    pairs = view.rows(f"SELECT segment, row FROM deleted_rows ORDER BY segment, row LIMIT {N_ROWS}")
    try:
        rows = np.fromiter(chain.from_iterable(pairs), np.int64, 2 * len(pairs)).reshape(-1, 2)
    except (ValueError, TypeError, OverflowError) as error:
        raise CorruptIndexError(f"the deleted rows in the catalogue are damaged ({error}); run plait check") from None
    segments, starts = np.unique(rows[:, 0], return_index=True)
    parts = np.split(rows[:, 1], starts[1:])
    return {int(segment): part for segment, part in zip(segments, parts, strict=False)}


def chunks(values: Sequence[T]) -> Iterator[Sequence[T]]:
    """The values in chunks that fit into one statement."""
    for start in range(0, len(values), MAX_PARAMETERS):
        yield values[start : start + MAX_PARAMETERS]


def placeholders(n_values: int) -> str:
    """The parameters of an IN list."""
    return ", ".join("?" * n_values)

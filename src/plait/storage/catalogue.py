"""The catalogue: one SQLite database with the documents, their full text, the list of segments and the deletions.

Its transactions are the only commit points of an index. Each function here is one step within a transaction that its
caller begins and ends. What a reader needs at opening is kept as counts, so that opening never counts documents.
"""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from plait.codec.pooling import Pooling
from plait.errors import ConfigError, CorruptIndexError, NewerFormatError
from plait.records import Document
from plait.storage.connection import ReadTransaction
from plait.storage.documents import content_digest, plain_metadata
from plait.storage.segment_file import FileRecord
from plait.text.analyser import Analyser
from plait.text.fts_table import add_to_fts, fts_schema, optimize_fts
from plait.version import __version__

FORMAT = 4  # of the index as a whole: the newest that this plait reads
# Most indexes are written as format 1, and open in any plait. One whose multi strand is pooled, or has as many vectors
# for every passage, is format 2: an older plait would add to it what is not pooled, or miss its offsets.
# One with a sparse strand is format 3: an older plait would take it for damaged. One that something was deleted from is
# format 4: an older plait would find it again, for it may still be among the documents (`graves`).
PLAIN_FORMAT, POOLED_FORMAT, SPARSE_FORMAT, GRAVES_FORMAT = 1, 2, 3, 4
APPLICATION_ID = 0x504C4149  # "PLAI": what says that a database is a plait catalogue
CHUNK = 500  # parameters of one statement; any SQLite takes as many

# The text stands last: a row's other columns are then read without the pages that a long text fills. A document's
# number is never used twice, so that a number in a segment means one document for ever.
SCHEMA = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value) WITHOUT ROWID;
CREATE TABLE documents (
    doc INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT UNIQUE NOT NULL,
    digest BLOB NOT NULL,
    segment INTEGER NOT NULL,
    first_row INTEGER NOT NULL,
    n_rows INTEGER NOT NULL,
    title TEXT NOT NULL,
    metadata TEXT NOT NULL,
    text TEXT NOT NULL
);
CREATE TABLE segments (segment INTEGER PRIMARY KEY, n_rows INTEGER NOT NULL, files TEXT NOT NULL);
CREATE TABLE tombstones (segment INTEGER, row INTEGER, PRIMARY KEY (segment, row)) WITHOUT ROWID;
"""

T = TypeVar("T")
_FILE_NAME = re.compile(r"[a-z][a-z0-9_-]*\.plait")


@dataclass(frozen=True, slots=True)
class SegmentRecord:
    """A segment as the catalogue lists it."""

    number: int
    n_rows: int
    files: Mapping[str, FileRecord]  # by name


@dataclass(frozen=True, slots=True)
class Placement:
    """Which rows of which segment belong to a document."""

    doc: int
    segment: int
    first_row: int
    n_rows: int


@dataclass(frozen=True, slots=True)
class SegmentRun:
    """Segments that are neighbours, and the numbers of documents that they have to themselves."""

    segments: tuple[int, ...]
    first_doc: int
    last_doc: int


def refuse_newer(path: Path, format_number: int) -> None:
    """Raises if an index is of a format that this plait does not know."""
    if format_number > FORMAT:
        raise NewerFormatError(
            f"index {path} has format {format_number}, and this plait ({__version__}) reads up to {FORMAT}; install "
            f"the plait that wrote it, or a newer one"
        )


def create_schema(connection: sqlite3.Connection, meta: Mapping[str, object], analyser: Analyser) -> None:
    """Makes the tables. Within a transaction: a catalogue has all of them or is none."""
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    for statement in [*SCHEMA.split(";\n"), fts_schema(analyser)]:
        if statement.strip():
            connection.execute(statement)
    counts = {"commit": 0, "next_segment": 1, "n_documents": 0}
    connection.executemany("INSERT INTO meta VALUES (?, ?)", list({**meta, **counts}.items()))


def read_count(connection: sqlite3.Connection, key: str) -> int:
    """One of the numbers in meta: format, commit, next_segment, n_documents."""
    return int(connection.execute("SELECT value FROM meta WHERE key = ?", [key]).fetchone()[0])


def add_to_count(connection: sqlite3.Connection, key: str, difference: int) -> None:
    connection.execute("UPDATE meta SET value = value + ? WHERE key = ?", [difference, key])


def next_doc(connection: sqlite3.Connection) -> int:
    """The number of the next document; the one writer alone uses numbers up."""
    row = connection.execute("SELECT seq FROM sqlite_sequence WHERE name = 'documents'").fetchone()
    return 1 if row is None else int(row[0]) + 1


def insert_document(connection: sqlite3.Connection, document: Document, place: Placement, analyser: Analyser) -> None:
    """Makes a document and its words live. Its id must not be there."""
    metadata = json.dumps(plain_metadata(document), ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    connection.execute(
        "INSERT INTO documents (doc, id, digest, segment, first_row, n_rows, title, metadata, text)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
        [
            place.doc,
            document.id,
            content_digest(document),
            place.segment,
            place.first_row,
            place.n_rows,
            document.title,
            metadata,
            document.text,
        ],
    )
    add_to_fts(connection, analyser, [(place.doc, document.title, document.text)])


def insert_segment(connection: sqlite3.Connection, record: SegmentRecord) -> None:
    """Makes a segment live, and its number used."""
    files = json.dumps({name: asdict(facts) for name, facts in record.files.items()})
    connection.execute("INSERT INTO segments VALUES (?, ?, ?)", [record.number, record.n_rows, files])
    connection.execute("UPDATE meta SET value = ? WHERE key = 'next_segment'", [record.number + 1])


def keep_files(connection: sqlite3.Connection, record: SegmentRecord) -> None:
    """Lists fewer files of a segment: those of the record."""
    files = json.dumps({name: asdict(facts) for name, facts in record.files.items()})
    connection.execute("UPDATE segments SET files = ? WHERE segment = ?", [files, record.number])


def replace_segments(
    connection: sqlite3.Connection,
    record: SegmentRecord | None,
    places: NDArray[np.int64],
    old: SegmentRun | None = None,
) -> None:
    """Puts one segment in the place of some others, or of all; None is for segments without a not_deleted row.

    `places` (documents, 3) has the number, the first row and the count of rows of every document of them. What was
    deleted of them must have been taken out.
    """
    among, within = "", ""
    if old is not None:
        among = f"WHERE segment IN ({', '.join(map(str, old.segments))})"
        within = f"{among} AND doc BETWEEN {old.first_doc} AND {old.last_doc}"
    n_documents = connection.execute(f"SELECT COUNT(*) FROM documents {within}").fetchone()[0]
    n_moved = 0
    if record is not None:
        sql = "UPDATE documents SET segment = ?, first_row = ? WHERE doc = ? AND n_rows = ?"
        for start in range(0, len(places), CHUNK):
            some = places[start : start + CHUNK].tolist()
            moves = [(record.number, first_row, doc, n_rows) for doc, first_row, n_rows in some]
            n_moved += connection.executemany(sql, moves).rowcount
    if not n_moved == n_documents == len(places):
        raise CorruptIndexError(
            f"the segments hold the rows of {len(places)} documents, the catalogue has {n_documents}, and {n_moved} of "
            f"them agree; run plait check"
        )
    connection.execute(f"DELETE FROM segments {among}")
    connection.execute(f"DELETE FROM tombstones {among}")
    if old is None:
        optimize_fts(connection)
    if record is not None:
        insert_segment(connection, record)


def pooling_in(facts: str) -> Pooling | None:
    """How an index pools its multi strand, from the facts in meta."""
    try:
        return Pooling.from_dict(json.loads(facts).get("pooling"))
    except (ValueError, TypeError, AttributeError, ConfigError) as error:
        raise CorruptIndexError(f"what the catalogue says of pooling is damaged ({error!r}): {facts!r:.200}") from error


def read_pooling(connection: sqlite3.Connection) -> Pooling | None:
    return pooling_in(connection.execute("SELECT value FROM meta WHERE key = 'facts'").fetchone()[0])


def write_pooling(connection: sqlite3.Connection, pooling: Pooling) -> None:
    """From now on the index pools, which older versions of plait do not know."""
    (facts,) = connection.execute("SELECT value FROM meta WHERE key = 'facts'").fetchone()
    changed = json.dumps({**json.loads(facts), "pooling": pooling.to_dict()})
    connection.execute("UPDATE meta SET value = ? WHERE key = 'facts'", [changed])
    connection.execute("UPDATE meta SET value = max(value, ?) WHERE key = 'format'", [POOLED_FORMAT])


def segment_numbers(connection: sqlite3.Connection) -> set[int]:
    return {number for (number,) in connection.execute("SELECT segment FROM segments")}


def may_merge(connection: sqlite3.Connection, *, at_least: int, most_dead: float) -> bool:
    """Whether there are as many segments, or one with a greater share of deleted rows. Opens no segment."""
    if connection.execute("SELECT COUNT(*) FROM segments").fetchone()[0] >= at_least:
        return True
    dead = "SELECT segment, COUNT(*) AS n FROM tombstones GROUP BY segment"
    sql = f"SELECT 1 FROM segments JOIN ({dead}) USING (segment) WHERE n > ? * n_rows LIMIT 1"
    return connection.execute(sql, [most_dead]).fetchone() is not None


def read_segments(view: ReadTransaction) -> list[SegmentRecord]:
    """The live segments, in the order of their numbers."""
    rows = view.rows("SELECT segment, n_rows, files FROM segments ORDER BY segment")
    return [SegmentRecord(number, n_rows, _files(number, files)) for number, n_rows, files in rows]


def largest_with(connection: sqlite3.Connection, name: str) -> SegmentRecord | None:
    """Of the live segments that have a file of this name, the one with the most rows, the first of equals."""
    sql = "SELECT segment, n_rows, files FROM segments WHERE instr(files, ?) ORDER BY n_rows DESC, segment LIMIT 1"
    found = connection.execute(sql, [f'"{name}"']).fetchone()
    return None if found is None else SegmentRecord(found[0], found[1], _files(found[0], found[2]))


def read_segment(view: ReadTransaction, number: int) -> SegmentRecord:
    """One of them, for who goes on where another is damaged."""
    ((n_rows, files),) = view.rows("SELECT n_rows, files FROM segments WHERE segment = ?", [number])
    if not isinstance(n_rows, int):
        raise CorruptIndexError(f"the catalogue's count of rows of segment {number} is damaged: {n_rows!r:.50}")
    return SegmentRecord(number, n_rows, _files(number, files))


def _files(number: int, stored: str) -> dict[str, FileRecord]:
    try:
        files = {name: FileRecord(**facts) for name, facts in json.loads(stored).items()}
    except (ValueError, TypeError, AttributeError):
        files = {"": FileRecord(0, 0, 0)}
    if not all(_FILE_NAME.fullmatch(name) for name in files):
        raise CorruptIndexError(f"the catalogue's list of files of segment {number} is damaged: {stored!r:.200}")
    return files


def read_tombstones(view: ReadTransaction) -> dict[int, NDArray[np.int64]]:
    """The deleted rows of each segment that has any, ascending."""
    pairs = view.rows("SELECT segment, row FROM tombstones ORDER BY segment, row")
    rows = np.fromiter(chain.from_iterable(pairs), np.int64, 2 * len(pairs)).reshape(-1, 2)
    segments, starts = np.unique(rows[:, 0], return_index=True)
    parts = np.split(rows[:, 1], starts[1:])
    return {int(segment): part for segment, part in zip(segments, parts, strict=False)}


def read_meta(view: ReadTransaction) -> dict[str, Any]:
    return dict(view.rows("SELECT key, value FROM meta"))


def chunks(values: Sequence[T]) -> Iterator[Sequence[T]]:
    """The values, as many at a time as one statement may name."""
    for start in range(0, len(values), CHUNK):
        yield values[start : start + CHUNK]


def marks(n_values: int) -> str:
    """The parameters of an IN list."""
    return ", ".join("?" * n_values)

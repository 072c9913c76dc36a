"""The tables of the catalogue, and the check that a database has these tables and nothing else.

An index may come from a stranger. A view, a trigger or a table of another shape in its catalogue would run SQL that
plait did not write, so every connection compares the schema with the expected one before it reads anything else.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from plait.errors import CorruptIndexError, NewerFormatError, NotAnIndexError
from plait.text.analyser import Analyser
from plait.text.fts_table import fts_schema
from plait.version import __version__

# Formats of the index as a whole. A writer uses the oldest that can express the index, so that an older plait reads it.
FIRST_FORMAT, PROJECTED_FORMAT = 1, 2  # 2: multi vectors are projected; see plait.storage.projections
FORMAT = PROJECTED_FORMAT  # the newest that this plait reads
APPLICATION_ID = 0x504C4149  # "PLAI": marks a database as a plait catalogue

# The text is the last column: a row's other columns can then be read without the pages of a long text. AUTOINCREMENT
# never reuses a document number, so a number in a segment means one document for ever.
DOCUMENTS = """CREATE TABLE documents (
    doc INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT UNIQUE NOT NULL,
    digest BLOB NOT NULL,
    segment INTEGER NOT NULL,
    first_row INTEGER NOT NULL,
    n_rows INTEGER NOT NULL,
    title TEXT NOT NULL,
    metadata TEXT NOT NULL,
    text TEXT NOT NULL
"""
META = "CREATE TABLE meta (key TEXT PRIMARY KEY, value) WITHOUT ROWID"
TABLES = {
    "meta": META,
    "documents": f"{DOCUMENTS})",
    "segments": "CREATE TABLE segments (segment INTEGER PRIMARY KEY, n_rows INTEGER NOT NULL, files TEXT NOT NULL)",
    "deleted_rows": (
        "CREATE TABLE deleted_rows (segment INTEGER, row INTEGER, PRIMARY KEY (segment, row)) WITHOUT ROWID"
    ),
    "deleted_documents": "CREATE TABLE deleted_documents (doc INTEGER PRIMARY KEY)",
}

# What SQLite adds: the counter of AUTOINCREMENT, the index of UNIQUE, and the tables in which FTS5 stores `words`.
_ADDED = {
    ("table", "sqlite_sequence", "sqlite_sequence"): "CREATE TABLE sqlite_sequence(name,seq)",
    ("index", "sqlite_autoindex_documents_1", "documents"): None,
    ("table", "words_data", "words_data"): "CREATE TABLE 'words_data'(id INTEGER PRIMARY KEY, block BLOB)",
    ("table", "words_idx", "words_idx"): (
        "CREATE TABLE 'words_idx'(segid, term, pgno, PRIMARY KEY(segid, term)) WITHOUT ROWID"
    ),
    ("table", "words_docsize", "words_docsize"): "CREATE TABLE 'words_docsize'(id INTEGER PRIMARY KEY, sz BLOB)",
    ("table", "words_config", "words_config"): "CREATE TABLE 'words_config'(k PRIMARY KEY, v) WITHOUT ROWID",
}
_EXPECTED = {("table", name, name): sql for name, sql in TABLES.items()} | _ADDED
_WORDS = {fts_schema(Analyser()), fts_schema(Analyser("de"))}  # with a stemmer SQLite does not stem
_FTS_CONFIG = [("version", 4)]  # the options that FTS5 stores; plait sets none
MAX_ENTRIES = 200  # of the schema: the tables above, and one index for each of at most 100 fields

# The columns and the index of one field; see plait.storage.field_indexes.
_LITERAL = r"""'\$(?:\."(?:[ !#-&(-\[\]-~]|'')*")+'"""  # a JSON path as an SQL string: is_plain keys, quotes doubled
_FIELD = re.compile(
    rf", field(\d+)_type GENERATED ALWAYS AS \(ifnull\(json_type\(metadata, ({_LITERAL})\), 'null'\)\) VIRTUAL"
    rf", field\1_value GENERATED ALWAYS AS \(json_extract\(metadata, \2\)\) VIRTUAL"
)

Entry = tuple[Any, Any, Any, Any, Any]  # type, name, table, root page, SQL


def field_sql(number: int, keys: Iterable[str]) -> tuple[str, str, str]:
    """The definitions of the two generated columns of a field, and the statement that creates their index."""
    literal = "'$" + "".join(f'."{key}"' for key in keys).replace("'", "''") + "'"
    return (
        f"field{number}_type GENERATED ALWAYS AS (ifnull(json_type(metadata, {literal}), 'null')) VIRTUAL",
        f"field{number}_value GENERATED ALWAYS AS (json_extract(metadata, {literal})) VIRTUAL",
        _field_index(number),
    )


def _field_index(number: int) -> str:
    return f"CREATE INDEX by_field{number}_value ON documents (field{number}_type, field{number}_value)"


def check_format(path: Path, format_number: int) -> None:
    """Raises NewerFormatError if a newer plait wrote the index."""
    if format_number > FORMAT:
        raise NewerFormatError(
            f"index {path} has format {format_number}, but this plait ({__version__}) reads up to {FORMAT}; install "
            f"the plait that wrote it, or a newer one"
        )


def check_schema(connection: sqlite3.Connection, catalogue: Path) -> None:
    """Raises unless the database is empty or has exactly the tables and indexes that plait makes. Begins to read."""
    entries = connection.execute(
        f"SELECT type, name, tbl_name, rootpage, sql FROM sqlite_schema LIMIT {MAX_ENTRIES + 1}"
    ).fetchall()
    (application_id,) = connection.execute("PRAGMA application_id").fetchone()
    if not entries and application_id == 0:
        return  # a creation that was interrupted, or is about to begin
    if application_id != APPLICATION_ID:
        raise NotAnIndexError(f"{catalogue} is the database of another program; choose another folder")
    problem = _schema_problem(entries) or _config_problem(connection)
    if problem:
        _check_older_format(connection, catalogue, entries)
        raise CorruptIndexError(
            f"{catalogue} is damaged or was made by another program: {problem}; restore the index from a copy, or "
            f"build it again"
        )


def _schema_problem(entries: list[Entry]) -> str:
    """The first entry that plait does not make, or that is missing; empty if there is none."""
    expected = dict(_EXPECTED)
    for kind, name, table, _, sql in entries:
        if (kind, name, table) == ("table", "documents", "documents") and sql != TABLES["documents"]:
            fields = _n_fields(sql)
            if fields is None:
                return f"its table documents is {sql!r:.100}"
            expected["table", "documents", "documents"] = sql
            for number in range(1, fields + 1):
                expected["index", f"by_field{number}_value", "documents"] = _field_index(number)
    words = ("table", "words", "words")
    for kind, name, table, _, sql in entries:
        key = (kind, name, table)
        if key == words and sql in _WORDS:
            continue
        if key not in expected or expected.pop(key) != sql:
            return f"it has the {kind!s:.20} {name!r:.60} as {sql!r:.100}, which plait does not make"
    missing = sorted(name for _, name, _ in {*expected, words} - {entry[:3] for entry in entries})
    if missing:
        return f"it lacks {', '.join(missing)}"
    pages = [page for _, name, _, page, _ in entries if name != "words"]
    if not all(type(page) is int and page > 1 for page in pages) or len(set(pages)) < len(pages):
        return f"its tables begin at the pages {pages!s:.100}"
    return ""


def _n_fields(sql: object) -> int | None:
    """How many indexed fields a table of documents has; None if plait does not make such a table."""
    if not isinstance(sql, str) or not sql.startswith(DOCUMENTS):
        return None
    position, number = len(DOCUMENTS), 0
    while match := _FIELD.match(sql, position):
        position, number = match.end(), number + 1
        if match[1] != str(number):
            return None
    return number if sql[position:] == ")" else None


def _config_problem(connection: sqlite3.Connection) -> str:
    config = connection.execute("SELECT k, v FROM words_config LIMIT 2").fetchall()
    return "" if config == _FTS_CONFIG else f"its full-text table has the options {config!r:.100}"


def _check_older_format(connection: sqlite3.Connection, catalogue: Path, entries: list[Entry]) -> None:
    """Raises NewerFormatError if a newer plait made the tables. Only a plain table of settings is read."""
    if [entry[4] for entry in entries if entry[1] == "meta"] == [META]:
        row = connection.execute("SELECT value FROM meta WHERE key = 'format'").fetchone()
        if row is not None and type(row[0]) is int:
            check_format(catalogue.parent, row[0])

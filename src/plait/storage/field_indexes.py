"""Indexes on chosen fields of the metadata, so that a filter on one need not read every document.

Each field has two columns that SQLite works out from the metadata, its JSON type and its value, and one index over
both. They cost nothing in the table; the index holds all that a comparison needs.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping

from plait.errors import ConfigError, CorruptIndexError
from plait.filters.ast import Columns, is_plain
from plait.filters.parser import field_named
from plait.storage.connection import ReadTransaction

KEY = "fields"
MOST = 100

Path = tuple[str, ...]


def path_of(name: str) -> Path:
    """The path of a field as a filter names it; ConfigError if it cannot have an index."""
    field = field_named(name)
    if field.of_document:
        raise ConfigError(f"{name} is the document's own and needs no index; name a field of the metadata")
    if not all(is_plain(key) for key in field.path):
        raise ConfigError(f"field {name} cannot have an index: its name has characters beyond printable ASCII")
    return field.path


def add_field(connection: sqlite3.Connection, path: Path) -> bool:
    """Makes an index on a field, within a transaction; False if there is one."""
    there = columns_in(_stored(connection))
    if path in there:
        return False
    if len(there) >= MOST:
        raise ConfigError(f"the index has {len(there)} indexed fields already; more than {MOST} are not made")
    own = Columns(f"field{len(there) + 1}_type", f"field{len(there) + 1}_value")
    literal = "'$" + "".join(f'."{key}"' for key in path).replace("'", "''") + "'"
    for column, expression in (
        (own.kind, f"ifnull(json_type(metadata, {literal}), 'null')"),
        (own.value, f"json_extract(metadata, {literal})"),
    ):
        connection.execute(f"ALTER TABLE documents ADD COLUMN {column} GENERATED ALWAYS AS ({expression}) VIRTUAL")
    connection.execute(f"CREATE INDEX by_{own.value} ON documents ({own.kind}, {own.value})")
    kept = json.dumps([*map(list, there), list(path)])
    connection.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", [KEY, kept])
    return True


def read_columns(view: ReadTransaction) -> Mapping[Path, Columns]:
    """The columns of each field that has an index."""
    rows = view.rows("SELECT value FROM meta WHERE key = ?", [KEY])
    return columns_in(rows[0][0] if rows else "[]")


def _stored(connection: sqlite3.Connection) -> str:
    row = connection.execute("SELECT value FROM meta WHERE key = ?", [KEY]).fetchone()
    return "[]" if row is None else str(row[0])


def columns_in(stored: object) -> dict[Path, Columns]:
    """What the catalogue keeps: the paths, in the order of their columns."""
    try:
        paths = [tuple(map(str, path)) for path in json.loads(str(stored))]
    except (ValueError, TypeError) as error:
        raise CorruptIndexError(f"the catalogue's list of indexed fields is damaged: {stored!r:.100}") from error
    return {path: Columns(f"field{n}_type", f"field{n}_value") for n, path in enumerate(paths, 1)}

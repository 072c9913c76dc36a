"""Indexes on metadata fields, so that a filter on such a field need not read every document.

Each indexed field has two generated columns, its JSON type and its value, and one SQLite index over both. The columns
take no space in the table; the index has all that a comparison needs.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping

from plait.errors import ConfigError, CorruptIndexError
from plait.filters.ast import Columns, is_plain
from plait.filters.parser import field_named
from plait.storage.catalogue import write_meta
from plait.storage.connection import ReadTransaction
from plait.storage.schema import field_sql
from plait.storage.stored_values import stored_json

INDEXED_FIELDS = "indexed_fields"  # key of meta
MAX_FIELDS = 100

Path = tuple[str, ...]


def parse_field(name: str) -> Path:
    """The path of a field, named as in a filter; ConfigError if it cannot be indexed."""
    field = field_named(name)
    if field.of_document:
        raise ConfigError(
            f"{name} is a field of the document, not of its metadata, and needs no index; name a metadata field"
        )
    if not all(is_plain(key) for key in field.path):
        raise ConfigError(f"field {name} cannot be indexed: its name has characters outside printable ASCII")
    return field.path


def add_field(connection: sqlite3.Connection, path: Path) -> bool:
    """Creates an index on a field, within a transaction; False if the field has one."""
    indexed = parse_columns(_stored(connection))
    if path in indexed:
        return False
    if len(indexed) >= MAX_FIELDS:
        raise ConfigError(f"the index has {len(indexed)} indexed fields already; at most {MAX_FIELDS} are allowed")
    kind_column, value_column, index = field_sql(len(indexed) + 1, path)
    connection.execute(f"ALTER TABLE documents ADD COLUMN {kind_column}")
    connection.execute(f"ALTER TABLE documents ADD COLUMN {value_column}")
    connection.execute(index)
    write_meta(connection, INDEXED_FIELDS, json.dumps([*map(list, indexed), list(path)]))
    return True


def read_columns(view: ReadTransaction) -> Mapping[Path, Columns]:
    """The columns of each indexed field."""
    rows = view.rows("SELECT value FROM meta WHERE key = ?", [INDEXED_FIELDS])
    return parse_columns(rows[0][0] if rows else "[]")


def _stored(connection: sqlite3.Connection) -> object:
    row = connection.execute("SELECT value FROM meta WHERE key = ?", [INDEXED_FIELDS]).fetchone()
    return "[]" if row is None else row[0]


def parse_columns(stored: object) -> dict[Path, Columns]:
    """The columns of each field, from the list of paths in meta."""
    try:
        paths = [tuple(path) for path in stored_json(stored)]
        valid = len(paths) <= MAX_FIELDS and all(path and all(map(_is_key, path)) for path in paths)
    except (ValueError, TypeError):
        valid = False
    if not valid:
        raise CorruptIndexError(f"the list of indexed fields in the catalogue is damaged: {stored!r:.100}")
    return {path: _columns(number) for number, path in enumerate(paths, 1)}


def _is_key(key: object) -> bool:
    return isinstance(key, str) and is_plain(key)


def _columns(number: int) -> Columns:
    return Columns(f"field{number}_type", f"field{number}_value")

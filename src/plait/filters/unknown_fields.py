"""Fields that a filter asks for and no document has: a name that was spelt wrong, most often."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator

from plait.filters.ast import And, Field, IsNull, Node, Not, Or
from plait.filters.parser import parse
from plait.filters.sql import condition_of
from plait.storage.connection import ReadTransaction

READ = 1000  # documents whose fields are looked at for a likely name
DEEPEST = 8  # of nested ones


def unknown_filter_fields(view: ReadTransaction, filter: str, not_deleted: str) -> str:
    """`no document has a field langauge; did you mean language?`, or nothing if every field is there."""
    absent = [field for field in fields_in(parse(filter)) if not _is_held(view, field, not_deleted)]
    if not absent:
        return ""
    names = ", ".join(".".join(field.path) for field in absent)
    known = _known(view, not_deleted)
    near = [found for field in absent for found in difflib.get_close_matches(".".join(field.path), known, 1)]
    hint = f"did you mean {' and '.join(near)}?" if near else _listed(known)
    return f"no document has a field {names}; {hint}"


def fields_in(node: Node) -> list[Field]:
    """The fields of the metadata that a filter names, each once."""
    return list(dict.fromkeys(_fields(node)))


def _fields(node: Node) -> Iterator[Field]:
    match node:
        case Not(operand):
            yield from _fields(operand)
        case And(operands) | Or(operands):
            for operand in operands:
                yield from _fields(operand)
        case _:
            if not node.field.of_document:
                yield node.field


def _is_held(view: ReadTransaction, field: Field, not_deleted: str) -> bool:
    held = condition_of(Not(IsNull(field)))
    return bool(view.rows(f"SELECT 1 FROM documents WHERE ({held.sql}) AND {not_deleted} LIMIT 1", held.parameters))


def _known(view: ReadTransaction, not_deleted: str) -> list[str]:
    """Names of fields, nested ones as paths, of the first documents."""
    found: dict[str, None] = {}
    for (metadata,) in view.rows(f"SELECT metadata FROM documents WHERE {not_deleted} LIMIT {READ}"):
        _gather(json.loads(metadata or "{}"), "", found, DEEPEST)
    return list(found)


def _gather(values: dict[str, object], prefix: str, found: dict[str, None], levels: int) -> None:
    for name, value in values.items():
        found[prefix + name] = None
        if isinstance(value, dict) and levels > 1:
            _gather(value, f"{prefix}{name}.", found, levels - 1)


def _listed(known: list[str], most: int = 10) -> str:
    if not known:
        return "the documents have no metadata"
    return f"there are {', '.join(known[:most])}{' and others' if len(known) > most else ''}"

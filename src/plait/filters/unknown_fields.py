"""Fields that a filter names and no document has, most often a typing error."""

from __future__ import annotations

import difflib
import json
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from plait.errors import UnknownFieldWarning
from plait.filters.ast import And, Field, IsNull, Node, Not, Or
from plait.filters.parser import parse
from plait.filters.sql import condition_of

MAX_READ = 1000  # documents whose field names are compared
MAX_DEPTH = 8  # of nested fields
MAX_LISTED = 10  # field names in a message
RESERVED = "_plait"  # the key under which storage keeps sections; not a field of users

_collected: ContextVar[list[str] | None] = ContextVar("plait_unknown_fields", default=None)

Select = Callable[[str, Sequence[object]], list[tuple[Any, ...]]]  # runs a SELECT with parameters


def unknown_filter_fields(select: Select, filter: str, not_deleted: str) -> str:
    """A message such as `no document has a field langauge; did you mean language?`; empty if all fields exist.

    `not_deleted` is the SQL condition for documents that count.
    """
    unknown = [field for field in fields_in(parse(filter)) if not _exists(select, field, not_deleted)]
    if not unknown:
        return ""
    names = ", ".join(".".join(field.path) for field in unknown)
    known = _known_fields(select, not_deleted)
    similar = [name for field in unknown for name in difflib.get_close_matches(".".join(field.path), known, 1)]
    hint = f"did you mean {' and '.join(similar)}?" if similar else _list_fields(known)
    return f"no document has a field {names}; {hint}"


def warn(message: str, *, stacklevel: int) -> None:
    """Warns of unknown fields, or adds the message to those that the caller collects."""
    collected = _collected.get()
    if collected is None:
        warnings.warn(message, UnknownFieldWarning, stacklevel=stacklevel + 1)
    else:
        collected.append(message)


@contextmanager
def collect_messages() -> Iterator[list[str]]:
    """Collects the messages of the block instead of warning, for servers: the filters of `warnings` are those of the
    whole process, and not of one thread."""
    messages: list[str] = []
    token = _collected.set(messages)
    try:
        yield messages
    finally:
        _collected.reset(token)


def fields_in(node: Node) -> list[Field]:
    """The metadata fields that a filter names, each once."""
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


def _exists(select: Select, field: Field, not_deleted: str) -> bool:
    condition = condition_of(Not(IsNull(field)))
    sql = f"SELECT 1 FROM documents WHERE ({condition.sql}) AND {not_deleted} LIMIT 1"
    return bool(select(sql, condition.parameters))


def _known_fields(select: Select, not_deleted: str) -> list[str]:
    """The field names of the first documents, nested ones as paths."""
    names: dict[str, None] = {}
    for (metadata,) in select(f"SELECT metadata FROM documents WHERE {not_deleted} LIMIT {MAX_READ}", ()):
        _collect(_parsed(metadata), "", names, MAX_DEPTH)
    return list(names)


def _parsed(metadata: object) -> dict[str, object]:
    """The metadata of a document; nothing if it is damaged, since this is only for a message."""
    try:
        values = json.loads(metadata) if isinstance(metadata, str) else {}
    except (ValueError, RecursionError):
        values = {}
    return values if isinstance(values, dict) else {}


def _collect(values: dict[str, object], prefix: str, names: dict[str, None], levels: int) -> None:
    for name, value in values.items():
        if not prefix and name == RESERVED:
            continue
        names[prefix + name] = None
        if isinstance(value, dict) and levels > 1:
            _collect(value, f"{prefix}{name}.", names, levels - 1)


def _list_fields(known: list[str]) -> str:
    if not known:
        return "the documents have no metadata"
    return f"known fields: {', '.join(known[:MAX_LISTED])}{' and others' if len(known) > MAX_LISTED else ''}"

"""Values of a metadata field over many documents: counts of each value, and documents in the order of a field.

A number is 2020 or 2020.0, and both are the same value. A field that is missing and a field that is null are one value,
None. A list counts for each of its elements.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from plait.checks import check_type
from plait.errors import ConfigError
from plait.filters.ast import Columns, Field
from plait.filters.parser import field_named
from plait.filters.sql import Condition, compile_filter, field_expressions
from plait.records import Hit
from plait.storage.catalogue import chunks, placeholders
from plait.storage.connection import ReadTransaction
from plait.storage.deletes import not_deleted
from plait.storage.field_indexes import read_columns
from plait.storage.snapshot import StoredDocument
from plait.storage.stored_values import stored_json

# Sorted in this order: numbers, texts, false and true. Lists, objects and missing values come last.
_CLASS = (
    "CASE WHEN kind IN ('integer', 'real') THEN 0 WHEN kind = 'text' THEN 1"
    " WHEN kind IN ('false', 'true') THEN 2 ELSE 3 END"
)
_NUMBER, _TEXT, _BOOL, _LAST = range(4)


@dataclass(frozen=True, slots=True)
class FacetCount:
    """A value of a field, and the number of documents that have it."""

    value: Any  # None: documents without the field
    count: int


@dataclass(frozen=True, slots=True)
class Facets:
    """The values of a field with their counts: most frequent first, equal counts by value."""

    field: str
    counts: tuple[FacetCount, ...]
    n_values: int  # different values in all, of which `counts` may have the first
    n_documents: int  # documents that were looked at


@dataclass(frozen=True, slots=True)
class Sort:
    """An order by a field. Documents without the field, and lists and objects, are last either way."""

    field: Field
    descending: bool = False

    @classmethod
    def parse(cls, text: str) -> Sort:
        """`year` ascends, `-year` descends."""
        check_type("sort", text, str, "the name of a field, with - before it to descend", ConfigError)
        descending = text.startswith("-")
        return cls(field_named(text[descending:]), descending)

    def values(self, documents: Sequence[StoredDocument | Hit]) -> list[Any]:
        return [field_value(self.field, document) for document in documents]

    def order(self, values: Sequence[object]) -> list[int]:
        """The positions of values in this order; equal values keep theirs."""
        keys = [_sort_key(value) for value in values]
        present = [position for position, (kind, _) in enumerate(keys) if kind != _LAST]
        missing = [position for position, (kind, _) in enumerate(keys) if kind == _LAST]
        return sorted(present, key=lambda position: keys[position], reverse=self.descending) + missing


def _sort_key(value: object) -> tuple[int, Any]:
    if isinstance(value, bool):
        return _BOOL, value
    if isinstance(value, int | float):
        return _NUMBER, value
    return (_TEXT, value) if isinstance(value, str) else (_LAST, None)


def field_value(field: Field, document: StoredDocument | Hit) -> Any:
    """The value of a field in one document; None if it is missing."""
    if field.of_document:
        return getattr(document, field.path[0])
    value: Any = document.metadata
    for key in field.path:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def has_field(name: str, documents: Sequence[StoredDocument | Hit]) -> bool:
    """Whether one of the documents has a value of this field."""
    field = field_named(name)
    return any(field_value(field, document) is not None for document in documents)


def count_values(view: ReadTransaction, field: str, filter: str | None, n_values: int) -> Facets:
    """The values of a field in all documents that a filter accepts."""
    columns = read_columns(view)
    condition = Condition("1", ()) if filter is None else compile_filter(filter, columns)
    where = Condition(f"({condition.sql}) AND {not_deleted()}", condition.parameters)
    ((n_documents,),) = view.rows(f"SELECT COUNT(*) FROM documents WHERE {where.sql}", where.parameters)
    grouped = _grouped(field_named(field), where, columns)
    sql = f"SELECT *, COUNT(*) OVER () FROM ({grouped.sql}) ORDER BY n DESC, kind, value LIMIT ?"
    rows = view.rows(sql, [*grouped.parameters, n_values])
    counts = tuple(FacetCount(_value(kind, value), n) for kind, value, n, _ in rows)
    return Facets(field, counts, rows[0][3] if rows else 0, n_documents)


def count_values_of(view: ReadTransaction, field: str, docs: Sequence[int], n_values: int) -> Facets:
    """The values of a field in these documents."""
    columns = read_columns(view)
    sums: dict[tuple[str, Any], int] = {}
    for chunk in chunks(list(docs)):
        where = Condition(f"doc IN ({placeholders(len(chunk))}) AND {not_deleted()}", tuple(chunk))
        grouped = _grouped(field_named(field), where, columns)
        for kind, value, n in view.rows(grouped.sql, grouped.parameters):
            sums[kind, value] = sums.get((kind, value), 0) + n
    ordered = sorted(sums.items(), key=lambda item: (-item[1], item[0][0], *_sort_key(item[0][1])[1:]))
    counts = tuple(FacetCount(_value(kind, value), n) for (kind, value), n in ordered[:n_values])
    return Facets(field, counts, len(sums), len(docs))


def merge_facets(field: str, parts: Sequence[Facets], n_values: int) -> Facets:
    """The values of a field in several indexes, each of which gives all its values."""
    sums: dict[tuple[str, str], tuple[Any, int]] = {}
    for part in parts:
        for one in part.counts:
            kind = _kind(one.value)
            # 1 and 1.0 are the same value, and 1 and true are not.
            key = kind, repr(one.value if kind != "number" or not float(one.value).is_integer() else int(one.value))
            sums[key] = one.value, one.count + sums.get(key, (None, 0))[1]
    ordered = sorted(sums.values(), key=lambda item: (-item[1], _kind(item[0]), *_facet_order(item[0])))
    counts = tuple(FacetCount(value, n) for value, n in ordered[:n_values])
    return Facets(field, counts, len(sums), sum(part.n_documents for part in parts))


def _kind(value: object) -> str:
    """The kind that `_grouped` gives to a value."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, int | float):
        return "number"
    return "text" if isinstance(value, str) else "array" if isinstance(value, list) else "object"


def _facet_order(value: object) -> tuple[Any, ...]:
    return (value,) if isinstance(value, str | int | float) else (repr(value),)


def sorted_documents(view: ReadTransaction, sort: Sort, filter: str | None) -> list[int]:
    """The numbers of all documents that a filter accepts, in the order of a field; equal values by number."""
    columns = read_columns(view)
    condition = Condition("1", ()) if filter is None else compile_filter(filter, columns)
    kind, value = field_expressions(sort.field, columns)
    direction = "DESC" if sort.descending else ""
    sql = (
        f"SELECT doc FROM (SELECT doc, {_CLASS} AS class, value FROM"
        f" (SELECT doc, {kind.sql} AS kind, {value.sql} AS value FROM documents"
        f" WHERE ({condition.sql}) AND {not_deleted()}))"
        f" ORDER BY class = {_LAST}, class {direction}, CASE class WHEN {_LAST} THEN 0 ELSE value END {direction}, doc"
    )
    rows = view.rows(sql, [*kind.parameters, *value.parameters, *condition.parameters])
    return [doc for (doc,) in rows]


def _grouped(field: Field, where: Condition, columns: Mapping[tuple[str, ...], Columns]) -> Condition:
    """Rows of (kind, value, n): each value of the field, an element of a list as one, and its number of documents."""
    kind, value = field_expressions(field, columns)
    scalars = (
        f"SELECT {_simple('kind')} AS kind, value FROM (SELECT {kind.sql} AS kind, {value.sql} AS value FROM documents"
        f" WHERE {where.sql}) WHERE kind <> 'array'"
    )
    elements = (
        f"SELECT kind, value FROM (SELECT DISTINCT doc, {_simple('item.type')} AS kind, item.value AS value FROM"
        f" (SELECT doc, {kind.sql} AS kind, {value.sql} AS list FROM documents WHERE {where.sql}) AS lists,"
        f" json_each(CASE lists.kind WHEN 'array' THEN lists.list ELSE '[]' END) AS item)"
    )
    sql = f"SELECT kind, value, COUNT(*) AS n FROM ({scalars} UNION ALL {elements}) GROUP BY kind, value"
    parameters = (*kind.parameters, *value.parameters, *where.parameters)
    return Condition(sql, parameters + parameters)


def _simple(kind: str) -> str:
    return f"CASE {kind} WHEN 'integer' THEN 'number' WHEN 'real' THEN 'number' ELSE {kind} END"


def _value(kind: str, value: Any) -> Any:
    if kind in ("true", "false"):
        return kind == "true"
    return stored_json(value) if kind in ("array", "object") else value

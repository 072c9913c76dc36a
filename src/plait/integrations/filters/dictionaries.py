"""Filters as dictionaries, in the notation that many vector stores share: {"year": {"$gte": 2020}, "lang": "en"}.

Fields are metadata; dots separate the keys of nested ones. Several fields, and several operators of a field, all have
to hold. `$and`, `$or` and `$not` combine filters. As in those stores, `$ne`, `$nin` and `$not` also accept documents
without the field.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from plait.checks import shown
from plait.errors import FilterError
from plait.integrations.filters.conditions import as_value, compare, field_path, join, literal, negate, one_of

MAX_DEPTH = 30  # of nested filters


def filter_text(filter: str | Mapping[str, object] | None) -> str | None:
    """The plait filter of a dictionary; text is a plait filter already, and an empty dictionary accepts everything."""
    if filter is None or isinstance(filter, str):
        return filter
    if not isinstance(filter, Mapping):
        raise FilterError(f"a filter must be text or a dictionary; got {type(filter).__name__}: {shown(filter)}")
    return _filter(filter, MAX_DEPTH) if filter else None


def _filter(filter: object, depth: int) -> str:
    if not isinstance(filter, Mapping):
        raise FilterError(f"a filter within a filter must be a dictionary; got {shown(filter)}")
    if not depth:
        raise FilterError(f"filters are nested more than {MAX_DEPTH} deep; simplify the filter")
    return join("and", [_entry(key, value, depth) for key, value in filter.items()])


def _entry(key: object, value: object, depth: int) -> str:
    if not isinstance(key, str):
        raise FilterError(f"the key {shown(key)} of a filter is not text")
    if key in ("$and", "$or"):
        return join(key[1:], [_filter(part, depth - 1) for part in _values(key, value)])
    if key == "$not":
        return negate(_filter(value, depth - 1))
    if key.startswith("$"):
        raise FilterError(f"{key} is no operator between filters; there are $and, $or and $not")
    field = field_path(key)
    if isinstance(value, Mapping):
        return join("and", [_operator(field, name, operand, depth) for name, operand in value.items()])
    return _equal(field, value)


def _operator(field: str, name: object, operand: object, depth: int) -> str:
    if name == "$not":
        if not isinstance(operand, Mapping) or not depth:
            raise FilterError(f"$not takes a dictionary of operators; got {shown(operand)}")
        return negate(join("and", [_operator(field, inner, value, depth - 1) for inner, value in operand.items()]))
    if not isinstance(name, str) or name not in OPERATORS:
        raise FilterError(f"{shown(name)} is no operator of a field; there are {', '.join(OPERATORS)}")
    return OPERATORS[name](field, operand)


def _equal(field: str, value: object) -> str:
    return f"{field} is null" if value is None else compare(field, "=", value)


def _ordered(operator: str) -> Callable[[str, object], str]:
    return lambda field, value: compare(field, operator, value)


def _values(name: str, value: object) -> Sequence[object]:
    if isinstance(value, str | bytes | Mapping) or not isinstance(value, Sequence):
        raise FilterError(f"{name} takes a list; got {shown(value)}")
    return value


def _exists(field: str, value: object) -> str:
    if not isinstance(value, bool):
        raise FilterError(f"$exists takes True or False; got {shown(value)}")
    return f"{field} is not null" if value else f"{field} is null"


def _like(field: str, value: object) -> str:
    if not isinstance(value, str):
        raise FilterError(f"$like takes a pattern, such as '%loom%'; got {shown(value)}")
    return f"{field} like {literal(value)}"


OPERATORS: dict[str, Callable[[str, object], str]] = {
    "$eq": _equal,
    "$ne": lambda field, value: negate(_equal(field, value)),
    "$gt": _ordered(">"),
    "$gte": _ordered(">="),
    "$lt": _ordered("<"),
    "$lte": _ordered("<="),
    "$in": lambda field, value: one_of(field, _values("$in", value)),
    "$nin": lambda field, value: negate(one_of(field, _values("$nin", value))),
    "$exists": _exists,
    "$like": _like,
    "$contains": lambda field, value: f"{literal(as_value(value))} in {field}",
}

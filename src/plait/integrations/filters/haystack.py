"""Haystack's filters, dictionaries such as {"field": "meta.year", "operator": ">=", "value": 2020}.

Every operator is translated. Refused are values that plait cannot compare (lists and dictionaries with ==), the fields
blob, embedding, sparse_embedding and score, and dates with a time zone: plait compares dates as text, so that all dates
of a field have to be in one ISO format.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from plait.checks import shown
from plait.errors import FilterError
from plait.integrations.filters.conditions import NEVER, compare, field_path, join, negate, one_of

MAX_DEPTH = 30  # of nested conditions
DOCUMENT_FIELDS = {"id": "id", "content": "text"}  # by Haystack's names
NOT_STORED = ("blob", "embedding", "sparse_embedding", "score")


def filter_text(filters: Mapping[str, Any] | None) -> str | None:
    """The plait filter of Haystack's filters; None for no filters."""
    return _condition(filters, MAX_DEPTH) if filters else None


def _condition(condition: object, depth: int) -> str:
    if not isinstance(condition, Mapping):
        raise FilterError(f"a condition must be a dictionary; got {shown(condition)}")
    if not depth:
        raise FilterError(f"conditions are nested more than {MAX_DEPTH} deep; simplify the filter")
    needed = ("field", "operator", "value") if "field" in condition else ("operator", "conditions")
    for key in needed:
        if key not in condition:
            raise FilterError(f"{key!r} key missing in {shown(dict(condition), 200)}")
    operator = condition["operator"]
    if "field" in condition:
        return _comparison(condition["field"], operator, condition["value"])
    conditions = condition["conditions"]
    if not isinstance(conditions, list):
        raise FilterError(f"conditions must be a list; got {shown(conditions)}")
    parts = [_condition(part, depth - 1) for part in conditions]
    if operator == "NOT":
        return negate(join("and", parts))
    if operator not in ("AND", "OR"):
        raise FilterError(f"{shown(operator)} is no logical operator; there are AND, OR and NOT")
    return join(operator.lower(), parts)


def _comparison(field: object, operator: object, value: object) -> str:
    if not isinstance(field, str):
        raise FilterError(f"the field {shown(field)} is not text")
    if not isinstance(operator, str) or operator not in OPERATORS:
        raise FilterError(f"{shown(operator)} is no operator; there are {', '.join(OPERATORS)}")
    return OPERATORS[operator](_field(field), value)


def _field(field: str) -> str:
    if field in DOCUMENT_FIELDS:
        return DOCUMENT_FIELDS[field]
    if field.split(".")[0] in NOT_STORED:
        raise FilterError(f"plait does not filter by {field}; use id, content or a field of meta")
    return field_path(field.removeprefix("meta."))


def _equal(field: str, value: object) -> str:
    if value is None:
        return f"{field} is null"
    return compare(field, "=", value.isoformat() if isinstance(value, datetime) else value)


def _ordered(operator: str) -> Callable[[str, object], str]:
    def condition(field: str, value: object) -> str:
        if value is None:
            return NEVER
        if isinstance(value, list | bool):
            raise FilterError(f"{operator} compares with a number or a date; got {shown(value)}")
        return compare(field, operator, _date(operator, value) if isinstance(value, str | datetime) else value)

    return condition


def _date(operator: str, value: str | datetime) -> str:
    try:
        date = value if isinstance(value, datetime) else datetime.fromisoformat(value)
    except ValueError:
        raise FilterError(
            f"{operator} compares numbers, and texts only if they are ISO dates; got {shown(value)}"
        ) from None
    if date.tzinfo is not None:
        raise FilterError(
            f"{operator} compares dates as text, and {shown(str(value))} has a time zone; store and compare dates of "
            f"one zone, without naming it"
        )
    return value if isinstance(value, str) else value.isoformat()


def _in(field: str, value: object) -> str:
    if not isinstance(value, list):
        raise FilterError(f"in and not in take a list; got {type(value).__name__}: {shown(value)}")
    known = one_of(field, [one for one in value if one is not None])
    return join("or", [known, f"{field} is null"]) if None in value else known


OPERATORS: dict[str, Callable[[str, object], str]] = {
    "==": _equal,
    "!=": lambda field, value: negate(_equal(field, value)),
    ">": _ordered(">"),
    ">=": _ordered(">="),
    "<": _ordered("<"),
    "<=": _ordered("<="),
    "in": _in,
    "not in": lambda field, value: negate(_in(field, value)),
}

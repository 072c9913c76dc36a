"""LlamaIndex's metadata filters.

All operators are translated but text_match, which minds upper and lower case as plait's `like` does not; use
text_match_insensitive. `contains`, `any` and `all` are about lists. As in LlamaIndex, `!=` and `nin` accept nodes
without the field.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from plait.checks import shown
from plait.errors import FilterError
from plait.integrations.filters.conditions import as_value, compare, field_key, join, literal, negate, one_of

EXTRA = "_llama_index"  # the metadata field with what only LlamaIndex has
MAX_DEPTH = 30  # of nested filters


def filter_text(filters: Any, depth: int = MAX_DEPTH) -> str | None:
    """The plait filter of `MetadataFilters`; text is a plait filter already."""
    if filters is None or isinstance(filters, str):
        return filters
    if not _is_group(filters):
        raise FilterError(f"filters must be MetadataFilters or text; got {type(filters).__name__}: {shown(filters)}")
    if not filters.filters:
        return None
    if not depth:
        raise FilterError(f"filters are nested more than {MAX_DEPTH} deep; simplify them")
    parts = [filter_text(one, depth - 1) if _is_group(one) else _condition(one) for one in filters.filters]
    conditions = [part for part in parts if part is not None]
    joined_by = "and" if filters.condition is None else filters.condition.value
    return negate(join("or", conditions)) if joined_by == "not" else join(joined_by, conditions)


def in_documents(doc_ids: list[str]) -> str:
    """The nodes of these source documents."""
    return one_of(f"{EXTRA}.ref_doc_id", doc_ids)


def _is_group(filters: Any) -> bool:
    return hasattr(filters, "filters") and hasattr(filters, "condition")


def _condition(filter: Any) -> str:
    field, operator = field_key(filter.key), filter.operator.value
    if operator == "is_empty":
        return f"{field} is null or {field} = '' or {EXTRA}.empty.{field}"
    if operator not in OPERATORS:
        raise FilterError(f"plait has no operator {operator!r}; there are {', '.join(OPERATORS)} and is_empty")
    return OPERATORS[operator](field, filter.value)


def _ordered(operator: str) -> Callable[[str, object], str]:
    return lambda field, value: compare(field, operator, value)


def _contains(field: str, value: object) -> str:
    return f"{literal(as_value(value))} in {field}"


def _values(value: object) -> list[object]:
    if not isinstance(value, list):
        raise FilterError(f"in, nin, any and all take a list; got {shown(value)}")
    return value


def _text_match(field: str, value: object) -> str:
    if not isinstance(value, str):
        raise FilterError(f"text_match_insensitive takes text; got {shown(value)}")
    pattern = value.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
    return f"{field} like {literal(f'%{pattern}%')}"


OPERATORS: dict[str, Callable[[str, object], str]] = {
    "==": _ordered("="),
    "!=": lambda field, value: negate(compare(field, "=", value)),
    ">": _ordered(">"),
    ">=": _ordered(">="),
    "<": _ordered("<"),
    "<=": _ordered("<="),
    "in": lambda field, value: one_of(field, _values(value)),
    "nin": lambda field, value: negate(one_of(field, _values(value))),
    "contains": _contains,
    "any": lambda field, value: join("or", [_contains(field, one) for one in _values(value)]),
    "all": lambda field, value: join("and", [_contains(field, one) for one in _values(value)]),
    "text_match_insensitive": _text_match,
}

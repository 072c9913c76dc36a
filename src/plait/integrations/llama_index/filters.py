"""LlamaIndex's metadata filters to plait's.

All operators are translated but text_match, which minds upper and lower case as plait's `like` does not; use
text_match_insensitive. `contains`, `any` and `all` are about lists. As in LlamaIndex, `!=` and `nin` accept nodes
without the field.
"""

from __future__ import annotations

from collections.abc import Callable

from llama_index.core.vector_stores.types import FilterCondition, FilterOperator, MetadataFilter, MetadataFilters

from plait.checks import shown
from plait.errors import FilterError
from plait.integrations.conditions import as_value, compare, field_key, join, literal, negate, one_of
from plait.integrations.llama_index.nodes import EXTRA

MAX_DEPTH = 30  # of nested filters


def metadata_filter(filters: MetadataFilters | str | None, depth: int = MAX_DEPTH) -> str | None:
    """The plait filter of metadata filters; text is a plait filter already."""
    if filters is None or isinstance(filters, str):
        return filters
    if not isinstance(filters, MetadataFilters):
        raise FilterError(f"filters must be MetadataFilters or text; got {type(filters).__name__}: {shown(filters)}")
    if not filters.filters:
        return None
    if not depth:
        raise FilterError(f"filters are nested more than {MAX_DEPTH} deep; simplify them")
    parts = [
        metadata_filter(one, depth - 1) if isinstance(one, MetadataFilters) else _condition(one)
        for one in filters.filters
    ]
    conditions = [part for part in parts if part is not None]
    if filters.condition == FilterCondition.NOT:
        return negate(join("or", conditions))
    return join("or" if filters.condition == FilterCondition.OR else "and", conditions)


def in_documents(doc_ids: list[str]) -> str:
    """The nodes of these source documents."""
    return one_of(f"{EXTRA}.ref_doc_id", doc_ids)


def _condition(filter: MetadataFilter) -> str:
    field, value = field_key(filter.key), filter.value
    if filter.operator == FilterOperator.IS_EMPTY:
        return f"{field} is null or {field} = '' or {EXTRA}.empty.{field}"
    if filter.operator not in OPERATORS:
        raise FilterError(
            f"plait has no operator {filter.operator.value!r}; there are "
            f"{', '.join(operator.value for operator in OPERATORS)} and is_empty"
        )
    return OPERATORS[filter.operator](field, value)


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


OPERATORS: dict[FilterOperator, Callable[[str, object], str]] = {
    FilterOperator.EQ: _ordered("="),
    FilterOperator.NE: lambda field, value: negate(compare(field, "=", value)),
    FilterOperator.GT: _ordered(">"),
    FilterOperator.GTE: _ordered(">="),
    FilterOperator.LT: _ordered("<"),
    FilterOperator.LTE: _ordered("<="),
    FilterOperator.IN: lambda field, value: one_of(field, _values(value)),
    FilterOperator.NIN: lambda field, value: negate(one_of(field, _values(value))),
    FilterOperator.CONTAINS: _contains,
    FilterOperator.ANY: lambda field, value: join("or", [_contains(field, one) for one in _values(value)]),
    FilterOperator.ALL: lambda field, value: join("and", [_contains(field, one) for one in _values(value)]),
    FilterOperator.TEXT_MATCH_INSENSITIVE: _text_match,
}

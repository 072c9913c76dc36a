"""Text of plait filters from fields and values, for frameworks that have filters of their own.

Fields are paths into the metadata; names and values are quoted, so that no value can become syntax.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence

from plait.checks import shown
from plait.errors import FilterError
from plait.filters.ast import Value

NEVER = "id in ('')"  # no document has an empty id
ALWAYS = f"not ({NEVER})"


def field_path(path: str) -> str:
    """A metadata field as in a filter; dots separate the keys of nested fields."""
    return ".".join(field_key(key) for key in path.split("."))


def field_key(key: str) -> str:
    """A key of the metadata, as it is: a dot in it is no separator."""
    if not key:
        raise FilterError("the name of a field is empty")
    return f"`{key.replace('`', '``')}`"


def literal(value: Value) -> str:
    """A value as in a filter."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        if not math.isfinite(value):
            raise FilterError(f"a filter cannot compare with {value}")
        return repr(value)
    return json.dumps(value, ensure_ascii=False)


def as_value(value: object) -> Value:
    """The value, if a filter can compare with it."""
    if isinstance(value, str | int | float):
        return value
    raise FilterError(
        f"a filter compares with text, numbers, true and false; got {type(value).__name__}: {shown(value)}"
    )


def compare(field: str, operator: str, value: object) -> str:
    return f"{field} {operator} {literal(as_value(value))}"


def one_of(field: str, values: Sequence[object]) -> str:
    """The field has one of the values; none of them accepts no document."""
    if not values:
        return NEVER
    return f"{field} in ({', '.join(literal(as_value(value)) for value in values)})"


def negate(condition: str) -> str:
    """True where the condition is false, which includes documents without the field."""
    return f"not ({condition})"


def join(word: str, conditions: Sequence[str]) -> str:
    """Conditions joined by `and` or `or`; of no conditions, all are true and none is."""
    if not conditions:
        return ALWAYS if word == "and" else NEVER
    return conditions[0] if len(conditions) == 1 else f" {word} ".join(f"({condition})" for condition in conditions)

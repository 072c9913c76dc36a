"""Filters joined by `and`: each is parsed alone, the trees are joined, and the tree is written as a filter again.

Text of one filter can therefore not reach into another, whatever parentheses and quotes it has.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from plait.errors import FilterError
from plait.filters.ast import And, Compare, Contains, Field, IsNull, IsTrue, Like, Node, Not, OneOf, Or, Value
from plait.filters.parser import parse


def all_of(filters: Sequence[str]) -> str:
    """A filter that accepts what every one of the filters accepts."""
    if not filters:
        raise FilterError("there are no filters to join; give at least one")
    trees = [parse(filter) for filter in filters]
    return write(trees[0] if len(trees) == 1 else And(tuple(trees)))


def write(node: Node) -> str:
    """The text of a syntax tree: `parse` makes an equal tree of it, apart from nested and / or, which it flattens."""
    match node:
        case And(operands):
            return " and ".join(_grouped(operand) for operand in operands)
        case Or(operands):
            return " or ".join(_grouped(operand) for operand in operands)
        case Not(operand):
            return f"not {_grouped(operand)}"
        case Compare(field, operator, value):
            return f"{_field(field)} {operator} {_value(value)}"
        case OneOf(field, values):
            return f"{_field(field)} in ({', '.join(map(_value, values))})"
        case Contains(field, value):
            return f"{_value(value)} in {_field(field)}"
        case Like(field, pattern):
            return f"{_field(field)} like {_value(pattern)}"
        case IsNull(field):
            return f"{_field(field)} is null"
        case IsTrue(field):
            return _field(field)


def _grouped(node: Node) -> str:
    return f"({write(node)})" if isinstance(node, And | Or | Not) else write(node)


def _field(field: Field) -> str:
    if field.of_document:
        return field.path[0]
    return ".".join("`" + name.replace("`", "``") + "`" for name in field.path)


def _value(value: Value) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else repr(value)

"""The syntax tree of a filter. `!=`, `not in` and `not like` have no node: the parser writes `x != 1` as "x has a
value, and not (x = 1)"."""

from __future__ import annotations

from dataclasses import dataclass

Value = str | int | float | bool

DOCUMENT_FIELDS = ("id", "title", "text")


@dataclass(frozen=True, slots=True)
class Columns:
    """The SQL columns of a field with an index: its JSON type ('null' if it is missing) and its value."""

    kind: str
    value: str


@dataclass(frozen=True, slots=True)
class Field:
    """A path into the metadata, or a field of the document (DOCUMENT_FIELDS)."""

    path: tuple[str, ...]
    of_document: bool = False
    columns: Columns | None = None  # if the field has an index


def is_plain(key: str) -> bool:
    """Whether JSON can write the key in only one way. SQLite's JSON paths compare keys as they are written, with their
    escapes."""
    return key.isascii() and key.isprintable() and '"' not in key and "\\" not in key


@dataclass(frozen=True, slots=True)
class Compare:
    """The field has a value of the same type as `value`, and `field operator value` is true."""

    field: Field
    operator: str  # one of = < <= > >=
    value: Value


@dataclass(frozen=True, slots=True)
class OneOf:
    """The field has one of the values."""

    field: Field
    values: tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class Contains:
    """The field is a list that contains the value."""

    field: Field
    value: Value


@dataclass(frozen=True, slots=True)
class Like:
    """The field is text that matches the pattern."""

    field: Field
    pattern: str


@dataclass(frozen=True, slots=True)
class IsNull:
    """The field is missing or null."""

    field: Field


@dataclass(frozen=True, slots=True)
class IsTrue:
    """The value of the field is `true`."""

    field: Field


@dataclass(frozen=True, slots=True)
class Not:
    operand: Node


@dataclass(frozen=True, slots=True)
class And:
    operands: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Or:
    operands: tuple[Node, ...]


Node = Compare | OneOf | Contains | Like | IsNull | IsTrue | Not | And | Or


def differs(field: Field, condition: Node) -> Node:
    """The field has a value, and the condition is false for it."""
    return And((Not(IsNull(field)), Not(condition)))

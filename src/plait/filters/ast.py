"""What a filter is once it has been read: a tree of conditions. `x != 1`, `not in` and `not like` have no node of
their own; the parser writes them as "x has a value, and not (x = 1)"."""

from __future__ import annotations

from dataclasses import dataclass

Value = str | int | float | bool

DOCUMENT_FIELDS = ("id", "title", "text")


@dataclass(frozen=True, slots=True)
class Columns:
    """Where an index keeps a field: its JSON type ('null' if it is missing) and its value."""

    kind: str
    value: str


@dataclass(frozen=True, slots=True)
class Field:
    """A path into the metadata, or one of the document's own fields."""

    path: tuple[str, ...]
    of_document: bool = False
    columns: Columns | None = None  # where the field has an index


def is_plain(key: str) -> bool:
    """JSON has one way only to write such a key. SQLite's paths match keys as they are written, escapes and all."""
    return key.isascii() and key.isprintable() and '"' not in key and "\\" not in key


@dataclass(frozen=True, slots=True)
class Compare:
    """The field holds a value of the same kind as `value`, and `field operator value` is so."""

    field: Field
    operator: str  # one of = < <= > >=
    value: Value


@dataclass(frozen=True, slots=True)
class OneOf:
    """The field holds one of the values."""

    field: Field
    values: tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class Holds:
    """The field is a list, and the value is in it."""

    field: Field
    value: Value


@dataclass(frozen=True, slots=True)
class Like:
    """The field is text that fits the pattern."""

    field: Field
    pattern: str


@dataclass(frozen=True, slots=True)
class IsNull:
    """The field is missing, or null."""

    field: Field


@dataclass(frozen=True, slots=True)
class IsTrue:
    """The field holds `true`."""

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


Node = Compare | OneOf | Holds | Like | IsNull | IsTrue | Not | And | Or


def differs(field: Field, condition: Node) -> Node:
    """The field has a value, and the condition does not hold for it."""
    return And((Not(IsNull(field)), Not(condition)))

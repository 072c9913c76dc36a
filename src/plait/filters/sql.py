"""The syntax tree of a filter to SQL. Names and values of the user are parameters; the SQL has only fixed parts."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from plait.errors import FilterError
from plait.filters.ast import (
    And,
    Columns,
    Compare,
    Contains,
    Field,
    IsNull,
    IsTrue,
    Like,
    Node,
    Not,
    OneOf,
    Or,
    Value,
    is_plain,
)
from plait.filters.parser import parse
from plait.scoring.like import FUNCTION, MAX_STEPS, count_wildcards, longest_part, register_like

Parameter = str | int | float

MAX_PARAMETERS = 20_000  # SQLite takes 32,766 in one statement
MAX_PATTERN = 1_000  # characters of a pattern after like
MAX_WILDCARDS = 100  # % and _ in it
MAX_ALTERNATIONS = 16  # and within or within and ...: SQLite's parser has a stack of 100, and each level takes three
_MAX_CHAIN = 200
_NUMBERS = "('integer', 'real')"


@dataclass(frozen=True, slots=True)
class Condition:
    """An SQL expression over the columns id, title, text and metadata (JSON); 1 or 0 for every row, never NULL. The
    connection that runs it must know the functions of `register_functions`."""

    sql: str
    parameters: tuple[Parameter, ...]


register_functions = register_like


def compile_filter(text: str, columns: Mapping[tuple[str, ...], Columns] | None = None) -> Condition:
    """The SQL condition of a filter; FilterError, with a caret at the position, if it is invalid. `columns` are those
    of the fields that have an index."""
    return condition_of(parse(text, columns))


def condition_of(node: Node) -> Condition:
    """The SQL condition of a syntax tree."""
    condition = _compile(node, MAX_ALTERNATIONS, negated=False)
    if len(condition.parameters) > MAX_PARAMETERS:
        raise FilterError(
            f"the filter compares with too many values ({len(condition.parameters):,} parameters of at most "
            f"{MAX_PARAMETERS:,}); split it into several searches"
        )
    return condition


def field_expressions(field: Field, columns: Mapping[tuple[str, ...], Columns]) -> tuple[Condition, Condition]:
    """Two SQL expressions for a field: its JSON type ('null' if it is missing), and its value. `columns` are as in
    `compile_filter`."""
    if not field.of_document:
        field = replace(field, columns=columns.get(field.path))
    return _kind(field), _value(field)


def _compile(node: Node, levels: int, *, negated: bool) -> Condition:
    """Conditions are never NULL, so `not` moves inward by De Morgan's laws and applies to single conditions only."""
    match node:
        case Not(operand):
            return _compile(operand, levels, negated=not negated)
        case And(operands) | Or(operands):
            if not levels:
                raise FilterError(f"the filter nests and / or more than {MAX_ALTERNATIONS} levels deep; simplify it")
            conditions = [_compile(operand, levels - 1, negated=negated) for operand in operands]
            return _joined("and" if isinstance(node, And) != negated else "or", conditions)
        case _:
            condition = _single(node)
            return Condition(f"not {condition.sql}", condition.parameters) if negated else condition


def _joined(word: str, conditions: Sequence[Condition]) -> Condition:
    """Conditions joined by `and` or `or`. SQLite allows chains of at most 1,000, so a long chain is made of shorter
    ones."""
    if len(conditions) == 1:
        return conditions[0]
    if len(conditions) > _MAX_CHAIN:
        chains = [conditions[start : start + _MAX_CHAIN] for start in range(0, len(conditions), _MAX_CHAIN)]
        return _joined(word, [_joined(word, chain) for chain in chains])
    sql = f" {word} ".join(condition.sql for condition in conditions)
    return Condition(f"({sql})", tuple(itertools.chain.from_iterable(c.parameters for c in conditions)))


def _single(node: Compare | OneOf | Contains | Like | IsNull | IsTrue) -> Condition:
    match node:
        case IsNull(field):
            kind = _kind(field)
            return Condition(f"({kind.sql} = 'null')", kind.parameters)
        case IsTrue(field):
            return _is_bool(field, value=True)
        case Compare(field, "=", bool(value)):
            return _is_bool(field, value=value)
        case Compare(field, operator, value):
            return _typed(field, value, f"{operator} ?", (value,))
        case OneOf(field, values):
            return _one_of(field, values)
        case Contains(field, value):
            return _contains(field, value)
        case Like(field, pattern):
            return _like(field, pattern)


def _like(field: Field, pattern: str) -> Condition:
    if len(pattern) > MAX_PATTERN:
        raise FilterError(
            f"the filter has a pattern of {len(pattern):,} characters after like; at most {MAX_PATTERN:,} are allowed"
        )
    if (n_wildcards := count_wildcards(pattern)) > MAX_WILDCARDS:
        raise FilterError(
            f"the filter has a pattern with {n_wildcards:,} wildcards after like; at most {MAX_WILDCARDS} are allowed"
        )
    kind, value = _kind(field), _value(field)
    # The size in bytes; for a field without columns that of all metadata, which costs less than another look-up.
    size = f"length(cast({value.sql if field.of_document or field.columns is not None else 'metadata'} as blob))"
    small = MAX_STEPS // max(longest_part(pattern), 1)
    choice = rf"case when {size} <= ? then {value.sql} like ? escape '\' else {FUNCTION}(?, {value.sql}) end"
    parameters = (small, *value.parameters, pattern, pattern, *value.parameters)
    return Condition(f"({kind.sql} in ('text') and {choice})", kind.parameters + parameters)


def _one_of(field: Field, values: Sequence[Value]) -> Condition:
    """One condition for each type of value, since values are compared within their type."""
    numbers = [value for value in values if isinstance(value, int | float) and not isinstance(value, bool)]
    texts = [value for value in values if isinstance(value, str)]
    parts = [
        _typed(field, group[0], f"in ({', '.join('?' * len(group))})", tuple(group))
        for group in (numbers, texts)
        if group
    ]
    parts += [_is_bool(field, value=flag) for flag in (True, False) if any(value is flag for value in values)]
    return _joined("or", parts)


def _is_bool(field: Field, *, value: bool) -> Condition:
    kind = _kind(field)
    return Condition(f"({kind.sql} = {_bool_kind(value)})", kind.parameters)


def _bool_kind(value: bool) -> str:
    return "'true'" if value else "'false'"


def _typed(field: Field, like: Value, comparison: str, parameters: tuple[Parameter, ...]) -> Condition:
    """The field has the type of `like`, and the comparison is true for its value."""
    kind, value = _kind(field), _value(field)
    kinds = "('text')" if isinstance(like, str) else _NUMBERS
    return Condition(
        f"({kind.sql} in {kinds} and {value.sql} {comparison})", kind.parameters + value.parameters + parameters
    )


def _contains(field: Field, value: Value) -> Condition:
    kind, array = _kind(field), _value(field)
    parameters: tuple[Parameter, ...]
    if isinstance(value, bool):
        member, parameters = f"item.type = {_bool_kind(value)}", ()
    else:
        kinds = "('text')" if isinstance(value, str) else _NUMBERS
        member, parameters = f"item.type in {kinds} and item.value = ?", (value,)
    # json_each fails on text that is not JSON, so any value but an array is replaced by an empty array.
    items = f"json_each(case {kind.sql} when 'array' then {array.sql} else '[]' end) as item"
    return Condition(f"exists (select 1 from {items} where {member})", kind.parameters + array.parameters + parameters)


# -- two expressions for each field: its JSON type ('null' if it is missing) and its value


def _kind(field: Field) -> Condition:
    if field.of_document:
        return Condition("'text'", ())
    if field.columns is not None:
        return Condition(field.columns.kind, ())
    kind = _lookup(field.path, "type")
    return Condition(f"ifnull({kind.sql}, 'null')", kind.parameters)


def _value(field: Field) -> Condition:
    if field.of_document:
        return Condition(f"ifnull({_COLUMNS[field.path[0]]}, '')", ())
    if field.columns is not None:
        return Condition(field.columns.value, ())
    return _lookup(field.path, "value")


_COLUMNS = {"id": "id", "title": "title", "text": "text"}


def _lookup(path: tuple[str, ...], what: str) -> Condition:
    if all(is_plain(key) for key in path):
        function = "json_type" if what == "type" else "json_extract"
        return Condition(f"{function}(metadata, ?)", ("$" + "".join(f'."{key}"' for key in path),))
    return _search(path, what)


def _search(path: tuple[str, ...], what: str) -> Condition:
    """For keys that JSON paths cannot name in every version of SQLite: compares the members of each level."""
    levels = ["json_each(metadata) as level0"]
    for depth in range(1, len(path)):
        above = f"level{depth - 1}"
        levels.append(f"json_each(case {above}.type when 'object' then {above}.value else '{{}}' end) as level{depth}")
    keys = " and ".join(f"level{depth}.key = ?" for depth in range(len(path)))
    return Condition(f"(select level{len(path) - 1}.{what} from {', '.join(levels)} where {keys})", path)

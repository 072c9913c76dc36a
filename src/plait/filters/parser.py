"""Tokens to a syntax tree, by recursive descent: one method for each level of precedence."""

from __future__ import annotations

import re
from collections.abc import Mapping

from plait.checks import check_type, shown
from plait.errors import FilterError
from plait.filters.ast import (
    DOCUMENT_FIELDS,
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
    differs,
)
from plait.filters.lexer import Kind, Token, fail, tokens

# More than anyone writes by hand, and little enough for Python's stack. Reading a filter of this size takes some 50 ms.
MAX_LENGTH = 200_000  # characters
MAX_CONDITIONS = 1_000
MAX_VALUES = 10_000  # in all lists of a filter
MAX_DEPTH = 100
MAX_PATH = 32

_MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "=": "=", "!=": "!="}
_VALUES = (Kind.STRING, Kind.NUMBER)
_FORBIDDEN = re.compile("[\\0\ud800-\udfff]")


def field_named(source: str) -> Field:
    """The field of a name, written as in a filter; FilterError if it is not a field name."""
    check_type("the name of a field", source, str, "text, such as author.name", FilterError)
    node = parse(f"{source} is null")
    if not isinstance(node, IsNull):
        raise FilterError(f"{shown(source)} is not the name of a field; write it as in a filter, such as author.name")
    return node.field


def parse(source: str, columns: Mapping[tuple[str, ...], Columns] | None = None) -> Node:
    """The syntax tree of a filter; FilterError, with a caret at the position, if it is invalid. `columns` are those of
    the fields that have an index."""
    if not isinstance(source, str):
        raise FilterError(f"a filter must be text, such as 'year >= 2020'; got {type(source).__name__}")
    if len(source) > MAX_LENGTH:
        raise FilterError(f"the filter has {len(source):,} characters; at most {MAX_LENGTH:,} are allowed")
    if not source.strip():
        raise FilterError("the filter is empty; leave it out to search every document")
    if forbidden := _FORBIDDEN.search(source):
        raise fail(source, forbidden.start(), f"the character {forbidden.group()!a} is not allowed in a filter")
    return _Parser(source, columns or {}).whole()


class _Parser:
    def __init__(self, source: str, columns: Mapping[tuple[str, ...], Columns]) -> None:
        self._source, self._columns = source, columns
        self._tokens = list(tokens(source))
        self._at = 0
        self._depth = self._n_conditions = self._n_values = 0

    # -- moving over the tokens

    @property
    def _now(self) -> Token:
        return self._tokens[self._at]

    def _take(self) -> Token:
        token = self._now
        self._at += token.kind is not Kind.END
        return token

    def _takes(self, kind: Kind, *texts: str) -> bool:
        """Consumes the token and returns True if it is of this kind and has one of these texts."""
        if self._now.kind is not kind or self._now.text not in texts:
            return False
        self._at += 1
        return True

    def _fail(self, message: str, token: Token | None = None) -> FilterError:
        token = token or self._now
        seen = "the filter ends here" if token.kind is Kind.END else f"this is {token.text!r}"
        return fail(self._source, token.start, f"{message}; {seen}")

    # -- levels of precedence, lowest first

    def whole(self) -> Node:
        node = self._or()
        if self._now.kind is not Kind.END:
            raise self._fail("expected and, or, or the end")
        return node

    def _or(self) -> Node:
        operands = [self._and()]
        while self._takes(Kind.KEYWORD, "or"):
            operands.append(self._and())
        return operands[0] if len(operands) == 1 else Or(_flat(Or, operands))

    def _and(self) -> Node:
        operands = [self._single()]
        while self._takes(Kind.KEYWORD, "and"):
            operands.append(self._single())
        return operands[0] if len(operands) == 1 else And(_flat(And, operands))

    def _single(self) -> Node:
        negated = False
        while self._takes(Kind.KEYWORD, "not"):
            negated = not negated
        node = self._group() if self._takes(Kind.MARK, "(") else self._condition()
        return Not(node) if negated else node

    def _group(self) -> Node:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise self._fail(f"parentheses are nested more than {MAX_DEPTH} deep")
        opening = self._tokens[self._at - 1]
        node = self._or()
        if not self._takes(Kind.MARK, ")"):
            if self._now.kind is Kind.END:
                raise self._fail("this parenthesis is never closed", opening)
            raise self._fail("expected and, or, or )")
        self._depth -= 1
        return node

    # -- conditions

    def _condition(self) -> Node:
        self._n_conditions += 1
        if self._n_conditions > MAX_CONDITIONS:
            raise self._fail(
                f"the filter has more than {MAX_CONDITIONS:,} conditions; write x = 1 or x = 2 as x in (1, 2)"
            )
        if self._now.kind in _VALUES or (self._now.kind is Kind.KEYWORD and self._now.text in ("true", "false")):
            return self._value_first()
        field, start = self._field("expected a field"), self._now
        if start.kind is Kind.OPERATOR:
            return self._comparison(field, self._take().text)
        if self._takes(Kind.KEYWORD, "is"):
            return self._is(field)
        negated = self._takes(Kind.KEYWORD, "not")
        if self._takes(Kind.KEYWORD, "in"):
            node: Node = OneOf(field, self._list(field))
        elif self._takes(Kind.KEYWORD, "like"):
            node = Like(field, self._pattern())
        elif negated:
            raise self._fail("expected in or like after not")
        else:
            return self._alone(field)
        return differs(field, node) if negated else node

    def _value_first(self) -> Node:
        """`2020 <= year`, and `"x" in tags`."""
        token = self._now
        value = self._value("")
        if self._now.kind is Kind.OPERATOR:
            operator = _MIRRORED[self._take().text]
            field = self._field("one side of a comparison must be a field; expected a field")
            return self._compare(field, operator, value, token)
        negated = self._takes(Kind.KEYWORD, "not")
        if not self._takes(Kind.KEYWORD, "in"):
            raise self._fail("expected a comparison with a field, or in and a field that is a list")
        field_token = self._now
        field = self._field("expected a field that is a list")
        if field.of_document:
            raise fail(
                self._source,
                field_token.start,
                f"{field.path[0]} is text, not a list; write {field.path[0]} like '%...%'",
            )
        node = Contains(field, value)
        return differs(field, node) if negated else node

    def _comparison(self, field: Field, operator: str) -> Node:
        token = self._now
        if self._takes(Kind.KEYWORD, "null"):
            if operator not in ("=", "!="):
                raise self._fail("null has no order; write is null or is not null", token)
            return IsNull(field) if operator == "=" else Not(IsNull(field))
        return self._compare(field, operator, self._value(f"expected a value after {operator}"), token)

    def _compare(self, field: Field, operator: str, value: Value, token: Token) -> Node:
        if isinstance(value, bool) and operator not in ("=", "!="):
            raise self._fail("true and false have no order; compare them with = or !=", token)
        self._check_kind(field, value, token)
        if operator == "!=":
            return differs(field, Compare(field, "=", value))
        return Compare(field, operator, value)

    def _is(self, field: Field) -> Node:
        negated = self._takes(Kind.KEYWORD, "not")
        if not self._takes(Kind.KEYWORD, "null"):
            raise self._fail("expected null after is; for other values write = or !=")
        return Not(IsNull(field)) if negated else IsNull(field)

    def _alone(self, field: Field) -> Node:
        if field.of_document:
            raise self._fail(f"{field.path[0]} is text, so it must be compared with something")
        if self._now.kind in (*_VALUES, Kind.NAME, Kind.QUOTED_NAME):
            raise self._fail("expected a comparison such as = or <, or in, like, is")
        return IsTrue(field)

    # -- fields and values

    def _field(self, message: str) -> Field:
        token = self._now
        path = [self._name(message)]
        while self._takes(Kind.MARK, "."):
            path.append(self._name("expected the name of a nested field after the dot"))
        if len(path) > MAX_PATH:
            raise self._fail(f"this field is nested more than {MAX_PATH} deep", token)
        of_document = len(path) == 1 and token.kind is Kind.NAME and token.text in DOCUMENT_FIELDS
        return Field(tuple(path), of_document, None if of_document else self._columns.get(tuple(path)))

    def _name(self, message: str) -> str:
        if self._now.kind in (Kind.NAME, Kind.QUOTED_NAME):
            return self._take().text
        hint = " (a field with this name goes in backticks)" if self._now.kind is Kind.KEYWORD else ""
        raise self._fail(message + hint)

    def _value(self, message: str) -> Value:
        token = self._now
        if token.kind in _VALUES:
            return self._take().value
        if self._takes(Kind.KEYWORD, "true", "false"):
            return token.text == "true"
        if token.kind in (Kind.NAME, Kind.QUOTED_NAME):
            raise self._fail(f"{message}; a string goes in quotes, and two fields cannot be compared")
        raise self._fail(message)

    def _list(self, field: Field) -> tuple[Value, ...]:
        if not self._takes(Kind.MARK, "("):
            raise self._fail('expected a list in parentheses after in, such as ("en", "de")')
        values: list[Value] = []
        while True:
            token = self._now
            if token.kind is Kind.KEYWORD and token.text == "null":
                raise self._fail("a list cannot contain null; add: or ... is null")
            values.append(self._value("expected a value"))
            if field.of_document:
                self._check_kind(field, values[-1], token)
            separator = self._now
            if separator.kind is not Kind.MARK or separator.text not in (",", ")"):
                raise self._fail("expected a comma or ) in the list")
            self._at += 1
            if separator.text == ")":
                break
        self._n_values += len(values)
        if self._n_values > MAX_VALUES:
            raise self._fail(
                f"the lists of the filter have more than {MAX_VALUES:,} values; split the search", separator
            )
        return tuple(values)

    def _pattern(self) -> str:
        token = self._take()
        if not isinstance(token.value, str) or token.kind is not Kind.STRING:
            raise self._fail('expected a pattern in quotes after like, such as "%woven%"', token)
        n_trailing = len(token.value) - len(token.value.rstrip("\\"))
        if n_trailing % 2:
            raise self._fail("the pattern ends with a single backslash; write two for a literal one", token)
        return token.value

    def _check_kind(self, field: Field, value: Value, token: Token) -> None:
        if field.of_document and not isinstance(value, str):
            raise self._fail(f"{field.path[0]} is text; put the value in quotes", token)


def _flat(kind: type[And] | type[Or], operands: list[Node]) -> tuple[Node, ...]:
    """`a and (b and c)` is `a and b and c`."""
    return tuple(
        inner
        for operand in operands
        for inner in (operand.operands if isinstance(operand, And | Or) and isinstance(operand, kind) else (operand,))
    )

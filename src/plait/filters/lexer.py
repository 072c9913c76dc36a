"""The text of a filter to tokens, and errors that point at a position in it."""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Iterator
from enum import Enum
from typing import NamedTuple

from plait.errors import FilterError

KEYWORDS = frozenset({"and", "or", "not", "in", "like", "is", "null", "true", "false"})
OPERATORS = {"==": "=", "=": "=", "!=": "!=", "<>": "!=", "<=": "<=", ">=": ">=", "<": "<", ">": ">"}

# Notation of other languages, and the advice for it.
ADVICE = {
    "&&": "write and",
    "&": "write and",
    "||": "write or",
    "|": "write or",
    "!": "write not",
    "=>": "write >=",
    "=<": "write <=",
    "===": "write =",
    "!==": "write !=",
    "=~": "write like",
    "~": "write like",
    ";": "a filter is one condition and needs no semicolon",
    "[": "write a list in parentheses: (1, 2)",
    "{": "write a list in parentheses: (1, 2)",
    "“": 'write straight quotes: "..."',
    "”": 'write straight quotes: "..."',
    "‘": "write straight quotes: '...'",
    "’": "write straight quotes: '...'",
}

_SIGNS = re.compile(r"[=!<>&|~]+")
_NUMBER = re.compile(r"-?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?", re.ASCII)
_SPACE = re.compile(r"\s*")
# What most filters are made of: strings without escapes, whole numbers that nothing runs into, marks. For speed alone.
_PLAIN = re.compile(r"""('[^'\\]*'|"[^"\\]*")|(-?[0-9]{1,18})(?=[\s,)]|$)|([(),])""")
_WORD = re.compile(r"\w+")
_UNICODE_ESCAPE = re.compile(r"[0-9a-fA-F]{4}")
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "/": "/", "\\": "\\", '"': '"', "'": "'"}
_INT64 = 2**63
_SHOWN = 38  # characters that an error shows on either side of the position


class Kind(Enum):
    NAME = "a field"
    QUOTED_NAME = "a field in backticks"
    KEYWORD = "a keyword"
    STRING = "a string"
    NUMBER = "a number"
    OPERATOR = "an operator"
    MARK = "a mark"  # ( ) , .
    END = "the end"


class Token(NamedTuple):
    kind: Kind
    text: str  # keywords in lower case, operators in their standard form; empty for END
    start: int
    value: str | int | float = ""  # of strings and numbers


def fail(source: str, position: int, message: str) -> FilterError:
    """An error whose message shows the filter with a caret under the position."""
    start, end = max(0, position - _SHOWN), position + _SHOWN
    before = ("…" if start else "") + _one_line(source[start:position])
    after = _one_line(source[position:end]) + ("…" if end < len(source) else "")
    return FilterError(
        f"cannot read the filter: {message}\n    {before}{after}\n    {' ' * _terminal_columns(before)}^"
    )


def _one_line(text: str) -> str:
    return "".join(char if char.isprintable() else " " for char in text)


def _terminal_columns(text: str) -> int:
    """The width of the text in a terminal: wide characters take two columns, combining marks none."""
    return sum(
        0 if unicodedata.combining(char) else 2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in text
    )


def tokens(source: str) -> Iterator[Token]:
    """The tokens in order, the last of them END."""
    position, space = 0, _SPACE
    while True:
        position = space.match(source, position).end()  # type: ignore[union-attr]  # it matches the empty string too
        if position == len(source):
            break
        plain = _PLAIN.match(source, position)
        if plain is None:
            token, position = _token(source, position, source[position])
            yield token
            continue
        text, start, position = plain.group(), position, plain.end()
        if plain.lastindex == 1:
            yield Token(Kind.STRING, text, start, text[1:-1])
        elif plain.lastindex == 2:
            yield Token(Kind.NUMBER, text, start, int(text))
        else:
            yield Token(Kind.MARK, text, start)
    yield Token(Kind.END, "", len(source))


def _token(source: str, position: int, char: str) -> tuple[Token, int]:
    if char in "'\"":
        return _string(source, position)
    if char == "`":
        return _quoted_name(source, position)
    if number := _NUMBER.match(source, position):
        return _number(source, number), number.end()
    if char.isidentifier():
        return _word(source, position)
    if signs := _SIGNS.match(source, position):
        return _operator(source, signs), signs.end()
    if char in "(),.":
        return Token(Kind.MARK, char, position), position + 1
    raise fail(
        source,
        position,
        f"{char!r} is not part of a filter; {ADVICE.get(char, 'put names with other characters in backticks')}",
    )


def _operator(source: str, signs: re.Match[str]) -> Token:
    written = signs.group()
    if written not in OPERATORS:
        advice = ADVICE.get(written, f"the comparisons are {' '.join(OPERATORS)}")
        raise fail(source, signs.start(), f"{written!r} is not part of a filter; {advice}")
    return Token(Kind.OPERATOR, OPERATORS[written], signs.start())


def _word(source: str, position: int) -> tuple[Token, int]:
    """A name may contain hyphens, as in `content-type`: filters have no minus operator."""
    start = _WORD.match(source, position)  # the rest is read character by character
    end = start.end() if start is not None and start.group().isidentifier() else position
    while end < len(source) and (
        _continues(source[end]) or (source[end] == "-" and _continues(source[end + 1 : end + 2]))
    ):
        end += 1
    word = source[position:end]
    if word.lower() in KEYWORDS:
        return Token(Kind.KEYWORD, word.lower(), position), end
    return Token(Kind.NAME, word, position), end


def _continues(char: str) -> bool:
    return bool(char) and f"a{char}".isidentifier()


def _quoted_name(source: str, position: int) -> tuple[Token, int]:
    parts, end = [], position + 1
    while True:
        close = source.find("`", end)
        if close < 0:
            raise fail(source, position, "this backtick is never closed")
        parts.append(source[end:close])
        if source[close + 1 : close + 2] != "`":
            break
        end = close + 2  # two backticks are one backtick of the name
    name = "`".join(parts)
    if not name:
        raise fail(source, position, "there is no name between the backticks")
    return Token(Kind.QUOTED_NAME, name, position), close + 1


def _number(source: str, match: re.Match[str]) -> Token:
    end, written = match.end(), match.group()
    if end < len(source) and (_continues(source[end]) or source[end] in "-:/"):
        raise fail(source, match.start(), f"{written!r} runs into {source[end]!r}; put dates and codes in quotes")
    is_whole = not any(char in written for char in ".eE")
    # SQLite has no integers beyond 64 bits and reads them as floats from JSON; so do filters.
    value = int(written) if is_whole and len(written) < 25 else float(written)
    if isinstance(value, int) and not -_INT64 <= value < _INT64:
        value = float(written)
    if isinstance(value, float) and not math.isfinite(value):
        raise fail(source, match.start(), "this number is too large")
    return Token(Kind.NUMBER, written, match.start(), value)


def _string(source: str, position: int) -> tuple[Token, int]:
    quote, chars, at = source[position], [], position + 1
    while at < len(source) and source[at] != quote:
        if source[at] == "\\":
            char, at = _escape(source, at)
        else:
            char, at = source[at], at + 1
        chars.append(char)
    if at >= len(source):
        raise fail(source, position, f"this string is never closed; end it with {quote}")
    try:
        value = (
            "".join(chars).encode("utf-16", "surrogatepass").decode("utf-16")
        )  # joins surrogate pairs such as \\ud83d\\ude00
    except UnicodeDecodeError:
        raise fail(source, position, "this string has half of a surrogate pair, which is not text") from None
    return Token(Kind.STRING, source[position : at + 1], position, value), at + 1


def _escape(source: str, at: int) -> tuple[str, int]:
    code = source[at + 1 : at + 2]
    if code == "u":
        digits = _UNICODE_ESCAPE.match(source, at + 2)
        if digits is not None and digits.group() != "0000":
            return chr(int(digits.group(), 16)), at + 6
        raise fail(source, at, r"\u needs four hexadecimal digits, not all of them 0")
    if code not in _ESCAPES or not code:
        raise fail(source, at, f"there is no escape \\{code}; for a backslash write two")
    return _ESCAPES[code], at + 2

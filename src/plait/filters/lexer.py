"""A filter's text, cut into tokens; and the errors that point at a place in it."""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from plait.errors import FilterError

KEYWORDS = frozenset({"and", "or", "not", "in", "like", "is", "null", "true", "false"})
OPERATORS = {"==": "=", "=": "=", "!=": "!=", "<>": "!=", "<=": "<=", ">=": ">=", "<": "<", ">": ">"}

# What people write from habit, and what it is called here.
SLIPS = {
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
    ";": "a filter is one condition, without an end mark",
    "[": "write a list in parentheses: (1, 2)",
    "{": "write a list in parentheses: (1, 2)",
    "“": 'write straight quotes: "..."',
    "”": 'write straight quotes: "..."',
    "‘": "write straight quotes: '...'",
    "’": "write straight quotes: '...'",
}

_SIGNS = re.compile(r"[=!<>&|~]+")
_NUMBER = re.compile(r"-?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?", re.ASCII)
_UNICODE_ESCAPE = re.compile(r"[0-9a-fA-F]{4}")
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "/": "/", "\\": "\\", '"': '"', "'": "'"}
_INT64 = 2**63
_SHOWN = 38  # characters of a long filter that an error shows on either side of its place


class Kind(Enum):
    NAME = "a field"
    QUOTED_NAME = "a field in backticks"
    KEYWORD = "a word of the language"
    STRING = "a string"
    NUMBER = "a number"
    OPERATOR = "an operator"
    MARK = "a mark"  # ( ) , .
    END = "the end"


@dataclass(frozen=True, slots=True)
class Token:
    kind: Kind
    text: str  # keywords in lower case, operators in their one form; for END, empty
    start: int
    value: str | int | float = ""  # of strings and numbers


def fail(source: str, place: int, message: str) -> FilterError:
    """An error whose message shows the filter with a caret under the place."""
    start, end = max(0, place - _SHOWN), place + _SHOWN
    before = ("…" if start else "") + _one_line(source[start:place])
    after = _one_line(source[place:end]) + ("…" if end < len(source) else "")
    return FilterError(f"cannot read the filter: {message}\n    {before}{after}\n    {' ' * _cells(before)}^")


def _one_line(text: str) -> str:
    return "".join(char if char.isprintable() else " " for char in text)


def _cells(text: str) -> int:
    """How many columns of a terminal the text takes: wide characters take two, combining marks none."""
    return sum(
        0 if unicodedata.combining(char) else 2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in text
    )


def tokens(source: str) -> Iterator[Token]:
    """The tokens in order, the last of them END."""
    place = 0
    while place < len(source):
        char = source[place]
        if char.isspace():
            place += 1
            continue
        token, place = _token(source, place, char)
        yield token
    yield Token(Kind.END, "", len(source))


def _token(source: str, place: int, char: str) -> tuple[Token, int]:
    if char in "'\"":
        return _string(source, place)
    if char == "`":
        return _quoted_name(source, place)
    if number := _NUMBER.match(source, place):
        return _number(source, number), number.end()
    if char.isidentifier():
        return _word(source, place)
    if signs := _SIGNS.match(source, place):
        return _operator(source, signs), signs.end()
    if char in "(),.":
        return Token(Kind.MARK, char, place), place + 1
    raise fail(source, place, f"{char!r} is not part of a filter; {SLIPS.get(char, 'put odd names in backticks')}")


def _operator(source: str, signs: re.Match[str]) -> Token:
    written = signs.group()
    if written not in OPERATORS:
        advice = SLIPS.get(written, f"the comparisons are {' '.join(OPERATORS)}")
        raise fail(source, signs.start(), f"{written!r} is not part of a filter; {advice}")
    return Token(Kind.OPERATOR, OPERATORS[written], signs.start())


def _word(source: str, place: int) -> tuple[Token, int]:
    """A name may have hyphens within it, as in `content-type`: there is no minus to take them for."""
    end = place
    while end < len(source) and (
        _continues(source[end]) or (source[end] == "-" and _continues(source[end + 1 : end + 2]))
    ):
        end += 1
    word = source[place:end]
    if word.lower() in KEYWORDS:
        return Token(Kind.KEYWORD, word.lower(), place), end
    return Token(Kind.NAME, word, place), end


def _continues(char: str) -> bool:
    return bool(char) and f"a{char}".isidentifier()


def _quoted_name(source: str, place: int) -> tuple[Token, int]:
    parts, end = [], place + 1
    while True:
        close = source.find("`", end)
        if close < 0:
            raise fail(source, place, "this backtick is never closed")
        parts.append(source[end:close])
        if source[close + 1 : close + 2] != "`":
            break
        end = close + 2  # a doubled backtick is one backtick of the name
    name = "`".join(parts)
    if not name:
        raise fail(source, place, "there is no name between the backticks")
    return Token(Kind.QUOTED_NAME, name, place), close + 1


def _number(source: str, match: re.Match[str]) -> Token:
    end, written = match.end(), match.group()
    if end < len(source) and (_continues(source[end]) or source[end] in "-:/"):
        raise fail(source, match.start(), f"{written!r} runs into {source[end]!r}; put dates and codes in quotes")
    is_whole = re.fullmatch(r"-?\d+", written) is not None
    # SQLite has no whole numbers beyond 64 bits, and reads such JSON as a float; so does this.
    value = int(written) if is_whole and len(written) < 25 else float(written)
    if isinstance(value, int) and not -_INT64 <= value < _INT64:
        value = float(written)
    if isinstance(value, float) and not math.isfinite(value):
        raise fail(source, match.start(), "this number is too large")
    return Token(Kind.NUMBER, written, match.start(), value)


def _string(source: str, place: int) -> tuple[Token, int]:
    quote, chars, at = source[place], [], place + 1
    while at < len(source) and source[at] != quote:
        if source[at] == "\\":
            char, at = _escape(source, at)
        else:
            char, at = source[at], at + 1
        chars.append(char)
    if at >= len(source):
        raise fail(source, place, f"this string is never closed; end it with {quote}")
    try:
        value = "".join(chars).encode("utf-16", "surrogatepass").decode("utf-16")  # joins the halves of \\ud83d\\ude00
    except UnicodeDecodeError:
        raise fail(source, place, "this string has half of a surrogate pair, which is not text") from None
    return Token(Kind.STRING, source[place : at + 1], place, value), at + 1


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

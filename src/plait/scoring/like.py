"""Matching `like` patterns in time that grows with the text, whatever the pattern.

SQLite's own `like` tries a part of a pattern again at every character: fast for the patterns that people write, and
quadratic for patterns that are made to be slow. So each row chooses by size: SQLite where a row cannot take long, and a
kernel that never goes back where it could.
"""

from __future__ import annotations

import sqlite3

from plait import _core
from plait.deadline import check_deadline

FUNCTION = "plait_like"  # (pattern, text) in SQL
# Characters of a pattern times characters of a text up to which SQLite's operator is used: at most some 50 µs.
MAX_STEPS = 1 << 15


def longest_part(pattern: str) -> int:
    """The number of characters of the longest part of a pattern between `%`; escapes count as written."""
    longest = length = 0
    escaped = False
    for char in pattern:
        if char == "%" and not escaped:
            longest, length = max(longest, length), 0
        else:
            length += 1
        escaped = char == "\\" and not escaped
    return max(longest, length)


def count_wildcards(pattern: str) -> int:
    """The number of `%` and `_` that are not escaped."""
    count, escaped = 0, False
    for char in pattern:
        count += char in "%_" and not escaped
        escaped = char == "\\" and not escaped
    return count


def register_like(connection: sqlite3.Connection) -> None:
    """Makes FUNCTION known to a connection; conditions with `like` call it."""
    connection.create_function(FUNCTION, 2, like, deterministic=True)


def like(pattern: str, text: str) -> bool:
    """Whether the text matches: `%` is any text, `_` one character, a backslash escapes; ASCII case is ignored."""
    check_deadline()  # a text may have megabytes
    return _core.like(pattern, text)

"""Values that were read from a catalogue, checked before they are used. SQLite's columns accept values of any type, and
the file may be damaged or hostile."""

from __future__ import annotations

from typing import Any

from plait.checks import parse_json
from plait.errors import CorruptIndexError

MAX_NUMBER = 1 << 53  # of documents, rows, segments and commits; arithmetic with such numbers cannot overflow


def stored_number(value: object, what: str, *, least: int = 0, most: int = MAX_NUMBER) -> int:
    """The value as an integer; CorruptIndexError, which names it as `what`, for anything else."""
    if type(value) is not int or not least <= value <= most:
        raise CorruptIndexError(f"the catalogue is damaged: {what} is {value!r:.60}; run plait check")
    return value


def stored_text(value: object, what: str) -> str:
    """The value as text; CorruptIndexError, which names it as `what`, for anything else."""
    if not isinstance(value, str):
        raise CorruptIndexError(f"the catalogue is damaged: {what} is {value!r:.60}; run plait check")
    return value


def stored_json(stored: object) -> Any:
    """The JSON value in a text; ValueError for anything else, also for one that is nested too deeply."""
    if not isinstance(stored, str):
        raise ValueError(f"it is {type(stored).__name__}, not text")  # noqa: TRY004 -- callers expect one error
    return parse_json(stored)

"""Words of a text, for pointing at them: not the analysis that an index uses, but close enough to show why."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass

# Words that nearly every question has; pointing at them shows nothing.
_COMMON = """
a an and any are as at be by can do does for from has have how i in is it its me my of on or so some than that the
their them then there this to was what when where which who why will with you your
"""
FUNCTION_WORDS = frozenset(_COMMON.split())

# Scripts that are written without spaces, or with particles on their words: these are cut into pairs of characters.
_UNSPACED = (
    (0x0E00, 0x0EFF),  # Thai, Lao
    (0x1000, 0x109F),  # Myanmar
    (0x1780, 0x17FF),  # Khmer
    (0x3040, 0x30FF),  # kana
    (0x3400, 0x9FFF),  # Han
    (0xAC00, 0xD7AF),  # Hangul
    (0xF900, 0xFAFF),
)
_UNSPACED_PLANES = (0x20000, 0x3FFFF)

_CONTROLS = dict.fromkeys((*range(0x20), *range(0x7F, 0xA0)), " ")
_DIRECTIONS = dict.fromkeys((*range(0x202A, 0x202F), *range(0x2066, 0x206A)), "")
_SHOWN = {**_CONTROLS, **_DIRECTIONS, ord("\n"): "\n"}


@dataclass(frozen=True, slots=True)
class Word:
    start: int
    end: int
    folded: str


def printable(text: str) -> str:
    """The text without characters that steer a terminal: a document must not be able to draw on the screen."""
    return text.translate(_SHOWN)


def fold(text: str) -> str:
    """The text as it is compared: without case, accents and compatible forms, as the index has it."""
    if text.isascii():
        return text.lower()
    apart = unicodedata.normalize("NFD", unicodedata.normalize("NFKC", text).casefold())
    return unicodedata.normalize("NFC", "".join(char for char in apart if not "\u0300" <= char <= "\u036f"))


def words(text: str) -> Iterator[Word]:
    """Runs of letters and digits; pairs of characters, overlapping, where words are not spaced."""
    start = 0
    while start < len(text):
        kind, end = _kind(text[start]), start + 1
        while end < len(text) and _kind(text[end]) == kind:
            end += 1
        if kind == "spaced":
            yield Word(start, end, fold(text[start:end]))
        elif kind == "unspaced":
            for at in range(start, max(start + 1, end - 1)):
                yield Word(at, min(at + 2, end), fold(text[at : min(at + 2, end)]))
        start = end


def _kind(char: str) -> str:
    if char < "\u0080":  # most text, most of the time
        return "spaced" if char.isalnum() or char == "_" else ""
    code = ord(char)
    if any(low <= code <= high for low, high in (*_UNSPACED, _UNSPACED_PLANES)):
        return "unspaced" if char.isalnum() or unicodedata.category(char)[0] == "M" else ""
    return "spaced" if char.isalnum() or unicodedata.category(char)[0] == "M" else ""


def whole_word(text: str, start: int, end: int) -> tuple[int, int]:
    """The stretch, made as long as the word that it is part of: tokens are often pieces of words. Scripts without
    spaces have no longer words."""
    if _kind(text[start]) == "spaced":
        while start > 0 and _kind(text[start - 1]) == "spaced":
            start -= 1
    if _kind(text[end - 1]) == "spaced":
        while end < len(text) and _kind(text[end]) == "spaced":
            end += 1
    return start, end


def query_words(query: str) -> list[str]:
    """What to look for: the words of the query without function words, unless there are no others."""
    found = list(dict.fromkeys(word.folded for word in words(query)))
    return [word for word in found if word not in FUNCTION_WORDS] or found


def alike(one: str, other: str) -> bool:
    """The same word, or one that differs in its ending: parse, parsed, parsing."""
    if one == other:
        return True
    if len(one) == 1 and len(other) == 2 and not other.isascii():
        return one in other  # one character asked for, within a pair
    shared = 0
    for left, right in zip(one, other, strict=False):
        if left != right:
            break
        shared += 1
    return shared >= 4 and len(one) - shared <= 3 and len(other) - shared <= 3

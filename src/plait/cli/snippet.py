"""The part of a passage to show: where the most words of the query stand close together."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

from plait.cli.words import Word, alike, printable, query_words, words

_LEAD = 30  # characters before the first word that was found, so that it can be understood
_SNAP = 16  # how far an end may move to fall between words


@dataclass(frozen=True, slots=True)
class Snippet:
    text: str
    marks: tuple[tuple[int, int], ...]  # stretches of `text` that stand in the query, in order, not overlapping


@dataclass(frozen=True, slots=True)
class _Match:
    word: Word
    term: str  # the word of the query


def cells(text: str) -> int:
    """Columns of a terminal that the text takes, near enough: wide characters take two, marks on others none."""
    if text.isascii():
        return len(text)
    return sum(0 if _is_mark(char) else 2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in text)


def marks(text: str, query: str) -> tuple[tuple[int, int], ...]:
    """Where words of the query stand in the text."""
    return _merged([match.word for match in _matches(text, query)])


def snippet(passage: str, query: str, *, width: int, cut_before: bool = False, cut_after: bool = False) -> Snippet:
    """At most about `width` columns of the passage, on one line, with the words of the query marked.

    Dots stand where text is left out; also at the ends of a passage that is itself cut out of a longer text.
    """
    text = " ".join(printable(passage).split())
    start, end, n_cells = 0, len(text), cells(text)
    if n_cells > width - 4:
        n_chars = max(1, (width - 4) * len(text) // n_cells)
        start, end = _window(text, _matches(text, query), n_chars)
    before, after = start > 0 or cut_before, end < len(text) or cut_after
    shown = ("… " if before else "") + text[start:end] + (" …" if after else "")
    return Snippet(shown, marks(shown, query))


def _matches(text: str, query: str) -> list[_Match]:
    terms = query_words(query)
    found = []
    for word in words(text):
        term = next((term for term in terms if alike(term, word.folded)), None)
        if term is not None:
            found.append(_Match(word, term))
    return found


def _window(text: str, matches: Sequence[_Match], n_chars: int) -> tuple[int, int]:
    """The stretch of `n_chars` with the most different words of the query, then the most of them."""
    if not matches:
        return _between_words(text, 0, n_chars)
    best, best_score = (0, 0), (-1, -1)
    last = 0
    for first, match in enumerate(matches):
        last = max(last, first)
        while last + 1 < len(matches) and matches[last + 1].word.end - match.word.start <= n_chars:
            last += 1
        within = matches[first : last + 1]
        score = (len({found.term for found in within}), len(within))
        if score > best_score:
            best, best_score = (match.word.start, matches[last].word.end), score
    spare = max(0, n_chars - (best[1] - best[0]))
    start = max(0, best[0] - min(_LEAD, spare // 2))
    return _between_words(text, start, start + n_chars)


def _between_words(text: str, start: int, end: int) -> tuple[int, int]:
    if end >= len(text):
        start, end = max(0, start - (end - len(text))), len(text)
    if start > 0:
        space = text.find(" ", start - 1, start + _SNAP)
        start = space + 1 if space >= 0 else start
    if end < len(text):
        space = text.rfind(" ", end - _SNAP, end + 1)
        end = space if space > start else end
    # A mark stays with the character that it stands on: where words are not spaced, an end can fall between them.
    while 0 < start < end and _is_mark(text[start]):
        start -= 1
    while end < len(text) and _is_mark(text[end]):
        end += 1
    return start, end


def _is_mark(char: str) -> bool:
    return char >= "\u0300" and unicodedata.category(char) in ("Mn", "Me")


def _merged(found: Sequence[Word]) -> tuple[tuple[int, int], ...]:
    merged: list[tuple[int, int]] = []
    for word in found:
        if merged and word.start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], word.end))
        else:
            merged.append((word.start, word.end))
    return tuple(merged)

"""Which part of a text to show, and which of its words to mark.

Words are split and compared more simply here than in the full-text index: close enough to point at a match.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.cells import cell_len

from plait.cli.tables import printable

# Words that nearly every question contains; marking them shows nothing.
_FUNCTION_WORDS = """
a an and any are as at be by can do does for from has have how i in is it its me my of on or so some than that the
their them then there this to was what when where which who why will with you your
"""
FUNCTION_WORDS = frozenset(_FUNCTION_WORDS.split())

# Scripts without spaces between words, or with particles attached to them: these are split into pairs of characters.
_UNSPACED = (
    (0x0E00, 0x0EFF),  # Thai, Lao
    (0x1000, 0x109F),  # Myanmar
    (0x1780, 0x17FF),  # Khmer
    (0x3040, 0x30FF),  # kana
    (0x3400, 0x9FFF),  # Han
    (0xAC00, 0xD7AF),  # Hangul
    (0xF900, 0xFAFF),  # compatibility ideographs
    (0x20000, 0x3FFFF),  # supplementary ideographs
)

N_LEADING_CHARS = 30  # characters shown before the first match, as its context
MAX_END_SHIFT = 16  # characters that the end of a snippet may move to fall between words
MIN_CONTEXT_COLUMNS = 4  # with less room than this, a matched word is shown without its context
MAX_CONTEXT_CHARS = 200  # characters read on each side of a match; far more than a line shows


# -- words


@dataclass(frozen=True, slots=True)
class Word:
    start: int
    end: int
    folded: str  # as `fold` returns it


def fold(text: str) -> str:
    """The text without case, accents and compatibility forms, for comparison."""
    if text.isascii():
        return text.lower()
    decomposed = unicodedata.normalize("NFD", unicodedata.normalize("NFKC", text).casefold())
    return unicodedata.normalize("NFC", "".join(char for char in decomposed if not "\u0300" <= char <= "\u036f"))


def words(text: str) -> Iterator[Word]:
    """Runs of letters and digits; overlapping pairs of characters in scripts without spaces."""
    start = 0
    while start < len(text):
        script, end = _script(text[start]), start + 1
        while end < len(text) and _script(text[end]) == script:
            end += 1
        if script == "spaced":
            yield Word(start, end, fold(text[start:end]))
        elif script == "unspaced":
            for first in range(start, max(start + 1, end - 1)):
                yield Word(first, min(first + 2, end), fold(text[first : min(first + 2, end)]))
        start = end


def _script(char: str) -> str:
    """`spaced`, `unspaced`, or empty for a character that is not part of a word."""
    if char < "\u0080":  # the most frequent case
        return "spaced" if char.isalnum() or char == "_" else ""
    if not char.isalnum() and unicodedata.category(char)[0] != "M":
        return ""
    return "unspaced" if any(low <= ord(char) <= high for low, high in _UNSPACED) else "spaced"


def whole_word(text: str, start: int, end: int) -> tuple[int, int]:
    """The range, extended to the whole word that it is part of: tokens are often pieces of words. In scripts without
    spaces the range stays as it is."""
    if _script(text[start]) == "spaced":
        while start > 0 and _script(text[start - 1]) == "spaced":
            start -= 1
    if _script(text[end - 1]) == "spaced":
        while end < len(text) and _script(text[end]) == "spaced":
            end += 1
    return start, end


def query_words(query: str) -> list[str]:
    """The folded words of the query without function words; with them if there are no others."""
    folded = list(dict.fromkeys(word.folded for word in words(query)))
    return [word for word in folded if word not in FUNCTION_WORDS] or folded


def alike(query_word: str, text_word: str) -> bool:
    """True for the same word, or for one with another ending: parse, parsed, parsing."""
    if query_word == text_word:
        return True
    if len(query_word) == 1 and len(text_word) == 2 and not text_word.isascii():
        return query_word in text_word  # a single character of the query, within a pair
    n_shared = 0
    for left, right in zip(query_word, text_word, strict=False):
        if left != right:
            break
        n_shared += 1
    return n_shared >= 4 and len(query_word) - n_shared <= 3 and len(text_word) - n_shared <= 3


# -- a snippet around the words of a query


@dataclass(frozen=True, slots=True)
class Snippet:
    text: str
    marks: tuple[tuple[int, int], ...]  # ranges of `text` that match the query, in order, not overlapping


@dataclass(frozen=True, slots=True)
class _Match:
    word: Word
    query_word: str


def columns(text: str) -> int:
    """The columns that the text takes in a terminal: two for wide characters, none for combining marks."""
    if text.isascii():
        return len(text)
    return sum(0 if _is_mark(char) else 2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in text)


def query_marks(text: str, query: str) -> tuple[tuple[int, int], ...]:
    """The ranges of the text that match words of the query."""
    merged: list[tuple[int, int]] = []
    for match in _matches(text, query):
        start, end = match.word.start, match.word.end
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        else:
            merged.append((start, end))
    return tuple(merged)


def snippet(passage: str, query: str, *, width: int, cut_before: bool = False, cut_after: bool = False) -> Snippet:
    """About `width` columns of the passage on one line, where most words of the query are close together.

    An ellipsis shows where text is left out, also at the ends of a passage that is part of a longer text (`cut_before`,
    `cut_after`).
    """
    text = " ".join(printable(passage).split())
    start, end, n_columns = 0, len(text), columns(text)
    if n_columns > width - 4:
        n_chars = max(1, (width - 4) * len(text) // n_columns)
        start, end = _best_window(text, _matches(text, query), n_chars)
    before, after = start > 0 or cut_before, end < len(text) or cut_after
    shown = ("… " if before else "") + text[start:end] + (" …" if after else "")
    return Snippet(shown, query_marks(shown, query))


def _matches(text: str, query: str) -> list[_Match]:
    wanted = query_words(query)
    matches = []
    for word in words(text):
        query_word = next((query_word for query_word in wanted if alike(query_word, word.folded)), None)
        if query_word is not None:
            matches.append(_Match(word, query_word))
    return matches


def _best_window(text: str, matches: Sequence[_Match], n_chars: int) -> tuple[int, int]:
    """The window of `n_chars` with the most different words of the query, then with the most matches."""
    if not matches:
        return _between_words(text, 0, n_chars)
    best, best_score = (0, 0), (-1, -1)
    last = 0
    for first, match in enumerate(matches):
        last = max(last, first)
        while last + 1 < len(matches) and matches[last + 1].word.end - match.word.start <= n_chars:
            last += 1
        within = matches[first : last + 1]
        score = (len({inner.query_word for inner in within}), len(within))
        if score > best_score:
            best, best_score = (match.word.start, matches[last].word.end), score
    spare = max(0, n_chars - (best[1] - best[0]))
    start = max(0, best[0] - min(N_LEADING_CHARS, spare // 2))
    return _between_words(text, start, start + n_chars)


def _between_words(text: str, start: int, end: int) -> tuple[int, int]:
    """The window with its ends moved to spaces that are near."""
    if end >= len(text):
        start, end = max(0, start - (end - len(text))), len(text)
    if start > 0:
        space = text.find(" ", start - 1, start + MAX_END_SHIFT)
        start = space + 1 if space >= 0 else start
    if end < len(text):
        space = text.rfind(" ", end - MAX_END_SHIFT, end + 1)
        end = space if space > start else end
    # A combining mark stays with its character: in scripts without spaces an end can fall between them.
    while 0 < start < end and _is_mark(text[start]):
        start -= 1
    while end < len(text) and _is_mark(text[end]):
        end += 1
    return start, end


def _is_mark(char: str) -> bool:
    return char >= "\u0300" and unicodedata.category(char) in ("Mn", "Me")


# -- an excerpt around given marks


@dataclass(frozen=True, slots=True)
class Mark:
    start: int
    end: int
    strength: float  # from 0 to 1


@dataclass(frozen=True, slots=True)
class Marked:
    """Text on one line, with marks in order, not overlapping."""

    text: str
    marks: tuple[Mark, ...]


def on_one_line(text: str, marks: Sequence[Mark]) -> Marked:
    """The text safe to print, with each run of white space as one space; marks move with their characters."""
    shown: list[str] = []
    positions = []  # of each character of `text`, in `shown`
    for char in text:
        safe = printable(char)
        blank = safe.isspace()
        positions.append(len(shown))
        if safe and not (blank and (not shown or shown[-1] == " ")):
            shown.append(" " if blank else safe)
    positions.append(len(shown))
    moved = tuple(Mark(positions[mark.start], positions[mark.end], mark.strength) for mark in marks)
    return Marked("".join(shown).rstrip(), moved)


def in_context(text: str, start: int, end: int, width: int) -> tuple[str, str, str]:
    """The text before a range, the range, and the text after it, in at most `width` columns together. An ellipsis
    shows where text is left out; words are not broken where there are spaces."""
    low, high = max(0, start - MAX_CONTEXT_CHARS), min(len(text), end + MAX_CONTEXT_CHARS)
    line = on_one_line(text[low:high], [Mark(start - low, end - low, 1.0)])
    mark = line.marks[0]
    before, match, after = line.text[: mark.start], line.text[mark.start : mark.end], line.text[mark.end :]
    match = _beginning(match, width)[0]
    room = max(0, width - cell_len(match))
    if room < MIN_CONTEXT_COLUMNS:
        return "", match, ""
    n_before = max(room // 2, room - cell_len(after))
    left, cut_left = _beginning(before[::-1], n_before - 1)
    right, cut_right = _beginning(after, room - cell_len(left) - 2)
    lead = "…" if cut_left or low > 0 else ""
    trail = "…" if cut_right or high < len(text) else ""
    return lead + left[::-1], match, right + trail


def densest_part(marked: Marked, width: int, *, cut_before: bool, cut_after: bool) -> Marked:
    """About `width` columns of the text, where the marks are strongest; `cut_before`, `cut_after` as in `snippet`."""
    text, n_columns = marked.text, cell_len(marked.text)
    start, end = 0, len(text)
    if n_columns > width - 4:
        n_chars = max(1, (width - 4) * len(text) // n_columns)
        start = _strongest_start(marked, n_chars)
        end = min(len(text), start + n_chars)
        start = max(0, end - n_chars)
        if start > 0 and (space := text.find(" ", start, start + n_chars // 4)) >= 0:
            start = space + 1
        if end < len(text) and (space := text.rfind(" ", end - n_chars // 4, end)) > start:
            end = space
    lead = "… " if start > 0 or cut_before else ""
    trail = " …" if end < len(text) or cut_after else ""
    shift = len(lead) - start
    visible = [mark for mark in marked.marks if mark.end > start and mark.start < end]
    return Marked(
        lead + text[start:end] + trail,
        tuple(Mark(max(mark.start, start) + shift, min(mark.end, end) + shift, mark.strength) for mark in visible),
    )


def _strongest_start(marked: Marked, n_chars: int) -> int:
    """The start of the window of `n_chars` whose marks are strongest together; the first of equals."""
    best, best_weight = 0, 0.0
    for first in marked.marks:
        within = [mark for mark in marked.marks if mark.start >= first.start and mark.end <= first.start + n_chars]
        weight = sum(0.1 + mark.strength for mark in within)
        if weight > best_weight:
            spare = n_chars - (max(mark.end for mark in within) - first.start)
            best, best_weight = max(0, first.start - spare // 2), weight
    return best


def _beginning(text: str, width: int) -> tuple[str, bool]:
    """As much of the beginning as fits, up to a space if there is one; and whether something was left out."""
    n_columns = n_chars = 0
    while n_chars < len(text) and n_columns + cell_len(text[n_chars]) <= width:
        n_columns += cell_len(text[n_chars])
        n_chars += 1
    if n_chars == len(text):
        return text, False
    space = text.rfind(" ", 0, n_chars + 1)
    if space == 0 and text[1:2].isascii():
        return " ", True  # not half of the next word
    return (text[:space] if space > 0 else text[:n_chars]), True

"""Stretches of a text with words marked: a few words around one match, or the part of a passage that holds most."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.cells import cell_len

from plait.cli.words import printable

NEIGHBOURS = 4  # columns below which a word stands alone
AROUND = 200  # characters on each side that a context may come from; far more than a line shows


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


def squeezed(text: str, marks: Sequence[Mark]) -> Marked:
    """The text on one line, safe to print, each run of white space as one blank; the marks go with their characters."""
    shown: list[str] = []
    places = []  # where each character of the text went
    for char in text:
        safe = printable(char)
        blank = safe.isspace()
        places.append(len(shown))
        if safe and not (blank and (not shown or shown[-1] == " ")):
            shown.append(" " if blank else safe)
    places.append(len(shown))
    moved = tuple(Mark(places[mark.start], places[mark.end], mark.strength) for mark in marks)
    return Marked("".join(shown).rstrip(), moved)


def around(text: str, start: int, end: int, width: int) -> tuple[str, str, str]:
    """What stands before a stretch of the text, the stretch, and what follows, in at most `width` columns together.
    Dots stand where words are left out; words are kept whole where there are spaces."""
    low, high = max(0, start - AROUND), min(len(text), end + AROUND)
    part = squeezed(text[low:high], [Mark(start - low, end - low, 1.0)])
    mark = part.marks[0]
    before, word, after = part.text[: mark.start], part.text[mark.start : mark.end], part.text[mark.end :]
    word = _leading(word, width)[0]
    room = max(0, width - cell_len(word))
    if room < NEIGHBOURS:
        return "", word, ""
    n_before = max(room // 2, room - cell_len(after))
    left, cut_left = _leading(before[::-1], n_before - 1)
    right, cut_right = _leading(after, room - cell_len(left) - 2)
    lead = "…" if cut_left or low > 0 else ""
    trail = "…" if cut_right or high < len(text) else ""
    return lead + left[::-1], word, right + trail


def densest(marked: Marked, width: int, *, cut_before: bool, cut_after: bool) -> Marked:
    """At most about `width` columns of the text, where the marks weigh most, different words before repeated ones."""
    text, n_cells = marked.text, cell_len(marked.text)
    start, end = 0, len(text)
    if n_cells > width - 4:
        n_chars = max(1, (width - 4) * len(text) // n_cells)
        start = _best_start(marked, n_chars)
        end = min(len(text), start + n_chars)
        start = max(0, end - n_chars)
        if start > 0 and (space := text.find(" ", start, start + n_chars // 4)) >= 0:
            start = space + 1
        if end < len(text) and (space := text.rfind(" ", end - n_chars // 4, end)) > start:
            end = space
    lead = "… " if start > 0 or cut_before else ""
    trail = " …" if end < len(text) or cut_after else ""
    shift = len(lead) - start
    kept = [mark for mark in marked.marks if mark.end > start and mark.start < end]
    return Marked(
        lead + text[start:end] + trail,
        tuple(Mark(max(mark.start, start) + shift, min(mark.end, end) + shift, mark.strength) for mark in kept),
    )


def _best_start(marked: Marked, n_chars: int) -> int:
    """Where the stretch of `n_chars` begins whose marks weigh most; the first of equals."""
    best, best_weight = 0, 0.0
    for first in marked.marks:
        within = [mark for mark in marked.marks if mark.start >= first.start and mark.end <= first.start + n_chars]
        weight = sum(0.1 + mark.strength for mark in within)
        if weight > best_weight:
            spare = n_chars - (max(mark.end for mark in within) - first.start)
            best, best_weight = max(0, first.start - spare // 2), weight
    return best


def _leading(text: str, width: int) -> tuple[str, bool]:
    """As much of the beginning as fits, at a space if there is one; and whether something was left out."""
    used = taken = 0
    while taken < len(text) and used + cell_len(text[taken]) <= width:
        used += cell_len(text[taken])
        taken += 1
    if taken == len(text):
        return text, False
    space = text.rfind(" ", 0, taken + 1)
    if space == 0 and text[1:2].isascii():
        return " ", True  # not half of the next word
    return (text[:space] if space > 0 else text[:taken]), True

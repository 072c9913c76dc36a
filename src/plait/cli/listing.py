"""Hits for people: rank, score, id and title, and below them the part of the passage that answers."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.text import Text

from plait.cli.snippet import marks, snippet
from plait.cli.words import printable
from plait.records import Hit

SNIPPET_LINES = 3
MIN_WIDTH = 20
RAGGED = 4


def print_hits(hits: Sequence[Hit], query: str, *, full: bool = False, console: Console | None = None) -> None:
    """Prints the hits, fitted to the terminal; without colour where the output is not one."""
    console = console or Console(highlight=False)
    scores = [f"{hit.score:.4f}" for hit in hits]
    score_width = max(map(len, scores), default=0)
    for rank, (hit, score) in enumerate(zip(hits, scores, strict=True), 1):
        before = f"{rank:>{len(str(len(hits)))}}  {score:>{score_width}}  "
        width = max(MIN_WIDTH, console.width - len(before))
        body = _whole(hit, query) if full else _part(hit, query, width)
        print_beside(console, Text(before, style="cyan"), heading(hit), width)
        print_beside(console, Text(" " * len(before)), body, width)
        console.print()


def print_beside(console: Console, first: Text, text: Text, width: int) -> None:
    """The text in a column of its own: `first` stands before its first line, blanks before the others."""
    for number, line in enumerate(text.wrap(console, width, overflow="fold")):
        line.rstrip()
        before = first if number == 0 else Text(" " * len(first))
        console.print(Text.assemble(before, line), soft_wrap=True)


def heading(hit: Hit) -> Text:
    """The id and the title; a title that begins with the id does not repeat it."""
    id, title = _line(hit.id), _line(hit.title)
    rest = title.removeprefix(id) if title.startswith(id) else f"  {title}"
    return Text.assemble((id, "bold"), (rest.rstrip(), "italic"))


def _part(hit: Hit, query: str, width: int) -> Text:
    # Wrapping between words leaves some of each line empty.
    columns = SNIPPET_LINES * (width - RAGGED)
    before, after = hit.span.start > 0, hit.span.end < len(hit.text)
    part = snippet(hit.passage, query, width=columns, cut_before=before, cut_after=after)
    return _marked(part.text, part.marks)


def _whole(hit: Hit, query: str) -> Text:
    text = printable(hit.text)
    return _marked(text, marks(text, query))


def _marked(text: str, places: Sequence[tuple[int, int]]) -> Text:
    marked = Text(text)
    for start, end in places:
        marked.stylize("bold yellow", start, end)
    return marked


def _line(text: str) -> str:
    return " ".join(printable(text).split())

"""`plait search --explain`: hits for people, with what matched. Each has the part of its passage that matched best,
what each list gave, and the words of the query beside the words that they found."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from plait.cli.context import Mark, Marked, around, densest, squeezed
from plait.cli.listing import MIN_WIDTH, RAGGED, SNIPPET_LINES, heading, print_beside
from plait.cli.matches import MatchedWord, matched_words
from plait.cli.snippet import marks as word_marks
from plait.cli.words import printable
from plait.records import Explanation, Hit

TOP = 8  # words of the query that are shown unless all are asked for
BAR = 10  # columns
LABEL = 16  # columns of a query's word, at most
EIGHTHS = " ▏▎▍▌▋▊▉"


def print_explained(
    hits: Sequence[Hit], query: str, *, full: bool = False, everything: bool = False, console: Console | None = None
) -> None:
    """Prints hits that were searched with `explain`, fitted to the terminal; without colour where it is not one."""
    console = console or Console(highlight=False)
    found = [matched_words(hit, hit.explanation) if hit.explanation else [] for hit in hits]
    strength = _Strength(word.similarity for words in found for word in words if word.telling)
    scores = [f"{hit.score:.4f}" for hit in hits]
    score_width = max(map(len, scores), default=0)
    for rank, (hit, score, words) in enumerate(zip(hits, scores, found, strict=True), 1):
        before = f"{rank:>{len(str(len(hits)))}}  {score:>{score_width}}  "
        width = max(MIN_WIDTH, console.width - len(before))
        print_beside(console, Text(before, style="cyan"), heading(hit), width)
        body = _whole(hit, query, words, strength) if full else _part(hit, query, words, strength, width)
        lines = [body, *(_told(hit.explanation, words, hit, console, width, everything) if hit.explanation else ())]
        for line in lines:
            print_beside(console, Text(" " * len(before)), line, width)
        console.print()


class _Strength:
    """How strong a similarity is among all that are shown, from 0 to 1: models differ in what they call similar."""

    def __init__(self, similarities: Iterable[float]) -> None:
        known = sorted(similarities)
        self._low, self._high = (known[0], known[-1]) if known else (0.0, 1.0)

    def of(self, similarity: float) -> float:
        spread = self._high - self._low
        return min(1.0, max(0.0, (similarity - self._low) / spread)) if spread > 1e-6 else 1.0


def _told(
    explanation: Explanation, words: Sequence[MatchedWord], hit: Hit, console: Console, width: int, everything: bool
) -> list[Text]:
    lines = []
    if len(explanation.parts) > 1:
        lines.append(_parts(explanation, width))
    if explanation.bm25:
        said = [f"{printable(word.word)} ×{word.count} (+{word.score:.2f})" for word in explanation.bm25]
        shown = said if everything else said[:TOP]
        more = [f"and {len(said) - len(shown)} more"] if len(said) > len(shown) else []
        lines.append(Text.assemble(("words  ", "dim"), ", ".join([*shown, *more])))
    if explanation.sparse:
        terms = [f"{printable(match.surface or f'#{match.term}')} (+{match.score:.3g})" for match in explanation.sparse]
        kept = terms if everything else terms[:TOP]
        rest = [f"and {len(terms) - len(kept)} more"] if len(terms) > len(kept) else []
        lines.append(Text.assemble(("terms  ", "dim"), ", ".join([*kept, *rest])))
    if explanation.multi is not None:
        shown_words = list(words) if everything else _top(words)
        lines += _rows(shown_words, hit, console, width)
        lines += _rest([word for word in words if word not in shown_words], explanation.multi.score)
        lines += [Text(explanation.multi.note, style="dim")] if explanation.multi.note else []
    elif len(explanation.parts) == 1 and explanation.dense is not None:
        lines.append(Text("dense: one vector for the whole passage, so there are no words to show", style="dim"))
    return lines


def _parts(explanation: Explanation, width: int) -> Text:
    """What each list gave: its score, the rank in it, and its share of the hit's score. No part is broken in two."""
    told, used = Text("lists", style="dim"), 5
    for part in explanation.parts:
        said = f"{part.kind} -"
        if part.score is not None:
            said = f"{part.kind} {part.score:.3g} #{part.rank} {part.share:.0%}"
        fits = used + 2 + len(said) <= width
        told.append("  " if fits else "\n" + 7 * " ")
        told.append(said, style="dim" if part.score is None else "not dim")
        used = (used + 2 if fits else 7) + len(said)
    return told


def _top(words: Sequence[MatchedWord]) -> list[MatchedWord]:
    telling = [word for word in words if word.telling]
    best = sorted(telling, key=lambda word: -word.gain)[:TOP]
    return [word for word in telling if word in best]


def _rows(words: Sequence[MatchedWord], hit: Hit, console: Console, width: int) -> list[Text]:
    """One line for each word: the word, a bar, the similarity, and what it found among its neighbours."""
    labels = [around(word.label, 0, len(word.label), LABEL)[1] for word in words]
    column = max(map(cell_len, labels), default=0)
    bar_width = BAR if width >= 40 else 0
    room = width - column - bar_width - 7 - (1 if bar_width else 0)
    lines = []
    for word, label in zip(words, labels, strict=True):
        bar = _bar(word.similarity, console).ljust(bar_width) + " " if bar_width else ""
        found = _found(word, hit, room, colour=console.color_system is not None)
        blanks = " " * (column - cell_len(label) + 1)
        lines.append(Text.assemble((label, "bold"), blanks, (bar, "green"), f"{word.similarity:5.2f} ", found))
    return lines


def _found(word: MatchedWord, hit: Hit, room: int, *, colour: bool) -> Text:
    """The word that was found and its neighbours; in brackets where there is no colour to set it apart."""
    if word.target is None:
        return Text(printable(word.other), style="dim")
    field, span = word.target.field, word.target.span
    label = "title: " if field == "title" and room >= 24 else ""
    text = hit.title if field == "title" else hit.text
    before, itself, after = around(text, *span, room - len(label) - (0 if colour else 2))
    shown = Text(itself, style="bold yellow") if colour else Text(f"[{itself}]")
    return Text.assemble((label, "dim"), before, shown, after)


def _rest(words: Sequence[MatchedWord], total: float) -> list[Text]:
    if not words:
        return []
    # A tokeniser may have a token that is a space alone.
    names = ", ".join(dict.fromkeys(printable(word.label).strip() or "space" for word in words))
    return [Text(f"+ {sum(word.gain for word in words):.2f} of {total:.2f} from {names}", style="dim")]


def _bar(similarity: float, console: Console) -> str:
    eighths = round(min(1.0, max(0.0, similarity)) * BAR * 8)
    if not console.encoding.startswith("utf"):
        return "#" * round(eighths / 8)
    return "█" * (eighths // 8) + EIGHTHS[eighths % 8].strip()


def _marks(words: Sequence[MatchedWord], strength: _Strength, low: int, high: int) -> list[Mark]:
    """Where the telling words found theirs, in the text between two places; none overlapping."""
    best: dict[tuple[int, int], float] = {}
    for word in words:
        if word.telling and word.target is not None and word.target.field == "text":
            place = (word.target.span.start - low, word.target.span.end - low)
            if place[0] >= 0 and place[1] <= high - low:
                best[place] = max(best.get(place, 0.0), strength.of(word.similarity))
    marks: list[Mark] = []
    for (start, end), own in sorted(best.items()):
        if not marks or start >= marks[-1].end:
            marks.append(Mark(start, end, own))
    return marks


def _part(hit: Hit, query: str, words: Sequence[MatchedWord], strength: _Strength, width: int) -> Text:
    marks = _marks(words, strength, *hit.span) or _plain_marks(hit.passage, query)
    columns = SNIPPET_LINES * (width - RAGGED)
    before, after = hit.span.start > 0, hit.span.end < len(hit.text)
    return _styled(densest(squeezed(hit.passage, marks), columns, cut_before=before, cut_after=after))


def _whole(hit: Hit, query: str, words: Sequence[MatchedWord], strength: _Strength) -> Text:
    marks = _marks(words, strength, 0, len(hit.text)) or _plain_marks(hit.text, query)
    lines = hit.text.split("\n")
    styled, start = [], 0
    for line in lines:
        own = [
            Mark(mark.start - start, mark.end - start, mark.strength)
            for mark in marks
            if start <= mark.start and mark.end <= start + len(line)
        ]
        styled.append(_styled(squeezed(line, own)))
        start += len(line) + 1
    return Text("\n").join(styled)


def _plain_marks(text: str, query: str) -> list[Mark]:
    """Without tokens: the words of the query, where they stand."""
    return [Mark(start, end, 1.0) for start, end in word_marks(text, query)]


def _styled(marked: Marked) -> Text:
    text = Text(marked.text)
    for mark in marked.marks:
        style = "bold yellow" if mark.strength >= 2 / 3 else "yellow" if mark.strength >= 1 / 3 else "underline"
        text.stylize(style, mark.start, mark.end)
    return text

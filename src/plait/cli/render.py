"""Hits for people: rank, score, id and title, then the part of the passage that matches; with --explain also the
scores of each retriever and the words of the query beside the words they matched."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from plait.cli.excerpts import (
    FUNCTION_WORDS,
    Mark,
    Marked,
    densest_part,
    in_context,
    on_one_line,
    query_marks,
    snippet,
    whole_word,
)
from plait.cli.tables import PipeConsole, printable
from plait.records import Explanation, Hit, Span, TokenMatch

SNIPPET_LINES = 3
MIN_WIDTH = 20
RAGGED_COLUMNS = 4  # columns of each line that wrapping between words leaves empty
MAX_WORDS = 8  # words of the query that are shown without --explain-all
MAX_LABEL_COLUMNS = 16
BAR_COLUMNS = 10
EIGHTHS = " ▏▎▍▌▋▊▉"


def print_hits(
    hits: Sequence[Hit], query: str, *, full: bool = False, first_rank: int = 1, console: Console | None = None
) -> None:
    """Prints the hits, fitted to the width of the terminal; with `full`, whole texts."""

    def body(hit: Hit, width: int) -> list[Text]:
        if full:
            return [_whole_text(hit, query)]
        return [_snippet(replace(hit, span=one.span), query, width) for one in hit.passages] or [
            _snippet(hit, query, width)
        ]

    _print_list(console or PipeConsole(highlight=False), hits, body, first_rank)


def print_explained(
    hits: Sequence[Hit],
    query: str,
    *,
    full: bool = False,
    everything: bool = False,
    first_rank: int = 1,
    console: Console | None = None,
) -> None:
    """Prints hits of a search with `explain`; with `everything`, all tokens rather than the content words."""
    console = console or PipeConsole(highlight=False)
    matched = {hit.id: matched_words(hit, hit.explanation) if hit.explanation else [] for hit in hits}
    strength = _Strength(word.similarity for words in matched.values() for word in words if word.is_content)

    def body(hit: Hit, width: int) -> list[Text]:
        words = matched[hit.id]
        first = _marked_text(hit, query, words, strength) if full else _excerpt(hit, query, words, strength, width)
        if hit.explanation is None:
            return [first]
        return [first, *_explanation_lines(hit.explanation, words, hit, console, width, everything)]

    _print_list(console, hits, body, first_rank)


def _print_list(console: Console, hits: Sequence[Hit], body: Callable[[Hit, int], list[Text]], first_rank: int) -> None:
    """Prints a heading for each hit and `body(hit, width)` below it, beside rank and score."""
    scores = [f"{hit.score:.4f}" for hit in hits]
    score_width = max(map(len, scores), default=0)
    rank_width = len(str(first_rank + len(hits) - 1))
    for rank, (hit, score) in enumerate(zip(hits, scores, strict=True), first_rank):
        margin = f"{rank:>{rank_width}}  {score:>{score_width}}  "
        width = max(MIN_WIDTH, console.width - len(margin))
        _print_beside(console, Text(margin, style="cyan"), _heading(hit), width)
        for line in body(hit, width):
            _print_beside(console, Text(" " * len(margin)), line, width)
        console.print()


def _print_beside(console: Console, margin: Text, text: Text, width: int) -> None:
    """Prints the text wrapped to `width`, with `margin` before its first line and spaces before the others."""
    for number, line in enumerate(text.wrap(console, width, overflow="fold")):
        line.rstrip()
        before = margin if number == 0 else Text(" " * len(margin))
        console.print(Text.assemble(before, line), soft_wrap=True)


def _heading(hit: Hit) -> Text:
    """The id and the title; a title that begins with the id does not repeat it."""
    id, title = (" ".join(printable(text).split()) for text in (hit.id, hit.title))
    rest = title.removeprefix(id) if title.startswith(id) else f"  {title}"
    group = "" if hit.group is None or hit.group.size == 1 else f"  and {hit.group.size - 1:,} more"
    return Text.assemble((id, "bold"), (rest.rstrip(), "italic"), group)


def _snippet(hit: Hit, query: str, width: int) -> Text:
    """The part of the passage where most of it matched, with the matches marked."""
    before, after = hit.span.start > 0, hit.span.end < len(hit.text)
    marks = [
        Mark(span.start - hit.span.start, span.end - hit.span.start, 1.0)
        for span in hit.highlights
        if hit.span.start <= span.start and span.end <= hit.span.end
    ]
    if marks:
        line = on_one_line(hit.passage, marks)
        return _styled(densest_part(line, _snippet_columns(width), cut_before=before, cut_after=after))
    part = snippet(hit.passage, query, width=_snippet_columns(width), cut_before=before, cut_after=after)
    return _highlighted(part.text, part.marks)


def _snippet_columns(width: int) -> int:
    return SNIPPET_LINES * (width - RAGGED_COLUMNS)


def _whole_text(hit: Hit, query: str) -> Text:
    text = printable(hit.text)
    if hit.highlights and text == hit.text:  # otherwise characters were replaced, and spans do not fit
        return _highlighted(text, hit.highlights)
    return _highlighted(text, query_marks(text, query))


def _highlighted(text: str, marks: Sequence[tuple[int, int]]) -> Text:
    highlighted = Text(text)
    for start, end in marks:
        highlighted.stylize("bold yellow", start, end)
    return highlighted


# -- token matches as words


@dataclass(frozen=True, slots=True)
class Target:
    """The word of a document that was matched, in its title or text."""

    field: str
    span: Span


@dataclass(frozen=True, slots=True)
class MatchedWord:
    """A word of the query, or a token that is not a word, and what it matched in the document."""

    label: str
    similarity: float  # the mean over its tokens
    gain: float  # what its tokens add to the score together
    target: Target | None  # None: `other` describes the match
    other: str
    is_content: bool  # a word that is not a function word


def matched_words(hit: Hit, explanation: Explanation) -> list[MatchedWord]:
    """The words of the query in order; the tokens of a word are joined."""
    if explanation.multi is None:
        return []
    groups: dict[object, list[TokenMatch]] = {}
    for number, match in enumerate(explanation.multi.matches):
        span = match.query_span
        key = (number,) if span is None else whole_word(explanation.query, span.start, span.end)
        groups.setdefault(key, []).append(match)
    words = [_matched_word(number, tokens, hit, explanation.query) for number, tokens in enumerate(groups.values())]
    if not any(word.is_content for word in words):
        return [replace(word, is_content=True) for word in words]
    return words


def _matched_word(number: int, matches: Sequence[TokenMatch], hit: Hit, query: str) -> MatchedWord:
    gain = sum(match.similarity for match in matches)
    span = matches[0].query_span
    if span is None:
        label, is_content = matches[0].query or f"vector {number}", not matches[0].query
    else:
        start, end = whole_word(query, span.start, span.end)
        label = query[start:end]
        is_content = any(char.isalnum() for char in label) and label.casefold() not in FUNCTION_WORDS
    target, other = _target(matches, hit)
    return MatchedWord(label, gain / len(matches), gain, target, other, is_content)


def _target(matches: Sequence[TokenMatch], hit: Hit) -> tuple[Target | None, str]:
    """The word with most of the similarity; if there is none, a description of what was matched."""
    sums: dict[Target, float] = {}
    for match in matches:
        if match.span is not None:
            text = hit.title if match.field == "title" else hit.text
            target = Target(match.field, Span(*whole_word(text, *match.span)))
            sums[target] = sums.get(target, 0.0) + match.similarity
    if sums:
        return max(sums, key=lambda target: sums[target]), ""
    first = matches[0]
    if first.imputed:
        return None, "not retrieved; its similarity is imputed"
    return None, first.token or (f"vector {first.row}" if first.row >= 0 else "nothing")


class _Strength:
    """Scales similarities to 0 to 1 over all that are shown: the range of similarities differs between models."""

    def __init__(self, similarities: Iterable[float]) -> None:
        ascending = sorted(similarities)
        self._low, self._high = (ascending[0], ascending[-1]) if ascending else (0.0, 1.0)

    def of(self, similarity: float) -> float:
        spread = self._high - self._low
        return min(1.0, max(0.0, (similarity - self._low) / spread)) if spread > 1e-6 else 1.0


# -- the lines of an explanation


def _explanation_lines(
    explanation: Explanation, words: Sequence[MatchedWord], hit: Hit, console: Console, width: int, everything: bool
) -> list[Text]:
    lines = []
    for given, corrected in explanation.corrections:
        lines.append(Text.assemble(("spelling  ", "dim"), f"{printable(given)} → {printable(corrected)}"))
    if explanation.conditions:
        lines.append(Text.assemble(("where  ", "dim"), printable(", ".join(explanation.conditions))))
    if len(explanation.parts) > 1:
        lines.append(_score_parts(explanation, width))
    if explanation.bm25:
        counts = [f"{printable(word.word)} ×{word.count} (+{word.score:.2f})" for word in explanation.bm25]
        lines.append(_listed("words", counts, everything))
    if explanation.sparse:
        terms = [f"{printable(match.surface or f'#{match.term}')} (+{match.score:.3g})" for match in explanation.sparse]
        lines.append(_listed("terms", terms, everything))
    if explanation.multi is not None:
        shown = list(words) if everything else _top_words(words)
        lines += _word_rows(shown, hit, console, width)
        lines += _other_words([word for word in words if word not in shown], explanation.multi.score)
        lines += [Text(explanation.multi.note, style="dim")] if explanation.multi.note else []
    elif len(explanation.parts) == 1 and explanation.dense is not None:
        lines.append(Text("dense: one vector for the whole passage, so there are no words to show", style="dim"))
    return lines


def _score_parts(explanation: Explanation, width: int) -> Text:
    """The score of each retriever, the rank in its list, and its share of the hit's score. No part is split."""
    line, used = Text("lists", style="dim"), 5
    for part in explanation.parts:
        described = f"{part.kind} -"
        if part.score is not None:
            described = f"{part.kind} {part.score:.3g} #{part.rank} {part.share:.0%}"
        fits = used + 2 + len(described) <= width
        line.append("  " if fits else "\n" + 7 * " ")
        line.append(described, style="dim" if part.score is None else "not dim")
        used = (used + 2 if fits else 7) + len(described)
    return line


def _listed(label: str, items: Sequence[str], everything: bool) -> Text:
    shown = items if everything else items[:MAX_WORDS]
    more = [f"and {len(items) - len(shown)} more"] if len(items) > len(shown) else []
    return Text.assemble((f"{label}  ", "dim"), ", ".join([*shown, *more]))


def _top_words(words: Sequence[MatchedWord]) -> list[MatchedWord]:
    content = [word for word in words if word.is_content]
    best = sorted(content, key=lambda word: -word.gain)[:MAX_WORDS]
    return [word for word in content if word in best]


def _word_rows(words: Sequence[MatchedWord], hit: Hit, console: Console, width: int) -> list[Text]:
    """One line for each word: the word, a bar, the similarity, and the matched word in its context."""
    labels = [in_context(word.label, 0, len(word.label), MAX_LABEL_COLUMNS)[1] for word in words]
    label_width = max(map(cell_len, labels), default=0)
    bar_width = BAR_COLUMNS if width >= 40 else 0
    room = width - label_width - bar_width - 7 - (1 if bar_width else 0)
    lines = []
    for word, label in zip(words, labels, strict=True):
        bar = _bar(word.similarity, console).ljust(bar_width) + " " if bar_width else ""
        target = _target_in_context(word, hit, room, colour=console.color_system is not None)
        blanks = " " * (label_width - cell_len(label) + 1)
        lines.append(Text.assemble((label, "bold"), blanks, (bar, "green"), f"{word.similarity:5.2f} ", target))
    return lines


def _target_in_context(word: MatchedWord, hit: Hit, room: int, *, colour: bool) -> Text:
    """The matched word with the text around it; in brackets if it cannot be highlighted by colour."""
    if word.target is None:
        return Text(printable(word.other), style="dim")
    field, span = word.target.field, word.target.span
    label = "title: " if field == "title" and room >= 24 else ""
    text = hit.title if field == "title" else hit.text
    before, match, after = in_context(text, *span, room - len(label) - (0 if colour else 2))
    shown = Text(match, style="bold yellow") if colour else Text(f"[{match}]")
    return Text.assemble((label, "dim"), before, shown, after)


def _other_words(words: Sequence[MatchedWord], total: float) -> list[Text]:
    if not words:
        return []
    # Some tokenizers have a token that is a space alone.
    names = ", ".join(dict.fromkeys(printable(word.label).strip() or "space" for word in words))
    return [Text(f"+ {sum(word.gain for word in words):.2f} of {total:.2f} from {names}", style="dim")]


def _bar(similarity: float, console: Console) -> str:
    eighths = round(min(1.0, max(0.0, similarity)) * BAR_COLUMNS * 8)
    if not console.encoding.startswith("utf"):
        return "#" * round(eighths / 8)
    return "█" * (eighths // 8) + EIGHTHS[eighths % 8].strip()


# -- texts with matched words marked


def _excerpt(hit: Hit, query: str, words: Sequence[MatchedWord], strength: _Strength, width: int) -> Text:
    marks = _marks(words, strength, *hit.span) or _query_marks(hit.passage, query)
    before, after = hit.span.start > 0, hit.span.end < len(hit.text)
    line = on_one_line(hit.passage, marks)
    return _styled(densest_part(line, _snippet_columns(width), cut_before=before, cut_after=after))


def _marked_text(hit: Hit, query: str, words: Sequence[MatchedWord], strength: _Strength) -> Text:
    marks = _marks(words, strength, 0, len(hit.text)) or _query_marks(hit.text, query)
    styled, start = [], 0
    for line in hit.text.split("\n"):
        line_marks = [
            Mark(mark.start - start, mark.end - start, mark.strength)
            for mark in marks
            if start <= mark.start and mark.end <= start + len(line)
        ]
        styled.append(_styled(on_one_line(line, line_marks)))
        start += len(line) + 1
    return Text("\n").join(styled)


def _marks(words: Sequence[MatchedWord], strength: _Strength, low: int, high: int) -> list[Mark]:
    """Marks for the targets of content words between two positions of the text; none overlap."""
    strengths: dict[tuple[int, int], float] = {}
    for word in words:
        if word.is_content and word.target is not None and word.target.field == "text":
            start, end = word.target.span.start - low, word.target.span.end - low
            if start >= 0 and end <= high - low:
                strengths[start, end] = max(strengths.get((start, end), 0.0), strength.of(word.similarity))
    marks: list[Mark] = []
    for (start, end), value in sorted(strengths.items()):
        if not marks or start >= marks[-1].end:
            marks.append(Mark(start, end, value))
    return marks


def _query_marks(text: str, query: str) -> list[Mark]:
    """Marks for the words of the query itself: for hits without token matches."""
    return [Mark(start, end, 1.0) for start, end in query_marks(text, query)]


def _styled(marked: Marked) -> Text:
    text = Text(marked.text)
    for mark in marked.marks:
        style = "bold yellow" if mark.strength >= 2 / 3 else "yellow" if mark.strength >= 1 / 3 else "underline"
        text.stylize(style, mark.start, mark.end)
    return text

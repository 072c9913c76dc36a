"""Token matches for people: pieces of words put together again, and what tells something apart from what does not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from plait.cli.words import FUNCTION_WORDS, whole_word
from plait.records import Explanation, Hit, Span, TokenMatch


@dataclass(frozen=True, slots=True)
class Target:
    """The word of a document that was matched, in its title or text."""

    field: str
    span: Span


@dataclass(frozen=True, slots=True)
class MatchedWord:
    """A word of the query, or a token that is no word, and what of the document it matched."""

    label: str
    similarity: float  # the mean of its tokens
    gain: float  # what they add to the score together
    target: Target | None  # None: `other` says what was matched
    other: str
    telling: bool  # a word, and not one that nearly every question has


def matched_words(hit: Hit, explanation: Explanation) -> list[MatchedWord]:
    """The words of the query, in its order; one word for all of its pieces."""
    if explanation.multi is None:
        return []
    groups: dict[object, list[TokenMatch]] = {}
    for number, match in enumerate(explanation.multi.matches):
        span = match.query_span
        key = (number,) if span is None else whole_word(explanation.query, span.start, span.end)
        groups.setdefault(key, []).append(match)
    found = [_word(number, own, hit, explanation.query) for number, own in enumerate(groups.values())]
    if not any(word.telling for word in found):
        return [MatchedWord(w.label, w.similarity, w.gain, w.target, w.other, telling=True) for w in found]
    return found


def _word(number: int, matches: Sequence[TokenMatch], hit: Hit, query: str) -> MatchedWord:
    gain = sum(match.similarity for match in matches)
    span = matches[0].query_span
    if span is None:
        label, telling = matches[0].query or f"vector {number}", not matches[0].query
    else:
        start, end = whole_word(query, span.start, span.end)
        label = query[start:end]
        telling = any(char.isalnum() for char in label) and label.casefold() not in FUNCTION_WORDS
    target, other = _target(matches, hit)
    return MatchedWord(label, gain / len(matches), gain, target, other, telling)


def _target(matches: Sequence[TokenMatch], hit: Hit) -> tuple[Target | None, str]:
    """The word that most of the similarity goes to; where there is none, a name for what was matched."""
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
        return None, "not retrieved; a value is put in its place"
    return None, first.token or (f"vector {first.row}" if first.row >= 0 else "nothing")

"""Highlights: the parts of a passage that matched the query, as spans of characters.

Of a search with multi vectors they are the tokens that late interaction matched, also where document and query have no
word in common. Of other searches they are the words of the query.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from plait.encode.protocol import TermReader, TokenReader
from plait.records import Hit, Span, TokenMatch
from plait.search.explain import Explainer
from plait.search.hits import FoundDocument
from plait.search.query import QueryBatch
from plait.search.ranking import Ranking
from plait.storage.snapshot import Snapshot
from plait.text.query_terms import normalize_words
from plait.text.stopwords import STOPWORDS

# A token counts as matched if its similarity is at least this share of the way from that of the weakest content word of
# the query to that of the strongest, over all hits shown: similarities of models live in different ranges.
MIN_SHARE = 0.5
_WORD = re.compile(r"[^\W_]+")


def with_highlights(
    snapshot: Snapshot,
    batch: QueryBatch,
    number: int,
    ranking: Ranking,
    reader: TokenReader | TermReader | None,
    hits: Sequence[Hit],
    documents: Mapping[int, FoundDocument],
    positions: Sequence[int],
) -> list[Hit]:
    """The hits of one query, which are at these positions of its ranking, with their highlights."""
    explainer = Explainer(snapshot, batch, number, ranking, reader)
    docs = ranking.docs.tolist()
    matched: list[list[TokenMatch] | None] = []
    for hit, position in zip(hits, positions, strict=True):
        matches = explainer.text_matches(documents[docs[position]].stored, hit.span)
        known = matches is not None and not matches.note
        matched.append([match for match in matches.matches if _is_content(match)] if matches and known else None)
    similarities = [match.similarity for known in matched if known for match in known]
    least = _threshold(similarities)
    terms = snapshot.analyser.query_terms(batch.texts[number]).values()
    query_words = set(normalize_words([term.word for term in terms if not term.is_prefix], snapshot.analyser))
    prefixes = tuple(term.word.lower() for term in terms if term.is_prefix)
    spans = [
        _token_spans(hit, known, least) if known is not None else _word_spans(snapshot, hit, query_words, prefixes)
        for hit, known in zip(hits, matched, strict=True)
    ]
    return [replace(hit, highlights=marks) for hit, marks in zip(hits, spans, strict=True)]


def _threshold(similarities: Sequence[float]) -> float:
    if not similarities:
        return 0.0
    low, high = min(similarities), max(similarities)
    return low + MIN_SHARE * (high - low)


def _is_content(match: TokenMatch) -> bool:
    """Whether a token of the query is part of a word that means something."""
    query, token = match.query.strip().lower(), match.token.strip().lower()
    return match.query_span is not None and _is_word(query) and _is_word(token)


def _is_word(token: str) -> bool:
    return any(map(str.isalnum, token)) and token not in STOPWORDS


def _token_spans(hit: Hit, matches: Sequence[TokenMatch], least: float) -> tuple[Span, ...]:
    spans = [
        whole_word(hit.text, match.span)
        for match in matches
        if match.field == "text" and match.span is not None and match.similarity >= least
    ]
    return joined([span for span in spans if hit.span.start <= span.start and span.end <= hit.span.end])


def _word_spans(
    snapshot: Snapshot, hit: Hit, query_words: set[str | None], prefixes: tuple[str, ...]
) -> tuple[Span, ...]:
    """The words of the passage that the query has, compared as the full text does."""
    analyser, spans = snapshot.analyser, [Span(*match.span()) for match in _WORD.finditer(hit.text, *hit.span)]
    # A run of a script without spaces is several words of the index.
    parts = [analyser.analyse(hit.text[start:end]).split() for start, end in spans]
    words = [word for words in parts for word in words]
    normalized = dict(zip(words, normalize_words(words, analyser), strict=True))

    def matches(word: str) -> bool:
        return normalized[word] in query_words or (bool(prefixes) and word.lower().startswith(prefixes))

    return joined([span for span, words in zip(spans, parts, strict=True) if any(map(matches, words))])


def whole_word(text: str, span: Span) -> Span:
    """The span, extended to the word that it is part of."""
    start, end = span
    if text[start].isascii() and text[start].isalnum():
        while start > 0 and text[start - 1].isascii() and (text[start - 1].isalnum() or text[start - 1] == "_"):
            start -= 1
    if text[end - 1].isascii() and text[end - 1].isalnum():
        while end < len(text) and text[end].isascii() and (text[end].isalnum() or text[end] == "_"):
            end += 1
    return Span(start, end)


def joined(spans: Sequence[Span]) -> tuple[Span, ...]:
    """Spans in order; those that overlap become one."""
    result: list[Span] = []
    for span in sorted(spans):
        if result and span.start < result[-1].end:
            result[-1] = Span(result[-1].start, max(result[-1].end, span.end))
        else:
            result.append(span)
    return tuple(result)

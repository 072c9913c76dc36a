"""The words that every part shares: a document that goes in, a span of it, a hit that comes out, and why it did."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

Metadata = Mapping[str, Any]  # what JSON can hold


class Span(NamedTuple):
    """A stretch of a text, in characters; `end` is not part of it."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Document:
    """A text with an id. The title, if any, is encoded with every passage of the text."""

    id: str
    text: str
    title: str = ""
    metadata: Metadata = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TokenMatch:
    """A token of the query, and the token of the passage that is nearest to it."""

    query: str  # as it stands in the query; empty if it is not known
    query_span: Span | None  # within the query; None for a token that stands nowhere in it, such as [CLS]
    token: str  # as it stands in the document; empty if it is not known
    field: str  # "text", "title", or empty for a token that stands in neither
    span: Span | None  # within that field of the document
    row: int  # the vector's place among those of the passage; -1 if none was matched
    similarity: float  # what it adds to the score
    share: float  # of the sum of all; 0 where that is not above 0
    imputed: bool = False  # nothing was retrieved for this token, so `similarity` is what the plan puts in its place


@dataclass(frozen=True, slots=True)
class TokenMatches:
    """Late interaction, token by token: one match for each vector of the query."""

    score: float  # the sum of the similarities
    matches: tuple[TokenMatch, ...]
    note: str = ""  # why tokens are not known, where they are not


@dataclass(frozen=True, slots=True)
class WordMatch:
    """A word of the query that the document holds, as BM25 counts it: stemmed, in title and text."""

    word: str  # as it stands in the query
    count: int  # how often the document holds it
    documents: int  # how many documents hold it
    idf: float
    score: float  # what it adds to the score


@dataclass(frozen=True, slots=True)
class TermMatch:
    """A term that the query and the document's best passage share, in the sparse strand."""

    term: int  # its number in the vocabulary
    surface: str  # as people read it; empty if the encoder does not say
    query_weight: float
    weight: float  # in the passage
    score: float  # the product, which it adds to the score


@dataclass(frozen=True, slots=True)
class ScorePart:
    """What one list gave to the score of a hit."""

    kind: str
    score: float | None  # in that list; None where the list does not have the document
    rank: int | None  # from 1
    share: float  # of the hit's score


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why a document is a hit. A strand that the search did not use is None."""

    id: str
    query: str
    score: float | None  # None where the search did not find the document
    rank: int | None
    span: Span  # the passage that `multi` speaks of
    parts: tuple[ScorePart, ...]
    multi: TokenMatches | None = None
    dense: float | None = None  # of the document's best passage
    bm25: tuple[WordMatch, ...] | None = None
    sparse: tuple[TermMatch, ...] | None = None  # those that add most first

    def as_fields(self) -> dict[str, Any]:
        """Plain data, as JSON can hold it."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Hit:
    """One document that was found, with the passage that won and its score in each strand that scored it."""

    id: str
    score: float
    text: str
    title: str
    metadata: Metadata
    span: Span  # the passage that won, within `text`
    scores: Mapping[str, float]  # by strand: dense, sparse, multi, bm25
    explanation: Explanation | None = None  # where it was asked for

    @property
    def passage(self) -> str:
        """The text of the passage that won."""
        return self.text[self.span.start : self.span.end]

"""Records that all layers share: documents that go in, hits and explanations that come out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

Metadata = Mapping[str, Any]  # values that JSON can represent

MAX_REPR_TEXT = 60  # characters of a text in a repr


class Span(NamedTuple):
    """A range of characters of a text; `end` is exclusive."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Document:
    """A text with an id. The title, if any, is encoded with every passage of the text."""

    id: str
    text: str
    title: str = ""
    metadata: Metadata = field(default_factory=dict)

    def __repr__(self) -> str:
        title = f", title={_shortened(self.title)}" if self.title else ""
        metadata = f", metadata={_shortened_mapping(self.metadata)}" if self.metadata else ""
        return f"Document(id={self.id!r}, text={_shortened(self.text)}{title}{metadata})"


@dataclass(frozen=True, slots=True)
class TokenMatch:
    """A token of the query and the most similar token of the passage."""

    query: str  # its characters in the query; empty if unknown
    query_span: Span | None  # within the query; None for a token without characters there, such as [CLS]
    token: str  # its characters in the document; empty if unknown
    field: str  # "text" or "title"; empty for a token of neither
    span: Span | None  # within that field
    row: int  # position of the vector among those of the passage; -1 if none was matched
    similarity: float  # what the match adds to the score
    share: float  # of the sum of all similarities; 0 if that sum is not positive
    imputed: bool = False  # the token retrieved nothing, and `similarity` is the value that the method imputes


@dataclass(frozen=True, slots=True)
class TokenMatches:
    """Late interaction, token by token: one match for each vector of the query."""

    score: float  # the sum of the similarities
    matches: tuple[TokenMatch, ...]
    note: str = ""  # why tokens are unknown, if they are

    def __repr__(self) -> str:
        return f"TokenMatches(score={self.score:.4g}, {len(self.matches)} matches)"


@dataclass(frozen=True, slots=True)
class WordMatch:
    """A word of the query that the document contains, as BM25 counts it: stemmed, in title and text."""

    word: str  # as written in the query
    count: int  # occurrences in the document
    documents: int  # documents that contain the word
    idf: float
    score: float  # what the word adds to the score


@dataclass(frozen=True, slots=True)
class TermMatch:
    """A term that the sparse vectors of the query and of the document's best passage share."""

    term: int  # its id in the vocabulary
    surface: str  # its text; empty if the encoder does not give one
    query_weight: float
    weight: float  # in the passage
    score: float  # the product of both weights, which is added to the score


@dataclass(frozen=True, slots=True)
class ScorePart:
    """What one retriever contributes to the score of a hit."""

    kind: str
    score: float | None  # None if the retriever did not return the document
    rank: int | None  # from 1
    share: float  # of the hit's score


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why a document is a hit. Kinds of embeddings that the search did not use are None."""

    id: str
    query: str
    score: float | None  # None if the search did not return the document
    rank: int | None
    span: Span  # the passage that `multi` explains
    parts: tuple[ScorePart, ...]
    multi: TokenMatches | None = None
    dense: float | None = None  # score of the document's best passage
    bm25: tuple[WordMatch, ...] | None = None
    sparse: tuple[TermMatch, ...] | None = None  # highest score first

    def __repr__(self) -> str:
        score = "not found" if self.score is None else f"score={self.score:.4g}, rank={self.rank}"
        kinds = [kind for kind in ("multi", "dense", "bm25", "sparse") if getattr(self, kind) is not None]
        return f"Explanation(id={self.id!r}, query={_shortened(self.query)}, {score}, explains {', '.join(kinds)})"

    def as_fields(self) -> dict[str, Any]:
        """The explanation as plain data for JSON."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Hit:
    """A document that a search found, with its best passage and the scores of all retrievers that found it."""

    id: str
    score: float
    text: str
    title: str
    metadata: Metadata
    span: Span  # the best passage, within `text`
    scores: Mapping[str, float]  # by retriever: dense, sparse, multi, bm25
    explanation: Explanation | None = None  # only if the search was called with `explain`

    def __repr__(self) -> str:
        title = f", title={_shortened(self.title)}" if self.title else ""
        return f"Hit(id={self.id!r}, score={self.score:.4g}{title}, passage={_shortened(self.passage)})"

    @property
    def passage(self) -> str:
        """The text of the best passage."""
        return self.text[self.span.start : self.span.end]


def _shortened(text: str) -> str:
    """The repr of a text, or of its beginning if it is long."""
    return repr(text) if len(text) <= MAX_REPR_TEXT else f"{text[:MAX_REPR_TEXT]!r}... ({len(text):,} characters)"


def _shortened_mapping(values: Metadata) -> str:
    text = repr(dict(values))
    return text if len(text) <= 2 * MAX_REPR_TEXT else f"{{{len(values)} fields}}"

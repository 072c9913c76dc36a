"""Records that all layers share: documents that go in, hits and explanations that come out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

Metadata = Mapping[str, Any]  # values that JSON can represent

MAX_REPR_TEXT = 60  # characters of a text in a repr
LINE = "line "  # labels of sections that begin so are followed by a number, and count lines


class Span(NamedTuple):
    """A range of characters of a text; `end` is exclusive."""

    start: int
    end: int


class Section(NamedTuple):
    """A part of a text, up to the next section: where it is in its file, and the heading that it begins with."""

    start: int  # the character of the text where it begins
    label: str = ""  # "page 3", "cell 7", "line 120"; empty: that of the section before
    level: int = 0  # of its heading, from 1; 0: it has none, and the headings above it stay
    heading: str = ""


class FileOrigin(NamedTuple):
    """The file that a document was read from, as it was when it was read."""

    root: str  # the name of the folder that was indexed
    path: str  # within that folder, with /
    size: int  # bytes
    mtime_ns: int
    digest: str  # of the content, in hexadecimal; empty if it was not computed


@dataclass(frozen=True, slots=True)
class Document:
    """A text with an id. The title, if any, is encoded with every passage of the text.

    `sections` give hits their headings and their location in a file, and passages begin with them. `origin` is for
    `plait.sync`, which follows the files of a folder.
    """

    id: str
    text: str
    title: str = ""
    metadata: Metadata = field(default_factory=dict)
    sections: tuple[Section, ...] = ()  # in the order of the text
    origin: FileOrigin | None = None

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
    conditions: tuple[str, ...] = ()  # operators of the query that the document meets
    corrections: tuple[tuple[str, str], ...] = ()  # misspelt words of the query, and the words searched instead

    def __repr__(self) -> str:
        score = "not found" if self.score is None else f"score={self.score:.4g}, rank={self.rank}"
        kinds = [kind for kind in ("multi", "dense", "bm25", "sparse") if getattr(self, kind) is not None]
        return f"Explanation(id={self.id!r}, query={_shortened(self.query)}, {score}, explains {', '.join(kinds)})"

    def as_fields(self) -> dict[str, Any]:
        """The explanation as plain data for JSON."""
        return asdict(self)


class Passage(NamedTuple):
    """A passage of a hit."""

    text: str
    span: Span  # within the text of the document
    # Of several passages, how similar each is to the query: by multi vectors, else by dense, else by sparse vectors; in
    # mode bm25, the share of the query's words that it has. The score of a single passage is that of the hit.
    score: float


class Group(NamedTuple):
    """What a hit stands for in a search with `group_by`: the best document that has this value."""

    value: Any  # of the field; None for documents without it
    size: int  # documents with this value among those that the search looked at


@dataclass(frozen=True, slots=True)
class Hit:
    """A document that a search found, with its best passage and the scores of all retrievers that found it.

    A prompt wants passages, not whole texts:

        hits = index.search("how are vectors combined", k=3, passages=2)
        context = "\\n\\n".join(passage.text for hit in hits for passage in hit.passages)
    """

    id: str
    score: float
    text: str
    title: str
    metadata: Metadata
    span: Span  # the best passage, within `text`
    scores: Mapping[str, float]  # by retriever: dense, sparse, multi, bm25
    explanation: Explanation | None = None  # only if the search was called with `explain`
    passages: tuple[Passage, ...] = ()  # best first: one, or as many as `passages=` of the search allows
    group: Group | None = None  # only if the search was called with `group_by`
    headings: tuple[str, ...] = ()  # above the best passage, outermost first
    location: str = ""  # of the best passage in its file: "page 3", "line 120", "cell 7"; empty if unknown
    # In mode hybrid: the share of queries about nothing in the index whose best hit scores less, from 0 to 1.
    confidence: float | None = None
    highlights: tuple[Span, ...] = ()  # what matched, within `text`, in order; only with `highlight`

    def __repr__(self) -> str:
        title = f", title={_shortened(self.title)}" if self.title else ""
        location = f", location={self.location!r}" if self.location else ""
        return f"Hit(id={self.id!r}, score={self.score:.4g}{title}{location}, passage={_shortened(self.passage)})"

    @property
    def passage(self) -> str:
        """The text of the best passage."""
        return self.text[self.span.start : self.span.end]


def hit_fields(rank: int, hit: Hit, *, full: bool) -> dict[str, Any]:
    """A hit as plain data for JSON; `span` is the range of the passage in the text, in characters, and `highlights` are
    ranges of the text that matched."""
    fields: dict[str, Any] = {
        "rank": rank,
        "id": hit.id,
        "score": hit.score,
        "scores": dict(hit.scores),
        "title": hit.title,
        "passage": hit.passage,
        "span": list(hit.span),
        "highlights": [list(span) for span in hit.highlights],
        "metadata": dict(hit.metadata),
    }
    if hit.confidence is not None:
        fields["confidence"] = round(hit.confidence, 4)
    if hit.location:
        fields["location"] = hit.location
    if hit.headings:
        fields["headings"] = list(hit.headings)
    if len(hit.passages) > 1:
        fields["passages"] = [{"passage": one.text, "span": list(one.span), "score": one.score} for one in hit.passages]
    if hit.group is not None:
        fields["group"] = {"value": hit.group.value, "size": hit.group.size}
    if full:
        fields["text"] = hit.text
    if hit.explanation is not None:
        fields["explanation"] = hit.explanation.as_fields()
    return fields


def headings_at(sections: Sequence[Section], position: int) -> tuple[str, ...]:
    """The headings above a character of the text, outermost first."""
    path: list[tuple[int, str]] = []
    for section in sections:
        if section.start > position:
            break
        if section.level:
            path = [(level, heading) for level, heading in path if level < section.level]
            path.append((section.level, section.heading))
    return tuple(heading for _, heading in path)


def location_at(sections: Sequence[Section], text: str, position: int) -> str:
    """Where a character of the text is in its file; empty if no section says so.

    The label "line 10" counts on within its section; all other labels hold for the whole section.
    """
    label, start = "", 0
    for section in sections:
        if section.start > position:
            break
        if section.label:
            label, start = section.label, section.start
    if not label.startswith(LINE):
        return label
    while position < len(text) and text[position].isspace():  # a passage may begin with the white space before it
        position += 1
    return f"{LINE}{int(label.removeprefix(LINE)) + text.count(chr(10), start, position)}"


def _shortened(text: str) -> str:
    """The repr of a text, or of its beginning if it is long."""
    return repr(text) if len(text) <= MAX_REPR_TEXT else f"{text[:MAX_REPR_TEXT]!r}... ({len(text):,} characters)"


def _shortened_mapping(values: Metadata) -> str:
    text = repr(dict(values))
    return text if len(text) <= 2 * MAX_REPR_TEXT else f"{{{len(values)} fields}}"

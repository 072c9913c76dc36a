"""What MCP tools answer, short enough for the context of a model. Texts are cut at these limits, and the answer shows
where."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import BaseModel, Field

from plait.records import Document, Explanation, Hit

MAX_HITS = 20
MAX_PASSAGES = 3  # of each hit
MAX_PASSAGE = 1_500  # characters of a passage
MAX_METADATA = 600  # characters of the metadata of a hit, as JSON
MAX_VALUE = 200  # characters of one value in it
MAX_ANSWER = 24_000  # characters of all hits together, some 6,000 tokens
DEFAULT_LENGTH, MAX_LENGTH = 6_000, 20_000  # characters of a document that `get` gives at once
MAX_RESOURCE = 200_000  # characters of a document that is read as a resource
MAX_MATCHES = 12  # words and terms of an explanation
MAX_FACETS = 50
CUT = " [...]"


class FoundDocument(BaseModel):
    id: str
    title: str = ""
    score: float
    passages: list[str] = Field(description="The parts of the document that match best.")
    location: str = Field("", description="Where the first passage is in its file.")
    headings: list[str] = []
    metadata: dict[str, Any] = {}
    confidence: float | None = Field(None, description="Near 1: the document answers; below 0.9: perhaps not.")


class SearchResult(BaseModel):
    index: str
    hits: list[FoundDocument]
    note: str = Field("", description="What was left out.")


class DocumentPart(BaseModel):
    index: str
    id: str
    title: str = ""
    text: str
    start: int = Field(0, description="The character of the document where `text` begins.")
    next_start: int | None = Field(None, description="Where the rest begins; absent at the end of the document.")
    characters: int = Field(description="Of the whole document.")
    metadata: dict[str, Any] = {}


class MatchedWord(BaseModel):
    word: str
    match: str = Field("", description="What it matched in the document, if that is not the word itself.")
    score: float


class ExplainResult(BaseModel):
    index: str
    id: str
    is_hit: bool = Field(description="Whether the search returns the document.")
    rank: int | None = None
    score: float | None = None
    shares: dict[str, float] = Field({}, description="What part of the score each way of searching gives.")
    words: list[MatchedWord] = Field([], description="Words of the query that the document has, by BM25.")
    tokens: list[MatchedWord] = Field([], description="The most similar tokens, by late interaction.")
    dense: float | None = Field(None, description="The similarity of the best passage as a whole.")


class ValueCount(BaseModel):
    value: Any = Field(description="null: documents without the field.")
    count: int


class FacetsResult(BaseModel):
    index: str
    field: str
    counts: list[ValueCount]
    n_values: int = Field(description="Different values in all.")
    n_documents: int = Field(description="Documents that were looked at.")


class IndexSummary(BaseModel):
    name: str
    documents: int


class IndexesResult(BaseModel):
    indexes: list[IndexSummary]


def as_text(result: BaseModel) -> str:
    """The result as compact JSON; fields with their defaults are left out."""
    return json.dumps(result.model_dump(mode="json", exclude_defaults=True), ensure_ascii=False, separators=(",", ":"))


def search_result(index: str, hits: Sequence[Hit]) -> SearchResult:
    """As many of the best hits as fit."""
    result = SearchResult(index=index, hits=[], note="")
    n_characters = 0
    for hit in hits:
        is_hit = _found(hit)
        n_characters += len(as_text(is_hit))
        if result.hits and n_characters > MAX_ANSWER:
            n_left = len(hits) - len(result.hits)
            result.note = f"{n_left} more hits did not fit; ask for them with offset, or for fewer passages"
            break
        result.hits.append(is_hit)
    return result


def _found(hit: Hit) -> FoundDocument:
    return FoundDocument(
        id=hit.id,
        title=cut(hit.title, MAX_VALUE),
        score=round(hit.score, 4),
        passages=[cut(passage.text, MAX_PASSAGE) for passage in hit.passages[:MAX_PASSAGES]],
        location=hit.location,
        headings=[cut(heading, MAX_VALUE) for heading in hit.headings],
        metadata=short_metadata(hit.metadata),
        confidence=None if hit.confidence is None else round(hit.confidence, 3),
    )


def document_part(index: str, document: Document, start: int, length: int) -> DocumentPart:
    end = min(start + length, len(document.text))
    return DocumentPart(
        index=index,
        id=document.id,
        title=cut(document.title, MAX_VALUE),
        text=document.text[start:end],
        start=start,
        next_start=end if end < len(document.text) else None,
        characters=len(document.text),
        metadata=short_metadata(document.metadata),
    )


def explain_result(index: str, explanation: Explanation) -> ExplainResult:
    tokens = [] if explanation.multi is None else explanation.multi.matches
    best = sorted((match for match in tokens if match.query), key=lambda match: -match.similarity)[:MAX_MATCHES]
    words = sorted(explanation.bm25 or (), key=lambda word: -word.score)[:MAX_MATCHES]
    return ExplainResult(
        index=index,
        id=explanation.id,
        is_hit=explanation.rank is not None,
        rank=explanation.rank,
        score=None if explanation.score is None else round(explanation.score, 4),
        shares={part.kind: round(part.share, 3) for part in explanation.parts},
        words=[MatchedWord(word=cut(one.word, MAX_VALUE), match="", score=round(one.score, 3)) for one in words],
        tokens=[
            MatchedWord(
                word=cut(one.query, MAX_VALUE),
                match="" if one.token == one.query else cut(one.token, MAX_VALUE),
                score=round(one.similarity, 3),
            )
            for one in best
        ],
        dense=None if explanation.dense is None else round(explanation.dense, 4),
    )


def facets_result(index: str, facets: Mapping[str, Any]) -> FacetsResult:
    counts = [ValueCount(value=_short_value(one["value"]), count=one["count"]) for one in facets["counts"]]
    return FacetsResult(
        index=index,
        field=facets["field"],
        counts=counts,
        n_values=facets["n_values"],
        n_documents=facets["n_documents"],
    )


def cut(text: str, length: int) -> str:
    return text if len(text) <= length else text[:length] + CUT


def short_metadata(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """The first fields that fit, with long values cut."""
    short: dict[str, Any] = {}
    n_left = MAX_METADATA
    for name, value in metadata.items():
        part = _short_value(value)
        n_left -= len(name) + len(json.dumps(part, ensure_ascii=False))
        if n_left < 0:
            break
        short[name] = part
    return short


def _short_value(value: Any) -> Any:
    if isinstance(value, str):
        return cut(value, MAX_VALUE)
    text = json.dumps(value, ensure_ascii=False)
    return value if len(text) <= MAX_VALUE else cut(text, MAX_VALUE)

"""The bodies of answers, for the OpenAPI document. Answers are made as plain data and not validated again."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, Field


class Health(BaseModel):
    status: Literal["ok", "starting"]


class IndexSummary(BaseModel):
    name: str
    documents: int
    passages: int | None = Field(None, description="Not for a key with a filter.")
    kinds: dict[str, int] = Field(description="Kinds of embeddings with their sizes.", examples=[{"dense": 384}])
    model: str | None = None
    bytes: int | None = Field(None, description="Not for a key with a filter.")


class Indexes(BaseModel):
    indexes: list[IndexSummary]


class SegmentSize(BaseModel):
    passages: int
    deleted: int
    bytes: int


class IndexInfo(IndexSummary):
    modes: list[str]
    fields: list[str] | None = Field(None, description="Metadata fields with an index.")
    language: str | None = None
    pooling: str | None = None
    chunking: str | None = None
    segments: int | None = None
    deleted_passages: int | None = None
    bytes_by_part: dict[str, int] | None = None
    format: int | None = None
    created: str | None = None
    fingerprint: str | None = None
    tuned: dict[str, Any] | None = None
    weights: dict[str, Any] | None = None
    calibration: dict[str, Any] | None = None
    exclude_from_hybrid: list[str] = Field(description="Kinds that hybrid search leaves out, unless a weight is given.")
    drift: dict[str, Any] | None = Field(None, description="Of vectors that the codec was not fitted to.")
    segment_sizes: list[SegmentSize] | None = None


class Created(BaseModel):
    name: str


class Dropped(BaseModel):
    dropped: str


class Hit(BaseModel):
    rank: int
    id: str
    score: float
    scores: dict[str, float | None]
    title: str
    passage: str
    span: list[int]
    highlights: list[list[int]]
    metadata: dict[str, Any]
    confidence: float | None = None
    location: str | None = None
    headings: list[str] | None = None
    passages: list[dict[str, Any]] | None = None
    group: dict[str, Any] | None = None
    text: str | None = None
    explanation: dict[str, Any] | None = None


class Hits(BaseModel):
    hits: list[Hit]


class Timings(BaseModel):
    seconds: float
    stages: list[dict[str, Any]]


class SearchResult(BaseModel):
    """`hits` of one query, or `results` of several."""

    hits: list[Hit] | None = None
    results: list[Hits] | None = None
    timings: Timings | None = None
    warnings: list[str] | None = None
    request_id: str


class Explained(BaseModel):
    explanation: dict[str, Any]
    request_id: str


class FacetCount(BaseModel):
    value: Any
    count: int


class Facets(BaseModel):
    field: str
    counts: list[FacetCount]
    n_values: int
    n_documents: int


class Count(BaseModel):
    count: int


class StoredDocument(BaseModel):
    id: str
    title: str
    text: str
    metadata: dict[str, Any]


class WholeDocument(StoredDocument):
    passages: list[list[int]] | None = Field(None, description="Their spans in the text; with `passages=true`.")


class DocumentPage(BaseModel):
    documents: list[StoredDocument]
    cursor: str | None = Field(description="Of the next page; null after the last.")


class Documents(BaseModel):
    documents: list[StoredDocument | None] = Field(description="In the order of the ids; null for an unknown id.")


class Added(BaseModel):
    added: int
    updated: int
    unchanged: int
    passages: int | None = None
    truncated: int | None = None
    not_encoded: int | None = None
    repeated: list[str] | None = None
    seconds: float | None = None


class Deleted(BaseModel):
    deleted: int


class Changed(BaseModel):
    changed: int


class JobError(BaseModel):
    code: str
    message: str


class Job(BaseModel):
    id: str
    index: str
    kind: str
    state: Literal["queued", "running", "done", "failed"]
    documents: int
    total: int | None = None
    result: dict[str, Any] | None = None
    error: JobError | None = None
    created: str
    finished: str | None = None


class Accepted(BaseModel):
    job: Job


class SparseVector(BaseModel):
    terms: list[int]
    weights: list[float]


class EncodedItem(BaseModel):
    dense: list[float] | None = None
    sparse: SparseVector | None = None
    multi: list[list[float]] | None = None


class Encoded(BaseModel):
    model: str
    items: list[EncodedItem]


class ModelCard(BaseModel):
    id: str
    object: Literal["model"]
    created: int
    owned_by: str
    kind: Literal["encoder", "reranker"]
    sizes: dict[str, int]
    max_tokens: int | None = None


class Models(BaseModel):
    object: Literal["list"]
    data: list[ModelCard]

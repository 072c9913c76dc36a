"""The bodies of answers, for the OpenAPI document. Answers are made as plain data and not validated again."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field


def _example(**fields: Any) -> ConfigDict:
    return ConfigDict(json_schema_extra={"examples": [fields]})


_SUMMARY = {
    "name": "notes",
    "documents": 2,
    "passages": 3,
    "kinds": {"dense": 384, "sparse": 30522, "multi": 128},
    "model": "plait-small",
    "bytes": 118_784,
}
_HIT = {
    "rank": 1,
    "id": "intro",
    "score": 0.365,
    "scores": {"dense": 0.674, "multi": 6.483, "bm25": 2.646},
    "title": "Intro",
    "passage": "Vectors are combined.",
    "span": [0, 21],
    "highlights": [],
    "metadata": {"year": 2024},
    "confidence": 0.99,
}
_DOCUMENT = {"id": "intro", "title": "Intro", "text": "Vectors are combined.", "metadata": {"year": 2024}}
_JOB = {
    "id": "9b0f2c61d3a84e57",
    "index": "notes",
    "kind": "add",
    "state": "running",
    "documents": 4_000,
    "total": 100_000,
    "result": None,
    "error": None,
    "created": "2026-01-31T12:00:00+00:00",
    "finished": None,
}
_REQUEST_ID = "5f1c0e7ab24d9c31"


class Health(BaseModel):
    model_config = _example(status="ok")

    status: Literal["ok", "starting"]


class IndexSummary(BaseModel):
    name: str
    documents: int
    passages: int | None = Field(None, description="Not for a key with a filter.")
    kinds: dict[str, int] = Field(description="Kinds of embeddings with their sizes.", examples=[{"dense": 384}])
    model: str | None = None
    bytes: int | None = Field(None, description="Not for a key with a filter.")


class Indexes(BaseModel):
    model_config = _example(indexes=[_SUMMARY])

    indexes: list[IndexSummary]


class SegmentSize(BaseModel):
    passages: int
    deleted: int
    bytes: int


class IndexInfo(IndexSummary):
    model_config = _example(
        **_SUMMARY, modes=["bm25", "dense", "sparse", "multi", "hybrid"], segments=1, exclude_from_hybrid=["sparse"]
    )

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
    model_config = _example(name="notes")

    name: str


class Dropped(BaseModel):
    model_config = _example(dropped="notes")

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

    model_config = _example(hits=[_HIT], request_id=_REQUEST_ID)

    hits: list[Hit] | None = None
    results: list[Hits] | None = None
    timings: Timings | None = None
    warnings: list[str] | None = None
    request_id: str


class Explained(BaseModel):
    model_config = _example(
        explanation={"parts": [{"kind": "dense", "rank": 1, "score": 0.674}]}, request_id=_REQUEST_ID
    )

    explanation: dict[str, Any]
    request_id: str


class FacetCount(BaseModel):
    value: Any
    count: int


class Facets(BaseModel):
    model_config = _example(field="year", counts=[{"value": 2024, "count": 2}], n_values=1, n_documents=2)

    field: str
    counts: list[FacetCount]
    n_values: int
    n_documents: int


class Count(BaseModel):
    model_config = _example(count=2)

    count: int


class StoredDocument(BaseModel):
    id: str
    title: str
    text: str
    metadata: dict[str, Any]


class WholeDocument(StoredDocument):
    model_config = _example(**_DOCUMENT, passages=[[0, 21]])

    passages: list[list[int]] | None = Field(None, description="Their spans in the text; with `passages=true`.")


class DocumentPage(BaseModel):
    model_config = _example(documents=[_DOCUMENT], cursor=None)

    documents: list[StoredDocument]
    cursor: str | None = Field(description="Of the next page; null after the last.")


class Documents(BaseModel):
    model_config = _example(documents=[_DOCUMENT, None])

    documents: list[StoredDocument | None] = Field(description="In the order of the ids; null for an unknown id.")


class Added(BaseModel):
    model_config = _example(
        added=1, updated=0, unchanged=0, passages=1, truncated=0, not_encoded=0, repeated=[], seconds=0.02
    )

    added: int
    updated: int
    unchanged: int
    passages: int | None = None
    truncated: int | None = None
    not_encoded: int | None = None
    repeated: list[str] | None = None
    seconds: float | None = None


class Deleted(BaseModel):
    model_config = _example(deleted=1)

    deleted: int


class Changed(BaseModel):
    model_config = _example(changed=1)

    changed: int


class JobError(BaseModel):
    code: str
    message: str


class Job(BaseModel):
    model_config = _example(**_JOB)

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
    model_config = _example(job=_JOB)

    job: Job


class SparseVector(BaseModel):
    terms: list[int]
    weights: list[float]


class EncodedItem(BaseModel):
    dense: list[float] | None = None
    sparse: SparseVector | None = None
    multi: list[list[float]] | None = None


class Encoded(BaseModel):
    model_config = _example(
        model="plait-small",
        items=[{"dense": [0.02, -0.05], "sparse": {"terms": [2054], "weights": [0.7]}, "multi": [[0.1, 0.3]]}],
    )

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
    model_config = _example(
        object="list",
        data=[
            {
                "id": "plait-small",
                "object": "model",
                "created": 0,
                "owned_by": "plait",
                "kind": "encoder",
                "sizes": {"dense": 384, "sparse": 30522, "multi": 128},
                "max_tokens": 512,
            }
        ],
    )

    object: Literal["list"]
    data: list[ModelCard]

"""Bodies of other servers that plait understands: OpenAI's embeddings, Cohere's and Jina's rerank, and TEI.

They take the published fields. A field that plait cannot honour is taken if leaving it out changes no result.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from plait.serve.schemas import FIRST_ERROR, Body

_CONFIG = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)


def _example(**fields: Any) -> ConfigDict:
    return ConfigDict(**_CONFIG, json_schema_extra={"examples": [fields]})


def _answer(**fields: Any) -> ConfigDict:
    return ConfigDict(json_schema_extra={"examples": [fields]})


Texts = Annotated[list[str], Field(min_length=1, fail_fast=True)]


class OpenAIEmbeddingsBody(Body):
    model_config = _example(input=["how are vectors combined"], model="plait-small")

    input: str | Texts = Field(description="Texts; lists of token numbers are not taken.")
    model: str | None = None
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: int | None = Field(None, ge=1, description="Only the size of the model.")
    user: str | None = None
    input_type: Literal["query", "document"] = "document"


class OpenAIEmbedding(BaseModel):
    object: Literal["embedding"]
    index: int
    embedding: list[float] | str


class OpenAIUsage(BaseModel):
    prompt_tokens: int
    total_tokens: int


class OpenAIEmbeddings(BaseModel):
    model_config = _answer(
        object="list",
        data=[{"object": "embedding", "index": 0, "embedding": [0.02, -0.05]}],
        model="plait-small",
        usage={"prompt_tokens": 5, "total_tokens": 5},
    )

    object: Literal["list"]
    data: list[OpenAIEmbedding]
    model: str
    usage: OpenAIUsage


class RerankDocument(BaseModel):
    model_config = ConfigDict(strict=True, extra="ignore")

    text: str


class RerankBody(Body):
    model_config = _example(query="what is a loom", documents=["A loom crosses warp and weft.", "Vectors."], top_n=1)

    query: str = Field(min_length=1)
    documents: list[str | RerankDocument] = Field(min_length=1, fail_fast=True)
    model: str | None = None
    top_n: int | None = Field(None, ge=1)
    return_documents: bool = False
    rank_fields: Annotated[list[Literal["text"]], FIRST_ERROR] | None = None
    max_chunks_per_doc: int | None = None
    max_tokens_per_doc: int | None = None
    truncation: bool | None = None


class RerankedText(BaseModel):
    text: str


class RerankResult(BaseModel):
    index: int
    relevance_score: float
    document: RerankedText | None = None


class TotalTokens(BaseModel):
    total_tokens: int


class Reranked(BaseModel):
    model_config = _answer(
        id="5f1c0e7ab24d9c31",
        object="list",
        model="plait-cross-small",
        results=[{"index": 0, "relevance_score": 0.98}],
        meta={"api_version": {"version": "2"}, "billed_units": {"search_units": 1}},
        usage={"total_tokens": 23},
    )

    id: str
    object: Literal["list"]
    model: str
    results: list[RerankResult]
    meta: dict[str, Any]
    usage: TotalTokens


class TeiBody(Body):
    model_config = _example(inputs=["how are vectors combined"])

    inputs: str | Texts
    normalize: bool = True
    truncate: bool | None = None
    truncation_direction: Literal["Left", "Right", "left", "right"] | None = None
    prompt_name: Literal["query", "document", "passage"] | None = None
    dimensions: int | None = Field(None, ge=1)


class TeiRerankBody(Body):
    model_config = _example(query="what is a loom", texts=["A loom crosses warp and weft.", "Vectors."])

    query: str = Field(min_length=1)
    texts: Texts
    raw_scores: bool = False
    return_text: bool = False
    truncate: bool | None = None
    truncation_direction: Literal["Left", "Right", "left", "right"] | None = None


class TeiRank(BaseModel):
    model_config = _answer(index=0, score=0.98)

    index: int
    score: float
    text: str | None = None


class TeiSparse(BaseModel):
    model_config = _answer(index=2054, value=0.7)

    index: int
    value: float


class TeiInfo(BaseModel):
    model_config = ConfigDict(
        protected_namespaces=(),
        json_schema_extra={
            "examples": [
                {
                    "model_id": "plait-small",
                    "model_sha": None,
                    "model_dtype": "float32",
                    "model_type": {"embedding": {"pooling": "model"}},
                    "max_concurrent_requests": None,
                    "max_input_length": 512,
                    "max_batch_tokens": None,
                    "max_client_batch_size": 256,
                    "version": "0.2.0",
                }
            ]
        },
    )

    model_id: str
    model_sha: str | None
    model_dtype: str
    model_type: dict[str, Any]
    max_concurrent_requests: int | None
    max_input_length: int | None
    max_batch_tokens: int | None
    max_client_batch_size: int
    version: str

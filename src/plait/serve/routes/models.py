"""Models: list, encode, rerank, and the embeddings of the OpenAI API."""

from __future__ import annotations

import base64
import math
from typing import TYPE_CHECKING, Any

import numpy as np
from fastapi import APIRouter, Request

from plait.errors import InputError
from plait.serve import answers, compat
from plait.serve.checks import check_model, check_texts
from plait.serve.errors import PlainJson
from plait.serve.protocol import RerankAnswer
from plait.serve.requests import request_deadline
from plait.serve.routes.common import Parts, PartsOf, errors, principal_of, request_id
from plait.serve.schemas import EncodeBody

if TYPE_CHECKING:
    from plait.embeddings import Embeddings

router = APIRouter(tags=["models"], responses=errors(404, 504))


@router.get("/v1/models", response_model=answers.Models, summary="List the models")
async def list_models(request: Request, parts: PartsOf) -> PlainJson:
    """In the shape of the OpenAI API, with the kinds and sizes of embeddings."""
    principal_of(request).require("read")
    data = [
        {
            "id": model.name,
            "object": "model",
            "created": 0,
            "owned_by": "plait",
            "kind": model.kind,
            "sizes": dict(model.sizes),
            "max_tokens": model.max_tokens,
        }
        for model in parts.runtime.models()
    ]
    return PlainJson({"object": "list", "data": data})


@router.post("/v1/encode", response_model=answers.Encoded, summary="Encode texts")
async def encode(request: Request, parts: PartsOf, body: EncodeBody) -> PlainJson:
    """All kinds of embeddings of each text, from one pass of the model."""
    principal_of(request).require("read")
    check_model(parts.runtime, body.model, "encoder")
    check_texts("texts", body.texts, parts.limits, most_chars=parts.limits.max_text_chars)
    async with request_deadline(request, parts.limits, body.timeout) as deadline:
        answer = await parts.runtime.encode(body.model, body.texts, kind=body.kind, deadline=deadline)
    wanted = body.kinds or ["dense", "sparse", "multi"]
    if body.kinds and (missing := [kind for kind in wanted if getattr(answer.embeddings, kind) is None]):
        raise InputError(f"the model {answer.model} makes no {missing[0]} embeddings")
    items = [_item(answer.embeddings, number, wanted) for number in range(len(body.texts))]
    return PlainJson({"model": answer.model, "items": items})


def _item(embeddings: Embeddings, number: int, kinds: list[Any]) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    if "dense" in kinds and embeddings.dense is not None:
        fields["dense"] = embeddings.dense[number].astype(float).tolist()
    if "sparse" in kinds and embeddings.sparse is not None:
        terms, weights = embeddings.sparse[number]
        fields["sparse"] = {"terms": terms.tolist(), "weights": weights.astype(float).tolist()}
    if "multi" in kinds and embeddings.multi is not None:
        fields["multi"] = embeddings.multi[number].astype(float).tolist()
    return fields


@router.post("/v1/embeddings", response_model=compat.OpenAIEmbeddings, summary="Embeddings in the shape of OpenAI")
async def embeddings(request: Request, parts: PartsOf, body: compat.OpenAIEmbeddingsBody) -> PlainJson:
    """Dense embeddings. `input_type` is plait's own: `query` or `document`, which is the default."""
    principal_of(request).require("read")
    check_model(parts.runtime, body.model, "encoder")
    texts = [body.input] if isinstance(body.input, str) else body.input
    check_texts("inputs", texts, parts.limits, most_chars=parts.limits.max_text_chars)
    async with request_deadline(request, parts.limits, None) as deadline:
        answer = await parts.runtime.encode(body.model, texts, kind=body.input_type, deadline=deadline)
    dense = dense_of(answer.embeddings, answer.model)
    if body.dimensions not in (None, dense.shape[1]):
        raise InputError(f"dimensions is {body.dimensions}; the model {answer.model} has {dense.shape[1]}")
    data = [
        {"object": "embedding", "index": number, "embedding": _written(row, body.encoding_format)}
        for number, row in enumerate(dense)
    ]
    usage = {"prompt_tokens": answer.tokens, "total_tokens": answer.tokens}
    return PlainJson({"object": "list", "data": data, "model": answer.model, "usage": usage})


def dense_of(embeddings: Embeddings, model: str) -> np.ndarray[Any, Any]:
    if embeddings.dense is None:
        raise InputError(f"the model {model} makes no dense embeddings")
    return embeddings.dense


def _written(row: np.ndarray[Any, Any], encoding: str) -> str | list[float]:
    if encoding == "base64":
        return base64.b64encode(row.astype("<f4").tobytes()).decode()
    values: list[float] = row.astype(float).tolist()
    return values


@router.post("/v1/rerank", response_model=compat.Reranked, summary="Rerank texts, in the shape of Cohere and Jina")
@router.post("/v2/rerank", response_model=compat.Reranked, summary="The same, at the path of Cohere's second version")
async def rerank(request: Request, parts: PartsOf, body: compat.RerankBody) -> PlainJson:
    """Scores from 0 to 1 of each document for the query, best first."""
    texts = [document if isinstance(document, str) else document.text for document in body.documents]
    answer, scores = await reranked(request, parts, body.model, body.query, texts)
    order = sorted(range(len(texts)), key=lambda number: (-scores[number], number))[: body.top_n]
    results: list[dict[str, Any]] = []
    for number in order:
        results.append({"index": number, "relevance_score": scores[number]})
        if body.return_documents:
            results[-1]["document"] = {"text": texts[number]}
    return PlainJson(
        {
            "id": request_id(request),
            "object": "list",
            "model": answer.model,
            "results": results,
            "meta": {"api_version": {"version": "2"}, "billed_units": {"search_units": 1}},
            "usage": {"total_tokens": answer.tokens},
        }
    )


async def reranked(
    request: Request, parts: Parts, model: str | None, query: str, texts: list[str], *, raw: bool = False
) -> tuple[RerankAnswer, list[float]]:
    """The scores of texts for a query: from 0 to 1, or those of the model."""
    principal_of(request).require("read")
    check_model(parts.runtime, model, "reranker")
    check_texts("queries", [query], parts.limits, most_chars=parts.limits.max_query_chars)
    check_texts("documents", texts, parts.limits, most_chars=parts.limits.max_text_chars)
    async with request_deadline(request, parts.limits, None) as deadline:
        answer = await parts.runtime.rerank(model, query, texts, deadline=deadline)
    scores = answer.scores if raw or answer.is_probability else [_sigmoid(score) for score in answer.scores]
    return answer, scores


def _sigmoid(score: float) -> float:
    return 1 / (1 + math.exp(-score)) if score >= 0 else math.exp(score) / (1 + math.exp(score))

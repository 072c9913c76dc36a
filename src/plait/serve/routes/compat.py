"""The API of Text Embeddings Inference (TEI), with the default models of the server."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import numpy as np
from fastapi import APIRouter, Request
from pydantic import Field

from plait.errors import InputError
from plait.serve.checks import check_texts
from plait.serve.compat import TeiBody, TeiInfo, TeiRank, TeiRerankBody, TeiSparse
from plait.serve.errors import PlainJson
from plait.serve.protocol import EncodeAnswer
from plait.serve.requests import request_deadline
from plait.serve.routes.common import Parts, PartsOf, errors, principal_of
from plait.serve.routes.models import dense_of, reranked
from plait.version import __version__

Vectors = Annotated[list[list[float]], Field(examples=[[[0.02, -0.05]]])]
VectorLists = Annotated[list[list[list[float]]], Field(examples=[[[[0.1, 0.3], [0.2, -0.1]]]])]
router = APIRouter(tags=["TEI"], responses=errors(404, 504))


@router.post("/embed", response_model=Vectors, summary="Dense embeddings")
async def embed(request: Request, parts: PartsOf, body: TeiBody) -> PlainJson:
    """The dense embedding of each input. `prompt_name` is query or document, which is the default."""
    answer = await _encoded(request, parts, body)
    dense = dense_of(answer.embeddings, answer.model).astype(np.float64)
    if body.dimensions not in (None, dense.shape[1]):
        raise InputError(f"dimensions is {body.dimensions}; the model {answer.model} has {dense.shape[1]}")
    if body.normalize:
        dense = dense / np.maximum(np.linalg.norm(dense, axis=1, keepdims=True), 1e-12)
    return PlainJson(dense.tolist())


@router.post("/embed_sparse", response_model=list[list[TeiSparse]], summary="Sparse embeddings")
async def embed_sparse(request: Request, parts: PartsOf, body: TeiBody) -> PlainJson:
    """The terms of each input with their weights."""
    answer = await _encoded(request, parts, body)
    sparse = answer.embeddings.sparse
    if sparse is None:
        raise InputError(f"the model {answer.model} makes no sparse embeddings")
    items: list[list[dict[str, Any]]] = []
    for number in range(len(sparse)):
        terms, weights = sparse[number]
        pairs = zip(terms.tolist(), weights.astype(float).tolist(), strict=True)
        items.append([{"index": term, "value": weight} for term, weight in pairs])
    return PlainJson(items)


@router.post("/embed_all", response_model=VectorLists, summary="Multi-vector embeddings")
async def embed_all(request: Request, parts: PartsOf, body: TeiBody) -> PlainJson:
    """The vector of each token of each input."""
    answer = await _encoded(request, parts, body)
    multi = answer.embeddings.multi
    if multi is None:
        raise InputError(f"the model {answer.model} makes no multi-vector embeddings")
    return PlainJson([multi[number].astype(float).tolist() for number in range(len(multi))])


@router.post(
    "/rerank",
    response_model=list[TeiRank],
    response_model_exclude_none=True,
    summary="Rerank texts, in the shape of TEI",
)
async def rerank(request: Request, parts: PartsOf, body: TeiRerankBody) -> PlainJson:
    """The texts with their scores, best first: from 0 to 1, or with `raw_scores` those of the model."""
    _, scores = await reranked(request, parts, None, body.query, body.texts, raw=body.raw_scores)
    order = sorted(range(len(scores)), key=lambda number: (-scores[number], number))
    ranks: list[dict[str, Any]] = [{"index": number, "score": scores[number]} for number in order]
    if body.return_text:
        ranks = [{**rank, "text": body.texts[rank["index"]]} for rank in ranks]
    return PlainJson(ranks)


@router.get("/info", response_model=TeiInfo, summary="The default model")
async def info(request: Request, parts: PartsOf) -> PlainJson:
    principal_of(request).require("read")
    models = sorted(parts.runtime.models(), key=lambda model: (model.kind != "encoder", not model.is_default))
    first = models[0] if models else None
    kind = {"reranker": {}} if first is not None and first.kind == "reranker" else {"embedding": {"pooling": "model"}}
    return PlainJson(
        {
            "model_id": "" if first is None else first.name,
            "model_sha": None,
            "model_dtype": "float32",
            "model_type": kind,
            "max_concurrent_requests": None,
            "max_input_length": None if first is None else first.max_tokens,
            "max_batch_tokens": None,
            "max_client_batch_size": parts.limits.max_batch,
            "version": __version__,
        }
    )


async def _encoded(request: Request, parts: Parts, body: TeiBody) -> EncodeAnswer:
    principal_of(request).require("read")
    texts = [body.inputs] if isinstance(body.inputs, str) else body.inputs
    check_texts("inputs", texts, parts.limits, most_chars=parts.limits.max_text_chars)
    async with request_deadline(request, parts.limits, None) as deadline:
        kind: Literal["query", "document"] = "query" if body.prompt_name == "query" else "document"
        return await parts.runtime.encode(None, texts, kind=kind, deadline=deadline)

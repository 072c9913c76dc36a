"""Searching: search, similar, explain, facets, count."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import numpy as np
from fastapi import APIRouter, Query, Request
from numpy.typing import NDArray

from plait.embeddings import Embeddings, MultiVectors, SparseVectors
from plait.errors import InputError
from plait.search.trace import Trace
from plait.serve import answers
from plait.serve.access import hits_fields
from plait.serve.checks import (
    at_most,
    check_filter,
    check_ids,
    check_search,
    check_texts,
    reranker_name,
    search_keywords,
    trace_fields,
)
from plait.serve.errors import PlainJson
from plait.serve.requests import request_deadline
from plait.serve.routes.common import IndexName, Parts, PartsOf, errors, request_id, respond
from plait.serve.schemas import CountBody, EmbeddingBody, ExplainBody, FacetsBody, SearchBody, SimilarBody

router = APIRouter(prefix="/v1/indexes/{name}", tags=["search"], responses=errors(404, 504))


@router.post("/search", response_model=answers.SearchResult, summary="Search an index")
async def search(request: Request, parts: PartsOf, name: IndexName, body: SearchBody) -> PlainJson:
    """The best documents for a query, best first; for `queries`, `results` has the hits of each."""
    return await run_search(request, parts, name, body)


@router.get("/search", response_model=answers.SearchResult, summary="Search an index, for simple calls")
async def search_get(
    request: Request,
    parts: PartsOf,
    name: IndexName,
    q: Annotated[str, Query(description="What to search for.", examples=["how are vectors combined"])],
    k: Annotated[int, Query(ge=1)] = 10,
    offset: Annotated[int, Query(ge=0)] = 0,
    mode: Annotated[str, Query()] = "hybrid",
    filter: Annotated[str | None, Query(description="A condition on metadata.")] = None,
    sort: Annotated[str | None, Query()] = None,
    rerank: Annotated[bool, Query()] = False,
    explain: Annotated[bool, Query()] = False,
    timings: Annotated[bool, Query()] = False,
    highlight: Annotated[bool, Query()] = False,
    text: Annotated[bool, Query(description="Give the whole text of each document.")] = False,
    timeout: Annotated[float | None, Query(gt=0, allow_inf_nan=False)] = None,
) -> PlainJson:
    """The same as POST, with the options that a command line needs most."""
    given = {
        "query": q,
        "k": k,
        "offset": offset,
        "mode": mode,
        "filter": filter,
        "sort": sort,
        "rerank": rerank,
        "explain": explain,
        "timings": timings,
        "highlight": highlight,
        "text": text,
        "timeout": timeout,
    }
    body = SearchBody.model_validate(given)
    return await run_search(request, parts, name, body)


async def run_search(request: Request, parts: Parts, name: str, body: SearchBody) -> PlainJson:
    """The answer to a search whose body is valid."""
    access, limits = parts.access(request, name), parts.limits
    queries = body.queries if body.queries is not None else [body.query or ""]
    check_texts("queries", queries, limits, most_chars=limits.max_query_chars)
    check_search(body, len(queries), limits)
    check_ids(body.candidates or [], limits)
    keywords = search_keywords(body, limits)
    keywords["rerank"] = reranker_name(parts.runtime, body.rerank)
    async with request_deadline(request, limits, body.timeout) as deadline:
        hits, trace, warnings = await access.search(queries, body.k, keywords, deadline=deadline)

    def answer() -> dict[str, Any]:
        lists = [hits_fields(one, offset=body.offset, full=body.text) for one in hits]
        fields: dict[str, Any] = (
            {"hits": lists[0]} if body.queries is None else {"results": [{"hits": one} for one in lists]}
        )
        if body.timings and trace is not None:
            fields["timings"] = trace_fields(trace, with_counts=not access.is_filtered)
        if warnings:
            fields["warnings"] = list(warnings)
        return {**fields, "request_id": request_id(request)}

    return await respond(sum(map(len, hits)), answer)


@router.post("/similar", response_model=answers.SearchResult, summary="Find similar documents")
async def similar(request: Request, parts: PartsOf, name: IndexName, body: SimilarBody) -> PlainJson:
    """The documents that are most similar to a document of the index, to a text, or to embeddings."""
    access, limits = parts.access(request, name), parts.limits
    check_search(body, 1, limits)
    check_ids([*(body.candidates or []), *([] if body.id is None else [body.id])], limits)
    at_most("the number of characters of the text", len(body.text or ""), limits.max_text_chars)
    keywords = search_keywords(body, limits)
    embeddings = None if body.embeddings is None else _embeddings(body.embeddings)
    trace = Trace()
    async with request_deadline(request, limits, body.timeout) as deadline:
        hits = await access.similar(
            body.k, keywords, id=body.id, text=body.text, embeddings=embeddings, trace=trace, deadline=deadline
        )
    answer: dict[str, Any] = {"hits": hits_fields(hits, offset=body.offset, full=body.include_text)}
    if body.timings:
        answer["timings"] = trace_fields(trace, with_counts=not access.is_filtered)
    return PlainJson({**answer, "request_id": request_id(request)})


def _embeddings(body: EmbeddingBody) -> Embeddings:
    """The embeddings of one item."""
    dense = None if body.dense is None else _rows([body.dense])
    sparse = multi = None
    if body.sparse is not None:
        if len(body.sparse.terms) != len(body.sparse.weights):
            raise InputError("sparse embeddings need one weight for each term")
        _rows([body.sparse.weights])
        sparse = SparseVectors.from_items([dict(zip(body.sparse.terms, body.sparse.weights, strict=True))])
    if body.multi is not None:
        if len({len(row) for row in body.multi}) != 1 or not body.multi[0]:
            raise InputError("multi-vector embeddings need rows of one length")
        multi = MultiVectors.from_items([_rows(body.multi)])
    if dense is None and sparse is None and multi is None:
        raise InputError("give dense, sparse or multi embeddings")
    return Embeddings(dense=dense, sparse=sparse, multi=multi)


def _rows(values: Sequence[Sequence[float]]) -> NDArray[np.float32]:
    with np.errstate(over="ignore"):
        rows = np.array(values, np.float32)
    if not np.isfinite(rows).all():
        raise InputError("embeddings must be finite in 32 bits")
    return rows


@router.post("/explain", response_model=answers.Explained, summary="Explain the rank of a document")
async def explain(request: Request, parts: PartsOf, name: IndexName, body: ExplainBody) -> PlainJson:
    """Why a document has its rank for a query. A document that the search does not find is explained without score."""
    access, limits = parts.access(request, name), parts.limits
    check_texts("queries", [body.query], limits, most_chars=limits.max_query_chars)
    check_search(body, 1, limits)
    check_ids([*(body.candidates or []), body.id], limits)
    keywords = search_keywords(body, limits)
    async with request_deadline(request, limits, body.timeout) as deadline:
        explanation = await access.explain(body.query, body.id, keywords, deadline=deadline)
    return PlainJson({"explanation": explanation.as_fields(), "request_id": request_id(request)})


@router.post("/facets", response_model=answers.Facets, summary="Count the values of a field")
async def facets(request: Request, parts: PartsOf, name: IndexName, body: FacetsBody) -> PlainJson:
    """The most frequent values of a field: in all documents that the filter accepts, or in the best of a query."""
    access, limits = parts.access(request, name), parts.limits
    check_texts("queries", [body.query or ""], limits, most_chars=limits.max_query_chars)
    check_search(body, 1, limits)
    check_ids(body.candidates or [], limits)
    at_most("the number of characters of field", len(body.field), 1000)
    keywords = search_keywords(body, limits)
    async with request_deadline(request, limits, body.timeout) as deadline:
        return PlainJson(await access.facets(body.field, body.query, body.k, keywords, deadline=deadline))


@router.post("/count", response_model=answers.Count, summary="Count documents")
async def count(request: Request, parts: PartsOf, name: IndexName, body: CountBody) -> PlainJson:
    """The number of documents that a filter accepts; of all without one."""
    access, limits = parts.access(request, name), parts.limits
    check_filter(body.filter, limits)
    async with request_deadline(request, limits, body.timeout) as deadline:
        return PlainJson({"count": await access.count(body.filter, deadline=deadline)})

"""JSON of the server to the records of plait, and options of a search to JSON. `Hit`s and the others come out equal to
those that the index on the server gave."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from plait.checks import as_list, shown
from plait.embeddings import Embeddings
from plait.errors import ConfigError
from plait.records import (
    Document,
    Explanation,
    FileOrigin,
    Group,
    Hit,
    Passage,
    ScorePart,
    Section,
    Span,
    TermMatch,
    TokenMatch,
    TokenMatches,
    WordMatch,
)
from plait.search.trace import Stage, Trace
from plait.searcher import SearchRequest

if TYPE_CHECKING:
    from plait.ingest import AddReport
    from plait.storage.fields import Facets

Json = Mapping[str, Any]

_SENT_OTHERWISE = {"k", "params", "candidates", "rerank", "trace", "timeout"}
_DEFAULTS = SearchRequest()

# -- to the server


def search_fields(request: SearchRequest) -> dict[str, Any]:
    """The options of a search that are not defaults. `timeout` is left to the caller: it shrinks from try to try."""
    names = [field.name for field in fields(request) if field.name not in _SENT_OTHERWISE]
    body = {name: getattr(request, name) for name in names if getattr(request, name) != getattr(_DEFAULTS, name)}
    if request.k is not None:
        body["k"] = request.k
    if request.params is not None:
        body["params"] = _params(request.params)
    if request.candidates is not None:
        body["candidates"] = as_list("candidates", request.candidates, "texts", ConfigError)
    if request.rerank is not None:
        body["rerank"] = _rerank(request.rerank)
    if request.trace is not None:
        body["timings"] = True
    return body


def _params(params: Any) -> dict[str, Any]:
    values = {field.name: getattr(params, field.name) for field in fields(params)}
    for name, value in values.items():
        if value is not None and not isinstance(value, str | bool | int | float) and not hasattr(value, "item"):
            raise ConfigError(
                f"the parameter {name} is {shown(value)}; it cannot be sent to a server, which loads its own models; "
                f"give the name of one"
            )
    return {name: value for name, value in values.items() if value is not None}


def _rerank(given: object) -> bool | str:
    if isinstance(given, bool | str):
        return given
    raise ConfigError(
        f"rerank is {shown(given)}; a server takes True, or the name of one of its rerankers"
        + (", not a folder" if isinstance(given, Path) else "")
    )


def embedding_fields(embeddings: Embeddings) -> list[dict[str, Any]]:
    """The embeddings of each item, as `POST /v1/encode` answers them."""
    items: list[dict[str, Any]] = [{} for _ in range(len(embeddings))]
    for number, item in enumerate(items):
        if embeddings.dense is not None:
            item["dense"] = embeddings.dense[number].tolist()
        if embeddings.sparse is not None:
            terms, weights = embeddings.sparse[number]
            item["sparse"] = {"terms": terms.tolist(), "weights": weights.tolist()}
        if embeddings.multi is not None:
            item["multi"] = embeddings.multi[number].tolist()
    return items


# -- from the server. A missing name is a KeyError: the caller turns it into a ServerError.


def hit(given: Json) -> Hit:
    text, span = given["text"], _span(given["span"])
    passages = [(one["passage"], one["span"], one["score"]) for one in given.get("passages") or ()]
    group = given.get("group")
    why = given.get("explanation")
    return Hit(
        id=given["id"],
        score=given["score"],
        text=text,
        title=given["title"],
        metadata=given["metadata"],
        span=span,
        scores=given["scores"],
        explanation=None if why is None else explanation(why),
        passages=tuple(Passage(part, _span(where), score) for part, where, score in passages)
        or (Passage(text[span.start : span.end], span, given["score"]),),
        group=None if group is None else Group(group["value"], group["size"]),
        headings=tuple(given.get("headings") or ()),
        location=given.get("location") or "",
        confidence=given.get("confidence"),
        highlights=tuple(_span(one) for one in given.get("highlights") or ()),
    )


def explanation(given: Json) -> Explanation:
    multi, bm25, sparse = given["multi"], given["bm25"], given["sparse"]
    return Explanation(
        id=given["id"],
        query=given["query"],
        score=given["score"],
        rank=given["rank"],
        span=_span(given["span"]),
        parts=tuple(ScorePart(**part) for part in given["parts"]),
        multi=None if multi is None else _token_matches(multi),
        dense=given["dense"],
        bm25=None if bm25 is None else tuple(WordMatch(**match) for match in bm25),
        sparse=None if sparse is None else tuple(TermMatch(**match) for match in sparse),
        conditions=tuple(given["conditions"]),
        corrections=tuple((wrong, right) for wrong, right in given["corrections"]),
    )


def _token_matches(given: Json) -> TokenMatches:
    matches = [
        {**match, "query_span": _span_or_none(match["query_span"]), "span": _span_or_none(match["span"])}
        for match in given["matches"]
    ]
    return TokenMatches(given["score"], tuple(TokenMatch(**match) for match in matches), given["note"])


def document(given: Json) -> Document:
    origin = given.get("origin")
    return Document(
        given["id"],
        given["text"],
        given["title"],
        given["metadata"],
        tuple(Section(*section) for section in given.get("sections") or ()),
        None if origin is None else FileOrigin(*origin),
    )


def facets(given: Json) -> Facets:
    from plait.storage.fields import FacetCount, Facets

    counts = tuple(FacetCount(one["value"], one["count"]) for one in given["counts"])
    return Facets(given["field"], counts, given["n_values"], given["n_documents"])


def add_report(given: Json) -> AddReport:
    from plait.ingest import AddReport

    names = {field.name for field in fields(AddReport)}
    return AddReport(**{name: value for name, value in given.items() if name in names})


def add_stages(trace: Trace, given: Json) -> None:
    """Adds the stages of a search on the server to a trace."""
    for stage in given["stages"]:
        counts = {name: value for name, value in stage.items() if name not in ("stage", "seconds")}
        trace.stages.append(Stage(stage["stage"], stage["seconds"], counts))


def _span(given: Any) -> Span:
    start, end = given
    return Span(start, end)


def _span_or_none(given: Any) -> Span | None:
    return None if given is None else _span(given)

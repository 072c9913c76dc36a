"""`Calls`: each call of a client as a flow, from arguments to records. Arguments are checked as `Index` checks them,
before anything is sent."""

from __future__ import annotations

import json
import re
import time
import uuid
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote

from plait.checks import as_list, check_count, check_flag, check_type, shown
from plait.client import wire
from plait.client.answers import answer_error, job_error, parse
from plait.client.flow import Flow, Request, Response, Wait, exchange
from plait.deadline import Deadline, Timeout, check_timeout
from plait.embeddings import Embeddings
from plait.errors import ConfigError, DocumentError, FilterError, InputError, QueryError, UnknownFieldWarning
from plait.records import Document, Explanation, Hit
from plait.searcher import SearchKeywords, SearchRequest

if TYPE_CHECKING:
    from plait.ingest import AddProgress, AddReport
    from plait.storage.fields import Facets

T = TypeVar("T")

INDEX_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
WRITE_SECONDS = 600.0  # to wait for a write that the server does not turn into a job
GRACE = 2.0  # seconds: the server itself ends a search that takes too long, and says where
FIRST_POLL, MAX_POLL = 0.01, 2.0  # seconds between two looks at a job
MAX_PAGE = 1000  # documents of one page of a scroll
MAX_BATCH = 256  # queries or ids of one request


class Scroll:
    """How far an iteration has come."""

    def __init__(self, batch_size: int, filter: str | None, timeout: Timeout) -> None:
        check_count("batch_size", batch_size)
        check_timeout(timeout)
        _check_filter(filter)
        self.batch_size, self.filter, self.timeout = batch_size, filter, timeout
        self.cursor: str | None = None
        self.is_over = False


@dataclass(frozen=True, slots=True)
class Calls:
    """The calls on one index of a server."""

    index: str
    seconds: float  # to wait for the answer of a call without `timeout`
    retries: int

    def __post_init__(self) -> None:
        check_type("index", self.index, str, "the name of an index of the server", ConfigError)
        if INDEX_NAME.fullmatch(self.index) is None:
            raise ConfigError(
                f"index is {shown(self.index)}; names of indexes have letters a to z, digits, - and _, such as 'docs'"
            )

    # -- searching

    def search(self, query: str, k: int, keywords: SearchKeywords) -> Flow[list[Hit]]:
        request = SearchRequest(k=k, **keywords)
        check_type("a query", query, str, "text", QueryError)
        answer = yield from self._search("search", {"query": query, "text": True}, request)
        return answer("a search", lambda given: [wire.hit(one) for one in given["hits"]])

    def search_many(self, queries: Sequence[str], k: int, keywords: SearchKeywords) -> Flow[list[list[Hit]]]:
        if isinstance(queries, str):
            raise QueryError("search_many takes a sequence of queries; use search for one")
        queries = as_list("queries", queries, "texts", QueryError)
        request = SearchRequest(k=k, **keywords)
        if isinstance(request.timeout, int | float):
            request = replace(request, timeout=Deadline(request.timeout))  # of all requests together
        hits: list[list[Hit]] = []
        for start in range(0, len(queries), MAX_BATCH):
            body = {"queries": queries[start : start + MAX_BATCH], "text": True}
            answer = yield from self._search("search", body, request)
            hits += answer("a search", _lists_of_hits)
        return hits

    def similar(
        self, id: str | None, k: int, text: str | None, embeddings: Embeddings | None, keywords: SearchKeywords
    ) -> Flow[list[Hit]]:
        if sum(given is not None for given in (id, text, embeddings)) != 1:
            raise ConfigError("similar takes an id, a text or embeddings: one of the three")
        request = SearchRequest(k=k, **keywords)
        body: dict[str, Any] = {"include_text": True}
        if embeddings is not None:
            due = "plait.Embeddings, such as Embeddings(dense=array)"
            check_type("embeddings", embeddings, Embeddings, due, InputError)
            if len(embeddings) != 1:
                raise QueryError(f"the embeddings have {len(embeddings)} items; give those of one document")
            (body["embeddings"],) = wire.embedding_fields(embeddings)
        else:
            body |= {"id": id} if id is not None else {"text": text}
        answer = yield from self._search("similar", body, request)
        return answer("similar documents", lambda given: [wire.hit(one) for one in given["hits"]])

    def explain(self, query: str, hit: Hit | str, keywords: SearchKeywords) -> Flow[Explanation]:
        request = SearchRequest(k=None, **keywords)
        check_type("a query", query, str, "text", QueryError)
        check_type("hit", hit, (Hit, str), "a hit, or the id of a document", QueryError)
        body = {"query": query, "id": hit.id if isinstance(hit, Hit) else hit}
        answer = yield from self._search("explain", body, request)
        return answer("an explanation", lambda given: wire.explanation(given["explanation"]))

    def facets(self, field: str, query: str | None, k: int, keywords: SearchKeywords) -> Flow[Facets]:
        check_count("k", k)
        request = SearchRequest(**keywords)
        check_type("field", field, str, "the name of a field", ConfigError)
        body = {"field": field} if query is None else {"field": field, "query": query}
        answer = yield from self._search("facets", {**body, "k": k}, request)
        return answer("facets", wire.facets)

    # -- reading

    def get(self, ids: Sequence[str], timeout: Timeout) -> Flow[list[Document | None]]:
        ids = as_list("the ids to get", ids, "texts", ConfigError)
        deadline = _deadline(timeout)
        known: dict[str, Document] = {}
        for start in range(0, len(ids), MAX_BATCH):
            body = {"ids": ids[start : start + MAX_BATCH]}
            answer = yield from self._read("POST", "documents/get", body, deadline)
            documents = answer("documents", lambda given: [wire.document(one) for one in given["documents"] if one])
            known |= {document.id: document for document in documents}
        return [known.get(id) for id in ids]

    def count(self, filter: str | None, timeout: Timeout) -> Flow[int]:
        _check_filter(filter)
        answer = yield from self._read("POST", "count", _without_none({"filter": filter}), _deadline(timeout))
        return answer("a count", lambda given: _integer(given["count"]))

    def batch(self, scroll: Scroll) -> Flow[list[Document]]:
        """The next documents of a scroll; none at its end."""
        deadline, batch = _deadline(scroll.timeout), list[Document]()
        while len(batch) < scroll.batch_size and not scroll.is_over:
            limit = min(scroll.batch_size - len(batch), MAX_PAGE)
            query = _without_none({"limit": str(limit), "cursor": scroll.cursor, "filter": scroll.filter})
            answer = yield from self._read("GET", "documents", None, deadline, query)
            batch += answer("documents", lambda given: [wire.document(one) for one in given["documents"]])
            scroll.cursor = answer("documents", lambda given: _text_or_none(given.get("cursor")))
            scroll.is_over = scroll.cursor is None
        return batch

    def info(self) -> Flow[dict[str, Any]]:
        answer = yield from self._read("GET", "", None, None)
        return answer("an index", dict)

    # -- writing

    def add(
        self,
        documents: Iterable[Document | Mapping[str, Any]],
        on_progress: Callable[[AddProgress], None] | None,
        **server_decides: Any,
    ) -> Flow[AddReport]:
        if isinstance(documents, Mapping | str | bytes) or not isinstance(documents, Iterable):
            raise ConfigError(
                f"add takes a sequence of documents; put a single document in a list (got {shown(documents)})"
            )
        for name in server_decides:
            raise ConfigError(f"add over HTTP has no option {name!r}: the server decides it; leave it out")
        from plait.client.lines import Lines

        lines = Lines(documents)
        headers = {"content-type": "application/x-ndjson", "prefer": "respond-async"}
        try:
            result = yield from self._write("POST", "documents", lines, headers, on_progress)
        finally:
            lines.close()
        return parse("the report of an add", result, wire.add_report)

    def delete(self, ids: Sequence[str] | None, filter: str | None, timeout: Timeout) -> Flow[int]:
        if ids is not None:
            ids = as_list("the ids to delete", ids, "texts", ConfigError)
        if (ids is None) == (filter is None):
            raise ConfigError("delete takes ids or a filter: one of the two")
        _check_filter(filter)
        check_timeout(timeout)
        if ids is not None and not ids:
            return 0
        body = _encoded(_without_none({"ids": ids, "filter": filter}))
        result = yield from self._write("POST", "documents/delete", body, _JSON_TYPE)
        return parse("the result of a delete", result, lambda given: _integer(given["deleted"]))

    def update_metadata(self, changes: Mapping[str, Mapping[str, Any]], replace: bool) -> Flow[int]:
        check_type("changes", changes, Mapping, "a mapping of ids to metadata", ConfigError)
        check_flag("replace", replace)
        for id, metadata in changes.items():
            check_type(f"the metadata of {shown(id)}", metadata, Mapping, "a mapping", DocumentError)
        if not changes:
            return 0
        body = _encoded({"changes": {id: dict(metadata) for id, metadata in changes.items()}, "replace": replace})
        result = yield from self._write("PATCH", "documents", body, _JSON_TYPE)
        return parse("the result of a change", result, lambda given: _integer(given["changed"]))

    # -- requests

    def _search(self, verb: str, body: dict[str, Any], request: SearchRequest) -> Flow[_Answer]:
        deadline = _deadline(request.timeout)
        answer = yield from self._read("POST", verb, {**wire.search_fields(request), **body}, deadline)
        if request.trace is not None and answer.content.get("timings"):
            trace = request.trace
            answer("timings", lambda given: wire.add_stages(trace, given["timings"]))
        return answer

    def _read(
        self,
        method: str,
        path: str,
        body: dict[str, Any] | None,
        deadline: Deadline | None,
        query: Mapping[str, str] | None = None,
    ) -> Flow[_Answer]:
        def request() -> Request:
            if deadline is None or deadline.seconds is None:
                left, timed = self.seconds, {}
            else:
                left, timed = deadline.remaining() + GRACE, {"timeout": max(deadline.remaining(), 1e-3)}
            sent = None if body is None else _encoded({**body, **timed})
            headers = {} if body is None else _JSON_TYPE
            at = {**(query or {}), **({name: str(value) for name, value in timed.items()} if body is None else {})}
            return Request(method=method, path=self._path(path), query=at, headers=headers, body=sent, seconds=left)

        response = yield from exchange(request, retries=self.retries, deadline=deadline)
        return _Answer.of(response)

    def _write(
        self,
        method: str,
        path: str,
        body: Any,
        headers: Mapping[str, str],
        on_progress: Callable[[AddProgress], None] | None = None,
    ) -> Flow[Mapping[str, Any]]:
        """The result of a write, after its commit; of a job, once it is done."""
        start = time.perf_counter()
        request = Request(
            method=method,
            path=self._path(path),
            headers={**headers, "idempotency-key": uuid.uuid4().hex},
            body=body,
            seconds=max(self.seconds, WRITE_SECONDS),
        )
        answer = _Answer.of((yield from exchange(lambda: request, retries=self.retries, deadline=None)))
        if answer.status != 202:
            return answer.content
        job, wait = answer("a job", lambda given: dict(given["job"])), FIRST_POLL
        while job.get("state") not in ("done", "failed"):
            _report_progress(job, on_progress, start)
            yield Wait(wait)
            wait = min(1.5 * wait, MAX_POLL)
            path = f"/v1/jobs/{quote(str(job.get('id')), safe='')}"
            poll = Request(method="GET", path=path, seconds=self.seconds)
            polled = yield from exchange(lambda poll=poll: poll, retries=self.retries, deadline=None)  # type: ignore[misc]
            job = _Answer.of(polled)("a job", dict)
        _report_progress(job, on_progress, start)
        if job["state"] == "failed":
            raise parse("the error of a job", job.get("error"), job_error)
        return parse("a job", job, lambda given: dict(given["result"]))

    def _path(self, path: str) -> str:
        return f"/v1/indexes/{self.index}" + (f"/{path}" if path else "")


_JSON_TYPE = {"content-type": "application/json"}


@dataclass(frozen=True, slots=True)
class _Answer:
    """An answer that is no error. Calling it gives a part of its content, or a ServerError if that is not there."""

    status: int
    content: Mapping[str, Any]

    @classmethod
    def of(cls, response: Response) -> _Answer:
        """Raises the error of the answer, if it is one, and repeats the warnings of the server."""
        if not 200 <= response.status < 300:
            raise answer_error(response)
        content = parse("JSON", response.body, lambda body: dict(json.loads(body)))
        for message in content.get("warnings") or ():
            warnings.warn(str(message), UnknownFieldWarning, stacklevel=2)
        return cls(response.status, content)

    def __call__(self, what: str, read: Callable[[Mapping[str, Any]], T]) -> T:
        return parse(what, self.content, read)


def _lists_of_hits(given: Mapping[str, Any]) -> list[list[Hit]]:
    return [[wire.hit(one) for one in result["hits"]] for result in given["results"]]


def _deadline(timeout: Timeout) -> Deadline | None:
    check_timeout(timeout)
    return timeout if timeout is None or isinstance(timeout, Deadline) else Deadline(timeout)


def _check_filter(filter: str | None) -> None:
    if filter is not None:
        check_type("a filter", filter, str, "text, such as 'year >= 2020'", FilterError)


def _without_none(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def _encoded(body: Mapping[str, Any]) -> bytes:
    try:
        return json.dumps(body, allow_nan=False, default=_plain).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise InputError(
            f"an argument cannot be sent as JSON ({error!s:.200}); use text, numbers, lists and dicts"
        ) from None


def _plain(value: object) -> Any:
    """A scalar of numpy as a number; metadata may be any mapping."""
    if isinstance(value, Mapping):
        return dict(value)
    if hasattr(value, "item") and getattr(value, "ndim", None) == 0:
        return value.item()
    raise TypeError(f"{type(value).__name__}: {shown(value)}")


def _integer(value: object) -> int:
    if type(value) is not int:
        raise TypeError(f"{shown(value)} is not a whole number")
    return value


def _text_or_none(value: object) -> str | None:
    if value is not None and not isinstance(value, str):
        raise TypeError(f"{shown(value)} is not text")
    return value


def _report_progress(job: Mapping[str, Any], on_progress: Callable[[AddProgress], None] | None, start: float) -> None:
    if on_progress is None:
        return
    from plait.ingest import AddProgress

    result = job.get("result") or {}
    n_documents = parse("a job", job, lambda given: _integer(given["documents"]))
    committed = n_documents if job.get("state") == "done" else 0
    on_progress(AddProgress(n_documents, committed, int(result.get("passages", 0)), time.perf_counter() - start))

"""What a client sends, when it sends a request again, and how it reads answers; without a server."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import httpx
import numpy as np
import pytest
from numpy.typing import NDArray

import plait
from plait.client import async_client, client
from plait.client.flow import MAX_WAIT, retry_after

URL = "http://127.0.0.1:1"
HIT = {
    "rank": 1,
    "id": "a",
    "score": 0.5,
    "scores": {"dense": 0.5},
    "title": "",
    "passage": "one two",
    "span": [0, 7],
    "highlights": [],
    "metadata": {"year": 2020},
    "text": "one two three",
}
Handler = Callable[[httpx.Request], httpx.Response]


@pytest.fixture(autouse=True)
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The seconds that clients wait; nobody does."""
    waited: list[float] = []

    async def wait(seconds: float) -> None:
        waited.append(seconds)

    monkeypatch.setattr(client, "_sleep", waited.append)
    monkeypatch.setattr(async_client, "_sleep", wait)
    return waited


def index_of(handler: Handler, **options: Any) -> plait.Client:
    return plait.Client(URL, index="docs", transport=httpx.MockTransport(handler), **options)


class Scorer:
    """A cross-encoder of the caller, which no server has."""

    fingerprint = "scorer"

    def score(
        self, pairs: Sequence[tuple[str, str]], *, on_batch: Callable[[int, int], None] | None = None
    ) -> NDArray[np.float32]:
        assert on_batch is None
        return np.zeros(len(pairs), np.float32)


class Streaming(httpx.BaseTransport):
    """Gives requests to a function before their bodies are read."""

    def __init__(self, handler: Handler) -> None:
        self._handler = handler

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        return self._handler(request)


def chunks_of(request: httpx.Request) -> Iterator[bytes]:
    assert isinstance(request.stream, httpx.SyncByteStream)
    return iter(request.stream)


def answers(*given: httpx.Response | Exception) -> tuple[Handler, list[httpx.Request]]:
    """A server that gives these answers one after the other, and the requests that it got."""
    rest, requests = iter(given), list[httpx.Request]()

    def handler(request: httpx.Request) -> httpx.Response:
        request.read()
        requests.append(request)
        answer = next(rest)
        if isinstance(answer, Exception):
            raise answer
        return answer

    return handler, requests


def error(status: int, code: str, message: str = "no", **headers: str) -> httpx.Response:
    body = {"error": {"code": code, "message": message, "request_id": "1"}}
    return httpx.Response(status, json=body, headers=headers)


def one_hit() -> httpx.Response:
    return httpx.Response(200, json={"hits": [HIT], "request_id": "1"})


def test_a_search_sends_what_differs_from_the_defaults_and_the_key() -> None:
    handler, requests = answers(one_hit())
    with index_of(handler, key="secret") as index:
        (hit,) = index.search(
            "one",
            k=3,
            filter="year > 1",
            mode="dense",
            params=plait.DenseParams(n_probe=np.int64(4)),  # type: ignore[arg-type]  # numpy's numbers work too
        )
    (request,) = requests
    assert request.url == f"{URL}/v1/indexes/docs/search"
    assert request.headers["authorization"] == "Bearer secret"
    body = json.loads(request.content)
    assert body.pop("params")["n_probe"] == 4
    assert body == {"query": "one", "k": 3, "filter": "year > 1", "mode": "dense", "text": True}
    assert hit.passage == "one two"
    assert hit.passages == (plait.Passage("one two", plait.Span(0, 7), 0.5),)


def test_a_prefix_of_the_address_is_kept() -> None:
    handler, requests = answers(one_hit())
    plait.Client("http://host/search/", index="docs", transport=httpx.MockTransport(handler)).search("one")
    assert requests[0].url == "http://host/search/v1/indexes/docs/search"


def test_a_busy_server_is_asked_again_after_the_time_that_it_names(waits: list[float]) -> None:
    handler, requests = answers(error(429, "overloaded", **{"retry-after": "7"}), error(503, "unavailable"), one_hit())
    assert len(index_of(handler).search("one")) == 1
    assert len(requests) == 3
    assert waits[0] == 7
    assert waits[1] < 1


def test_waits_grow_and_retries_end(waits: list[float]) -> None:
    handler, requests = answers(*[error(429, "overloaded", "queues are full")] * 5)
    with pytest.raises(plait.ServerError, match="queues are full"):
        index_of(handler).search("one")
    assert len(requests) == 5
    assert [low <= wait <= 2 * low for wait, low in zip(waits, (0.125, 0.25, 0.5, 1.0), strict=True)] == [True] * 4


def test_a_lost_connection_is_tried_again_and_then_named() -> None:
    handler, requests = answers(httpx.ConnectError("refused"), httpx.ReadError("reset"), one_hit())
    assert len(index_of(handler).search("one")) == 1
    assert len(requests) == 3
    handler, requests = answers(*[httpx.ConnectError("refused")] * 3)
    with pytest.raises(plait.ServerError, match=r"cannot be reached \(refused\); tried 3 times"):
        index_of(handler, retries=2).search("one")


def test_without_retries_the_first_failure_counts(waits: list[float]) -> None:
    handler, _ = answers(httpx.ConnectError("refused"))
    with pytest.raises(plait.ServerError, match="tried once"):
        index_of(handler, retries=0).search("one")
    assert waits == []


def test_an_error_of_the_caller_is_not_tried_again() -> None:
    handler, requests = answers(error(422, "invalid_filter"))
    with pytest.raises(plait.FilterError):
        index_of(handler).search("one", filter="year >")
    assert len(requests) == 1


def test_a_wait_beyond_the_timeout_of_a_call_is_not_begun(waits: list[float]) -> None:
    handler, requests = answers(error(429, "overloaded", **{"retry-after": "20"}), one_hit())
    with pytest.raises(plait.ServerError):
        index_of(handler).search("one", timeout=2)
    assert (len(requests), waits) == (1, [])


@pytest.mark.parametrize(
    ("status", "code", "kind"),
    [
        (422, "invalid_filter", plait.FilterError),
        (422, "invalid_query", plait.QueryError),
        (422, "invalid_document", plait.DocumentError),
        (422, "invalid_input", plait.InputError),
        (422, "invalid_option", plait.ConfigError),
        (422, "something_new", plait.ConfigError),
        (413, "body_too_large", plait.ConfigError),
        (401, "unauthorized", plait.AccessError),
        (403, "missing_scope", plait.AccessError),
        (403, "read_only", plait.ReadOnlyError),
        (404, "unknown_index", plait.NotAnIndexError),
        (404, "something_new", plait.ServerError),
        (500, "model_error", plait.ModelError),
        (500, "internal", plait.ServerError),
        (504, "timeout", plait.SearchTimeoutError),
    ],
)
def test_an_error_of_the_server_is_the_exception_that_an_index_raises(
    status: int, code: str, kind: type[Exception]
) -> None:
    handler, _ = answers(error(status, code, "what was wrong"))
    with pytest.raises(kind, match="what was wrong") as caught:
        index_of(handler).search("one")
    assert type(caught.value) is kind


@pytest.mark.parametrize(
    "answer",
    [
        httpx.Response(200, text="<html>"),
        httpx.Response(200, json=[]),
        httpx.Response(200, json={}),
        httpx.Response(200, json={"hits": [{}]}),
        httpx.Response(200, json={"hits": [{**HIT, "span": 7}]}),
        httpx.Response(200, json={"hits": None}),
        httpx.Response(200, text="[" * 100_000),
        httpx.Response(302, headers={"location": "http://elsewhere/"}),
        httpx.Response(404, text="nginx"),
        httpx.Response(500, json={"error": "text"}),
    ],
    ids=lambda answer: answer.text[:20] or answer.status_code,
)
def test_an_answer_that_is_not_of_plait_is_a_server_error(answer: httpx.Response) -> None:
    handler, requests = answers(answer)
    with pytest.raises(plait.ServerError):
        index_of(handler).search("one")
    assert len(requests) == 1


def test_a_server_that_does_not_answer_in_time_is_a_timeout_of_the_call() -> None:
    handler, _ = answers(httpx.ReadTimeout("slow"), httpx.ReadTimeout("slow"))
    index = index_of(handler)
    with pytest.raises(plait.SearchTimeoutError, match="within 2 s"):
        index.search("one", timeout=2)
    with pytest.raises(plait.ServerError, match="within 60 s"):
        index.search("one")


def test_the_timeout_of_a_call_is_sent_and_shrinks() -> None:
    handler, requests = answers(error(503, "unavailable"), one_hit())
    index_of(handler).search("one", timeout=5)
    first, second = (json.loads(request.content)["timeout"] for request in requests)
    assert 0 < second <= first <= 5


def test_a_deadline_that_was_cancelled_sends_nothing() -> None:
    handler, requests = answers(one_hit())
    deadline = plait.Deadline()
    deadline.cancel()
    with pytest.raises(plait.SearchCancelledError):
        index_of(handler).search("one", timeout=deadline)
    assert requests == []


def test_a_write_keeps_its_idempotency_key_when_it_is_sent_again() -> None:
    done = httpx.Response(200, json={"deleted": 1})
    handler, requests = answers(httpx.ReadError("reset"), error(503, "locked"), done, done)
    index = index_of(handler)
    assert index.delete(["a"]) == 1
    assert index.delete(["a"]) == 1
    keys = [request.headers["idempotency-key"] for request in requests]
    assert len(set(keys[:3])) == 1
    assert keys[3] != keys[2]


def accepted() -> httpx.Response:
    return httpx.Response(202, json={"job": {"id": "7", "state": "queued", "documents": 0}})


def job(state: str, **fields: Any) -> httpx.Response:
    return httpx.Response(200, json={"id": "7", "state": state, "documents": 0, **fields})


def test_a_job_is_polled_until_it_is_done() -> None:
    result = {"added": 2, "updated": 0, "unchanged": 0, "passages": 2, "repeated": [], "something_new": 1}
    handler, requests = answers(
        accepted(), job("running", documents=1), error(503, "unavailable"), job("done", documents=2, result=result)
    )
    seen: list[int] = []
    report = index_of(handler).add(
        ({"id": id, "text": "x"} for id in "ab"), on_progress=lambda progress: seen.append(progress.documents)
    )
    assert (report.added, report.documents) == (2, 2)
    assert [request.url.path for request in requests[1:]] == ["/v1/jobs/7"] * 3
    assert seen == [0, 1, 2]


def test_a_job_that_failed_raises_its_error() -> None:
    handler, _ = answers(
        accepted(), job("failed", error={"code": "invalid_document", "message": "document 'a' is blank"})
    )
    with pytest.raises(plait.DocumentError, match="is blank"):
        index_of(handler).add([{"id": "a", "text": "x"}])


@pytest.mark.parametrize("is_list", [True, False])
def test_documents_are_sent_whole_again_after_a_broken_connection(is_list: bool) -> None:
    documents = [{"id": str(number), "text": "word " * 200, "n": number} for number in range(300)]
    bodies: list[bytes] = []

    def handler(request: httpx.Request) -> httpx.Response:
        chunks = chunks_of(request)
        if not bodies:
            bodies.append(next(chunks))
            raise httpx.WriteError("reset")
        bodies.append(b"".join(chunks))
        return httpx.Response(200, json={"added": 300, "updated": 0, "unchanged": 0})

    index = plait.Client(URL, index="docs", transport=Streaming(handler))
    report = index.add(documents if is_list else iter(documents))
    assert len(bodies[0]) < len(bodies[1]) // 2
    assert report.added == 300
    sent = [json.loads(line) for line in bodies[1].splitlines()]
    assert [(one["id"], one["metadata"]) for one in sent] == [(str(n), {"n": n}) for n in range(300)]


def test_documents_are_sent_as_they_are_read() -> None:
    n_read = 0

    def documents() -> Iterator[dict[str, str]]:
        nonlocal n_read
        for number in range(10_000):
            n_read += 1
            yield {"id": str(number), "text": "word " * 200}

    def handler(request: httpx.Request) -> httpx.Response:
        read_so_far = [n_read for _ in chunks_of(request)]
        assert "content-length" not in request.headers
        return httpx.Response(200, json={"added": n_read, "updated": read_so_far[0]})

    report = plait.Client(URL, index="docs", transport=Streaming(handler)).add(documents())
    assert report.added == 10_000
    assert report.updated < 200


def test_a_bad_document_is_refused_before_the_request_ends() -> None:
    handler, requests = answers(httpx.Response(200, json={"added": 1}))
    with pytest.raises(plait.DocumentError, match="is blank"):
        index_of(handler).add([{"id": "a", "text": "x"}, {"id": "b", "text": " "}])
    assert requests == []


@pytest.mark.parametrize(
    "call",
    [
        lambda index: index.search("one", k=0),
        lambda index: index.search("one", rerank=object()),
        lambda index: index.search("one", mode="anncur", params=plait.AnncurParams(model=Scorer())),
        lambda index: index.add([], commit_every=7),
        lambda index: index.add({"id": "a", "text": "x"}),
        lambda index: index.delete(),
        lambda index: index.similar(),
        lambda index: index.iterate(0),
        lambda index: index.get("a"),
        lambda index: index.count(timeout=-1),
        lambda index: index.update_metadata([]),
    ],
)
def test_wrong_arguments_are_config_errors_and_send_nothing(call: Callable[[plait.Client], object]) -> None:
    handler, requests = answers(one_hit())
    with pytest.raises(plait.ConfigError):
        call(index_of(handler))
    assert requests == []


def test_warnings_of_the_server_are_warnings_here() -> None:
    handler, _ = answers(httpx.Response(200, json={"hits": [], "warnings": ["no document has the field 'yeer'"]}))
    with pytest.warns(plait.UnknownFieldWarning, match="yeer"):
        assert index_of(handler).search("one", filter="yeer = 1") == []


def test_stages_of_the_server_join_the_trace() -> None:
    stages = {"seconds": 0.5, "stages": [{"stage": "encode", "seconds": 0.5, "queries": 1}]}
    handler, requests = answers(httpx.Response(200, json={"hits": [], "timings": stages}))
    trace = plait.Trace()
    index_of(handler).search("one", trace=trace)
    assert json.loads(requests[0].content)["timings"] is True
    assert [(stage.name, stage.seconds, stage.counts) for stage in trace.stages] == [("encode", 0.5, {"queries": 1})]


def test_many_queries_are_sent_in_several_requests() -> None:
    def handler(request: httpx.Request) -> httpx.Response:
        n_queries = len(json.loads(request.content)["queries"])
        assert n_queries <= 256
        return httpx.Response(200, json={"results": [{"hits": [HIT]}] * n_queries})

    assert len(index_of(handler).search_many(["one"] * 600)) == 600


@pytest.mark.parametrize("url", ["", "host", "ftp://host", "http://", "http://host?x", "http://u:p@host", "http://h:x"])
def test_an_address_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(plait.ConfigError):
        plait.Client(url, index="docs")


@pytest.mark.parametrize("name", ["", "Docs", "../docs", "a/b", "x" * 65, 7])
def test_a_name_that_no_index_has_is_refused(name: str) -> None:
    with pytest.raises(plait.ConfigError):
        plait.Client(URL, index=name)


@pytest.mark.parametrize("key", ["", "two words", "a\nb", "schlüssel"])
def test_a_key_that_no_header_can_have_is_refused_and_not_shown(key: str) -> None:
    with pytest.raises(plait.ConfigError) as caught:
        plait.Client(URL, index="docs", key=key)
    assert not key or key not in str(caught.value)


def test_the_key_is_not_in_a_repr() -> None:
    index = plait.Client(URL, index="docs", key="secret")
    assert "secret" not in repr(index)
    assert "docs" in repr(index)


def test_a_closed_client_says_so() -> None:
    index = plait.Client(URL, index="docs")
    index.close()
    index.close()
    with pytest.raises(plait.StoreError, match="closed"):
        index.search("one")


def test_the_environment_gives_neither_proxies_nor_passwords(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:9")
    index = plait.Client(URL, index="docs")
    assert index._http is not None
    assert not index._http._client._mounts


def test_an_async_client_retries_and_polls_as_the_other_does(waits: list[float]) -> None:
    handler, requests = answers(
        error(429, "overloaded", **{"retry-after": "7"}), one_hit(), accepted(), job("done", result={"added": 1})
    )

    async def run() -> tuple[list[plait.Hit], plait.AddReport]:
        async with plait.AsyncClient(URL, index="docs", transport=httpx.MockTransport(async_handler)) as index:
            return await index.search("one"), await index.add(iter([{"id": "a", "text": "x"}]))

    async def async_handler(request: httpx.Request) -> httpx.Response:
        await request.aread()
        return handler(request)

    hits, report = asyncio.run(run())
    assert ([hit.id for hit in hits], report.added) == (["a"], 1)
    assert waits[0] == 7
    assert requests[2].content.startswith(b'{"id": "a"')


def test_both_clients_have_the_same_calls_as_an_index() -> None:
    def names(kind: type) -> set[str]:
        return {name for name in vars(kind) if not name.startswith("_")}

    assert names(plait.AsyncClient) - names(plait.AsyncIndex) == {"info"}
    assert names(plait.AsyncIndex) - names(plait.AsyncClient) == {"add_embeddings", "search_embeddings"}
    assert names(plait.Client) - names(plait.AsyncClient) == {"spec"}
    assert names(plait.Client) <= names(plait.Index)


@pytest.mark.parametrize(
    ("header", "seconds"),
    [("3", 3.0), ("0.5", 0.5), ("-1", 0.0), ("1e9", MAX_WAIT), ("nan", 0.0), ("inf", 0.0), ("", 0.0), ("soon", 0.0)],
)
def test_retry_after_is_a_number_of_seconds_within_bounds(header: str, seconds: float) -> None:
    assert retry_after(header) == seconds


def test_retry_after_may_be_a_date() -> None:
    assert retry_after("Fri, 31 Dec 2100 23:59:59 GMT") == MAX_WAIT
    assert retry_after("Fri, 31 Dec 1999 23:59:59 GMT") == 0.0

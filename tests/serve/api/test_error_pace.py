"""A client that sends one wrong request after the other waits for its answers; nobody else does."""

from __future__ import annotations

import asyncio
import gc
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from plait.serve import error_pace
from plait.serve.auth import Principal
from plait.serve.error_pace import BURST_SECONDS, MAX_CLIENTS, MAX_DELAY, WRONG, ErrorPace
from plait.serve.limits import Limits
from serve.api.servers import bearer, config_of, serving, with_keys

PER_SECOND = 10
SEARCH = "/v1/indexes/fabrics/search"


class Clock:
    """A clock that stands, and notes how long the middleware would have waited."""

    def __init__(self) -> None:
        self.now = 100.0
        self.waited: list[float] = []

    def __call__(self) -> float:
        return self.now

    async def wait(self, receive: Receive, seconds: float) -> bool:
        del receive
        self.waited.append(seconds)
        return False


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(error_pace, "_is_gone", made.wait)
    return made


async def answer_status(scope: Scope, receive: Receive, send: Send) -> None:
    del receive
    await send({"type": "http.response.start", "status": scope["status"], "headers": []})
    await send({"type": "http.response.body", "body": b""})


def scope_of(status: int, *, key: str = "", address: str = "10.0.0.1", **fields: Any) -> Scope:
    scope: dict[str, Any] = {"type": "http", "status": status, "state": {}, "client": (address, 1), **fields}
    if key:
        scope["state"]["principal"] = Principal(id=key, scopes=frozenset())
    return scope


async def run(pace: ASGIApp, scope: Scope, receive: Receive | None = None) -> list[str]:
    """The types of the messages that the client gets."""
    sent: list[str] = []

    async def send(message: Message) -> None:
        sent.append(message["type"])

    await pace(scope, receive or client_that(wait_for_ever), send)
    return sent


def client_that(act: Callable[[], Any]) -> Receive:
    async def receive() -> Message:
        message: Message = await act()
        return message

    return receive


async def wait_for_ever() -> Message:
    await asyncio.Event().wait()
    raise AssertionError


async def disconnect() -> Message:
    return {"type": "http.disconnect"}


async def send_a_part() -> Message:
    return {"type": "http.request", "body": b"x", "more_body": True}


def delay_of(pace: ErrorPace, clock: Clock, status: int, **options: Any) -> float:
    """The seconds by which an answer is delayed; 0 if it is not."""
    clock.waited = []
    assert asyncio.run(run(pace, scope_of(status, **options))) == ["http.response.start", "http.response.body"]
    return sum(clock.waited)


def late(pace: ErrorPace, clock: Clock, **options: Any) -> None:
    """Makes a client send enough wrong requests to delay its further answers for long."""
    for _ in range(100):
        delay_of(pace, clock, 422, **options)


def test_errors_beyond_a_burst_are_answered_at_the_pace(clock: Clock) -> None:
    pace = ErrorPace(answer_status, PER_SECOND, clock)
    n_burst = int(BURST_SECONDS * PER_SECOND)
    assert [delay_of(pace, clock, 422) for _ in range(n_burst)] == [0.0] * n_burst
    assert [delay_of(pace, clock, 401) for _ in range(3)] == pytest.approx([0.1, 0.2, 0.3])
    assert max(delay_of(pace, clock, 400) for _ in range(100)) == pytest.approx(MAX_DELAY)
    clock.now += BURST_SECONDS + MAX_DELAY
    assert delay_of(pace, clock, 400) == 0


def test_other_clients_are_not_delayed(clock: Clock) -> None:
    pace = ErrorPace(answer_status, PER_SECOND, clock)
    late(pace, clock, key="bad", address="10.0.0.2")
    assert delay_of(pace, clock, 422, key="bad", address="10.0.0.3") == pytest.approx(MAX_DELAY)
    assert delay_of(pace, clock, 422, key="good", address="10.0.0.2") == 0
    assert delay_of(pace, clock, 401, address="10.0.0.2") == 0  # an address without a key is a client of its own


def test_only_requests_that_are_wrong_in_themselves_are_delayed(clock: Clock) -> None:
    pace = ErrorPace(answer_status, PER_SECOND, clock)
    late(pace, clock)
    for status in (200, 202, 304, 404, 408, 409, 410, 412, 429, 500, 503, 504):
        assert delay_of(pace, clock, status, route="a route") == 0, status
    for status in (*WRONG, 404):  # 404 of a path that is no route
        assert delay_of(pace, clock, status) == pytest.approx(MAX_DELAY), status


def test_the_wait_ends_when_the_client_goes() -> None:
    async def seconds_of(receive: Receive) -> tuple[float, list[str]]:
        pace = ErrorPace(answer_status, PER_SECOND)
        for _ in range(int(BURST_SECONDS * PER_SECOND) + 5):
            pace._delay("10.0.0.1")
        began = time.monotonic()
        sent = await run(pace, scope_of(422), receive)
        return time.monotonic() - began, sent

    seconds, sent = asyncio.run(seconds_of(client_that(disconnect)))
    assert (seconds < 0.3, sent) == (True, [])
    for act in (wait_for_ever, send_a_part):  # answered after the delay, and not in a busy loop
        seconds, sent = asyncio.run(seconds_of(client_that(act)))
        assert 0.4 < seconds < MAX_DELAY
        assert sent == ["http.response.start", "http.response.body"]


def test_the_body_is_released_before_the_wait(fabrics: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    n_left: list[int] = []  # bytes that were made for the request

    async def look(receive: Receive, seconds: float) -> bool:
        del receive, seconds
        end = time.monotonic() + 20
        while True:  # a thread that read the body may end later than the request does
            gc.collect()
            n_bytes = tracemalloc.get_traced_memory()[0]
            if n_bytes < 1_000_000 or time.monotonic() > end:
                n_left.append(n_bytes)
                return False
            await asyncio.sleep(0.01)

    async def post(app: Any, key: str) -> None:
        body = [b'{"documents": "' + b"x" * 5_000_000 + b'"}']

        async def receive() -> Message:
            return {"type": "http.request", "body": body.pop(), "more_body": False}

        headers = {**bearer(key), "host": "localhost", "content-type": "application/json"}
        raw = [(name.encode(), value.encode()) for name, value in headers.items()]
        path = "/v1/indexes/fabrics/documents"
        scope: dict[str, Any] = {
            "method": "POST",
            "path": path,
            "raw_path": path.encode(),
            "headers": raw,
            "query_string": b"",
        }
        scope |= {"scheme": "http", "server": ("localhost", 80), "root_path": "", "http_version": "1.1"}
        assert await run(app, scope_of(0, **scope), receive)

    monkeypatch.setattr(error_pace, "_is_gone", look)
    config, keys = with_keys(config_of(fabrics), tmp_path / "keys.json", writer={"scopes": ["write"]})
    monkeypatch.setattr(error_pace, "BURST_SECONDS", 0.0)
    with serving(config) as client:
        assert client.portal is not None
        client.portal.call(post, client.app, keys["writer"])  # so that imports are not counted
        tracemalloc.start()
        try:
            client.portal.call(post, client.app, keys["writer"])
        finally:
            tracemalloc.stop()
    assert len(n_left) == 2
    assert n_left[1] < 1_000_000


def test_the_number_of_clients_that_are_remembered_is_bounded(clock: Clock) -> None:
    pace = ErrorPace(answer_status, PER_SECOND, clock)
    for number in range(MAX_CLIENTS + 10):
        pace._delay(f"client {number}")
    assert len(pace._due) == MAX_CLIENTS
    assert "client 5" not in pace._due


def test_a_server_with_keys_delays_wrong_requests_of_each_key(fabrics: Path, tmp_path: Path, clock: Clock) -> None:
    limits = Limits(max_errors_per_second=1)
    config, keys = with_keys(config_of(fabrics, limits=limits), tmp_path / "keys.json", bad={}, good={})
    with serving(config) as client:

        def delay(method: str, path: str, key: str | None, **request: Any) -> tuple[int, bool]:
            clock.waited = []
            headers = {} if key is None else bearer(keys.get(key, key))
            return client.request(method, path, headers=headers, **request).status_code, bool(clock.waited)

        for key in ("bad", None):
            for _ in range(5):
                delay("POST", SEARCH, key, json={"k": 0})
        wrong = [
            delay("POST", SEARCH, "bad", json={"query": "x", "filter": "year >"}),
            delay("PUT", SEARCH, "bad"),
            delay("DELETE", "/v1/indexes/fabrics", "bad"),
            delay("GET", "/no/route", "bad"),
            delay("GET", "/assets/../../etc/passwd", None),
            delay("GET", "/v1/indexes", "not a key"),
        ]
        assert wrong == [(422, True), (405, True), (403, True), (404, True), (401, True), (401, True)]
        fine = [
            delay("POST", SEARCH, "bad", json={"query": "loom"}),
            delay("GET", "/v1/indexes/fabrics/documents/nothing", "bad"),
            delay("GET", "/v1/indexes/nothing", "bad"),
            delay("GET", "/v1/jobs/nothing", "bad"),
            delay("POST", SEARCH, "good", json={"k": 0}),
        ]
        assert fine == [(200, False), (404, False), (404, False), (404, False), (422, False)]


def test_a_server_without_keys_delays_nothing(fabrics: Path, clock: Clock) -> None:
    with serving(config_of(fabrics, limits=Limits(max_errors_per_second=1))) as client:
        assert [client.post(SEARCH, json={"k": 0}).status_code for _ in range(10)] == [422] * 10
    assert clock.waited == []

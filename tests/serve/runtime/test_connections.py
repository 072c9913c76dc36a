"""Clients that send or read slowly, or send what is not HTTP, over real sockets."""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import uvicorn

from plait.serve.limits import Limits
from plait.serve.runtime.connections import FairServer, timed_connections
from serve.api.servers import config_of, with_keys
from serve.listening import listening
from serve.processes import wait_until

SEARCH = "/v1/indexes/fabrics/search"
DOCUMENTS = "/v1/indexes/fabrics/documents"
COUNT = "/v1/indexes/fabrics/count"
SHORT = Limits(header_timeout=2.0, body_timeout=0.5)


@pytest.fixture
def server(fabrics: Path) -> Iterator[tuple[str, dict[str, str]]]:
    config, keys = with_keys(config_of(fabrics), fabrics.parent / "keys.json", writer={"scopes": ["write"]})
    with listening(replace(config, limits=SHORT)) as url:
        yield url, keys


@contextmanager
def connected(url: str, *, receive_bytes: int | None = None) -> Iterator[socket.socket]:
    host, _, port = url.removeprefix("http://").partition(":")
    client = socket.socket()
    if receive_bytes is not None:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
    client.settimeout(60)
    client.connect((host, int(port)))
    with client:
        yield client


def drip(client: socket.socket, drop: bytes, seconds: float = 30.0) -> bytes:
    """Sends a drop again and again, until the server ends the connection; gives what it sent."""
    answer, end = b"", time.monotonic() + seconds
    client.settimeout(0.05)
    while time.monotonic() < end:
        try:
            client.sendall(drop)
            part = client.recv(65536)
        except TimeoutError:
            continue
        except OSError:
            return answer
        if not part:
            return answer
        answer += part
    raise AssertionError("the connection stays open")


def head(path: str, key: str | None, kind: str = "application/json") -> bytes:
    authorization = f"authorization: Bearer {key}\r\n" if key else ""
    return (
        f"POST {path} HTTP/1.1\r\nhost: localhost\r\n{authorization}content-type: {kind}\r\n"
        f"transfer-encoding: chunked\r\n\r\n"
    ).encode()


def received(client: socket.socket, end: bytes = b"}") -> bytes:
    """What the server sends, up to the end of an answer, or of the connection."""
    answer = b""
    while not answer.endswith(end):
        try:
            part = client.recv(65536)
        except ConnectionResetError:
            break
        if not part:
            break
        answer += part
    return answer


def test_headers_by_drops_end_the_connection(server: tuple[str, dict[str, str]]) -> None:
    with connected(server[0]) as client:
        client.sendall(b"GET /health HTTP/1.1\r\nhost: localhost\r\n")
        assert drip(client, b"x: y\r\n") == b""
    with connected(server[0]) as client:  # which sends nothing
        assert client.recv(100) == b""


def test_the_second_request_of_a_connection_has_the_same_time(server: tuple[str, dict[str, str]]) -> None:
    with connected(server[0]) as client:
        client.sendall(b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n")
        assert received(client).startswith(b"HTTP/1.1 200 ")
        client.sendall(b"GET /health HTTP/1.1\r\n")
        drip(client, b"x: y\r\n")


@pytest.mark.parametrize(("path", "kind"), [(SEARCH, "application/json"), (DOCUMENTS, "application/x-ndjson")])
def test_a_body_by_drops_is_408(server: tuple[str, dict[str, str]], path: str, kind: str) -> None:
    url, keys = server
    with connected(url) as client:
        client.sendall(head(path, keys["writer"], kind))
        assert drip(client, b"1\r\n \r\n").startswith(b"HTTP/1.1 408 ")


def test_a_body_that_goes_on_after_its_answer_ends_the_connection(server: tuple[str, dict[str, str]]) -> None:
    with connected(server[0]) as client:
        client.sendall(head(SEARCH, None))
        assert drip(client, b"1\r\n \r\n").startswith(b"HTTP/1.1 401 ")


def test_a_connection_is_used_again_after_an_unread_body(server: tuple[str, dict[str, str]]) -> None:
    with connected(server[0]) as client:
        client.sendall(head(SEARCH, None))
        assert received(client, b"}}").startswith(b"HTTP/1.1 401 ")
        client.sendall(b"1\r\n \r\n0\r\n\r\nGET /health HTTP/1.1\r\nhost: localhost\r\n\r\n")
        assert received(client).startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize("is_late", [True, False])
def test_bytes_that_are_not_http_after_a_request_raise_nothing(
    server: tuple[str, dict[str, str]], is_late: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR)
    with connected(server[0]) as client:
        client.sendall(head(SEARCH, None) + (b"" if is_late else b"not hexadecimal\r\n"))
        first = received(client, b"}}" if is_late else b"received.")
        assert first.startswith(b"HTTP/1.1 401 " if is_late else b"HTTP/1.1 400 ")
        if is_late:
            client.sendall(b"not hexadecimal\r\n")
        assert received(client, b"never") == b""
    assert [record.getMessage() for record in caplog.records if record.name != "plait.serve"] == []


def test_a_length_and_chunks_are_refused(server: tuple[str, dict[str, str]]) -> None:
    url, keys = server
    with connected(url) as client:
        both = head(SEARCH, keys["writer"]).replace(b"\r\n\r\n", b"\r\ncontent-length: 4\r\n\r\n")
        client.sendall(both + b"0\r\n\r\nGET /health HTTP/1.1\r\nhost: localhost\r\n\r\n")
        answer = received(client, b"never")
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert answer.count(b"HTTP/1.1") == 1  # what came after it is not a request


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"GET /health HTTP/1.1\r\nhost: localhost\r\nx: " + b"y" * 70_000 + b"\r\n\r\n",
        b"GET /health HTTP/1.1\r\nhost: localhost\r\nx: " + b"y" * 200_000,  # without an end
        b"GET /health HTTP/1.1\r\nhost: localhost\r\n" + b"x: y\r\n" * 12_000 + b"\r\n",
        b"GET /" + b"y" * 70_000 + b" HTTP/1.1\r\nhost: localhost\r\n\r\n",
        b"GET http://localhost/health HTTP/1.1\r\nhost: localhost\r\n\r\n",
        b"CONNECT localhost:80 HTTP/1.1\r\nhost: localhost\r\n\r\n",
        b"GET /health HTTP/1.1\r\nhost : localhost\r\n\r\n",
        b"GET /health HTTP/1.1\r\nhost: localhost\r\n folded\r\n\r\n",
        b"GET /health HTTP/1.1\r\nhost: localhost\r\nx: a\0b\r\n\r\n",
        b"POST /health HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked, identity\r\n\r\n0\r\n\r\n",
        b"POST /health HTTP/1.1\r\nhost: localhost\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nx",
    ],
    ids=lambda given: given[-30:].decode("latin-1"),
)
def test_a_head_that_is_too_long_or_not_http_is_400(server: tuple[str, dict[str, str]], request_bytes: bytes) -> None:
    with connected(server[0]) as client:
        with suppress(ConnectionError):  # it may be cut off while it sends
            client.sendall(request_bytes)
        answer = received(client, b"never")
    assert answer == b"" if len(request_bytes) > 100_000 and not answer else answer.startswith(b"HTTP/1.1 400 ")


def test_headers_after_a_chunked_body_do_not_count(server: tuple[str, dict[str, str]]) -> None:
    url, keys = server
    body = b"2\r\n{}\r\n0\r\nauthorization: Bearer " + keys["writer"].encode() + b"\r\n\r\n"
    with connected(url) as client:
        client.sendall(head(COUNT, None) + body)
        assert received(client, b"}}").startswith(b"HTTP/1.1 401 ")
    with connected(url) as client:
        client.sendall(head(COUNT, keys["writer"]) + body)
        assert received(client).startswith(b"HTTP/1.1 200 ")


def test_a_request_for_another_protocol_is_answered_and_is_the_last(server: tuple[str, dict[str, str]]) -> None:
    with connected(server[0]) as client:
        client.sendall(b"GET /health HTTP/1.1\r\nhost: localhost\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n")
        answer = received(client, b"never")
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert b"connection: close" in answer.lower()


def test_requests_that_are_sent_together_are_answered_in_order(server: tuple[str, dict[str, str]]) -> None:
    one = b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n"
    with connected(server[0]) as client:
        client.sendall(one * 20 + b"GET /health HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
        assert received(client, b"never").count(b"HTTP/1.1 200 ") == 21


def test_workers_that_share_a_socket_share_the_connections() -> None:
    """Two event loops, as of two workers, and many connections at once."""
    shared = socket.create_server(("127.0.0.1", 0), backlog=200)
    shared.setblocking(False)
    address = shared.getsockname()
    options = [
        uvicorn.Config(_large, log_level="error", http=timed_connections(Limits()), lifespan="off") for _ in range(2)
    ]
    servers = [FairServer(one) for one in options]
    threads = [
        threading.Thread(target=lambda one=one: asyncio.run(one.serve(sockets=[shared.dup()]))) for one in servers
    ]
    for thread in threads:
        thread.start()
    clients: list[socket.socket] = []
    try:
        wait_until(lambda: all(one.started for one in servers), "the servers did not start")
        clients += [socket.create_connection(address) for _ in range(120)]
        counts = [one.server_state.connections for one in servers]
        wait_until(lambda: sum(map(len, counts)) == 120, "a connection was not accepted")
        assert min(map(len, counts)) >= 20
    finally:
        for client in clients:
            client.close()
        for one in servers:
            one.should_exit = True
        for thread in threads:
            thread.join()
        shared.close()


# -- answers


async def _large(scope: Any, receive: Any, send: Any) -> None:
    del receive
    if scope["type"] == "http":
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": bytes(30_000_000)})


@contextmanager
def large_answers(limits: Limits) -> Iterator[tuple[str, uvicorn.Server]]:
    """A server whose only answer has 30 MB."""
    options = uvicorn.Config(_large, port=0, log_level="error", http=timed_connections(limits), lifespan="off")
    server = uvicorn.Server(options)
    thread = threading.Thread(target=lambda: asyncio.run(server.serve()))
    thread.start()
    try:
        wait_until(lambda: server.started, "the server did not start")
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}", server
    finally:
        server.should_exit = True
        thread.join()


def test_an_answer_that_nobody_reads_ends_the_connection() -> None:
    with large_answers(SHORT) as (url, server), connected(url, receive_bytes=4096) as client:
        client.sendall(b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n")
        assert client.recv(100)
        assert server.server_state.connections
        wait_until(lambda: not server.server_state.connections, "the connection stays open")


def test_an_answer_that_is_read_in_pieces_comes_as_a_whole() -> None:
    with large_answers(SHORT) as (url, _), connected(url) as client:
        client.sendall(b"GET / HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
        n_bytes = 0
        while part := client.recv(1 << 20):
            n_bytes += len(part)
            time.sleep(0.02)
    assert n_bytes > 30_000_000

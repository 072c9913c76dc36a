"""The load generator counts every request, also those that a stopped server makes late, and its arithmetic is right."""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from benchmarks.serve.build import shortened
from benchmarks.serve.library import LibraryRate
from benchmarks.serve.load import Load, bodies_for, closed_loop, open_loop, read_answer, retry_after
from benchmarks.serve.overload import tables as overload_tables
from benchmarks.serve.run import report, without_client
from benchmarks.serve.summary import Answers, merged, percentile, summarize, table

STALL = 0.6  # seconds


class TinyServer:
    """Answers every request with a status, and stands still at one request if asked to."""

    def __init__(self, *, statuses: tuple[int, ...] = (200,), stall_at: int | None = None, headers: str = "") -> None:
        self.statuses, self.stall_at, self.headers = statuses, stall_at, headers
        self.n_requests = 0
        self.bodies: list[bytes] = []

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                length = head.lower().partition(b"content-length:")[2].split(b"\r\n")[0]
                self.bodies.append(await reader.readexactly(int(length or b"0")))
                self.n_requests += 1
                if self.n_requests == self.stall_at:
                    time.sleep(STALL)  # the whole server
                status = self.statuses[self.n_requests % len(self.statuses)]
                writer.write(f"HTTP/1.1 {status} X\r\n{self.headers}content-length: 2\r\n\r\n{{}}".encode())
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    @contextmanager
    def listening(self) -> Iterator[str]:
        loop = asyncio.new_event_loop()
        server = loop.run_until_complete(asyncio.start_server(self.handle, "127.0.0.1", 0))
        thread = threading.Thread(target=loop.run_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        finally:
            loop.call_soon_threadsafe(loop.stop)
            thread.join()
            server.close()
            for task in asyncio.all_tasks(loop):
                task.cancel()
            loop.run_until_complete(asyncio.sleep(0))
            loop.close()


@pytest.mark.parametrize("max_connections", [2, 1_000])
def test_an_open_loop_counts_the_time_of_requests_that_a_standstill_delays(max_connections: int) -> None:
    """With two connections most of them cannot even be sent while the server stands still."""
    server = TinyServer(stall_at=20)
    with server.listening() as url:
        load = Load(url, "/", seconds=1.0, rate=100, max_connections=max_connections)
        answers = asyncio.run(open_loop(load))
    assert len(answers.statuses) == server.n_requests == 100
    # 30 requests are due in the first half of the standstill.
    assert sum(taken > STALL / 2 for taken in answers.seconds) >= 25
    assert max(answers.seconds) > 0.9 * STALL
    assert answers.n_unsent == answers.n_broken == 0


def test_an_open_loop_sends_at_its_rate_however_slow_the_answers_are() -> None:
    server = TinyServer(stall_at=1)
    with server.listening() as url:
        answers = asyncio.run(open_loop(Load(url, "/", seconds=0.3, rate=200)))
    assert len(answers.statuses) == 60
    assert sum(taken > STALL / 2 - 0.05 for taken in answers.seconds) == 60


def test_a_closed_loop_sends_the_bodies_in_order_and_counts_every_status() -> None:
    server = TinyServer(statuses=(200, 429))
    bodies = bodies_for(["a", "b", "c"], k=3)
    with server.listening() as url:
        answers = asyncio.run(closed_loop(Load(url, "/search", bodies, seconds=0.3, clients=1, first=1)))
    assert [body.decode() for body in server.bodies[:4]] == [bodies[1], bodies[2], bodies[0], bodies[1]]
    assert 0 <= server.n_requests - len(answers.statuses) <= 1  # the last one was not answered in time
    summary = summarize(answers)
    assert summary.n_accepted + summary.n_refused == len(answers.statuses)
    assert abs(summary.n_accepted - summary.n_refused) <= 1
    assert summary.n_failed == 0
    assert answers.client_cpu > 0


@pytest.mark.parametrize(
    ("received", "expected"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc", (200, 41, False)),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nab", None),
        (b"HTTP/1.1 429 X\r\nconnection: close\r\ncontent-length: 0\r\n\r\nrest", (429, 56, True)),
        (b"HTTP/1.1 204 No Content\r\n\r\n", (204, 27, False)),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n", (200, 60, False)),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n", None),
        (b"HTTP/1.1 200 OK\r\n", None),
    ],
)
def test_answers_are_read_to_their_end_and_no_further(received: bytes, expected: tuple[int, int, bool] | None) -> None:
    assert read_answer(received) == expected


def test_a_closed_client_waits_as_long_as_a_refusal_asks_for() -> None:
    assert retry_after(b"HTTP/1.1 429 X\r\nRetry-After: 3\r\ncontent-length: 0\r\n\r\nretry-after: 9") == 3.0
    assert retry_after(b"HTTP/1.1 429 X\r\n\r\n") == 0.0
    server = TinyServer(statuses=(429,), headers="retry-after: 60\r\n")
    with server.listening() as url:
        answers = asyncio.run(closed_loop(Load(url, "/", seconds=0.3, clients=4)))
    assert answers.statuses == [429] * 4
    assert server.n_requests == 4


def test_percentiles_are_values_that_occurred() -> None:
    values = [float(value) for value in range(100, 0, -1)]
    assert [percentile(values, share) for share in (0.5, 0.95, 0.99, 1.0)] == [50, 95, 99, 100]
    assert percentile([7.0], 0.5) == 7.0
    assert math.isnan(percentile([], 0.5))
    with pytest.raises(ValueError, match="share"):
        percentile(values, 0)


def test_refused_requests_count_neither_as_served_nor_as_failed() -> None:
    first = Answers([200, 429, 500], [0.1, 9.0, 9.0], wall=2.0, client_cpu=0.5, n_broken=1)
    both = summarize(merged([first, Answers([200, 200], [0.2, 0.3], wall=2.0, client_cpu=0.5)]))
    assert (both.n_accepted, both.n_refused, both.n_failed) == (3, 1, 2)
    assert both.rate == 0.75
    assert (both.p50, both.p99) == (200, 300)
    assert both.client_share == 0.25


def test_the_ratio_is_to_the_better_way_of_the_library() -> None:
    answers = Answers([200] * 90, [0.1] * 90, wall=1.0, client_cpu=0.1)
    rates = {"threads": [LibraryRate(90, 20), LibraryRate(110, 22)], "many": [LibraryRate(50, 9)]}
    made = report("dense", answers, rates, server_cpu=1.8)
    assert (made["library"], made["library_way"], made["library_cpu_ms"]) == (100, "threads", 21)
    assert made["ratio"] == 0.9
    assert made["ratio_without_client"] > made["ratio"]
    assert made["server_cpu_ms"] == 20
    assert without_client(0.5, 2) == 0.75


def test_tables_say_whether_the_bound_holds() -> None:
    load = {"rate": 50.0, "p50": 500.0, "p95": 1500.0, "p99": 1900.0, "n_refused": 3, "n_failed": 0}
    one = {"mode": "hybrid", "sustained": {"rate": 50.0}, "offered": 100.0, "overload": load, "n_unanswered": 0}
    one |= {"memory_before": 10**8, "memory_half": 10**8, "memory_last": 10**8}
    one |= {"writes": 4, "write_p95": 0.5, "writes_retried": 0, "write_failures": []}
    assert "p95 within 2 s: yes" in overload_tables([one], 2.0)
    assert "p95 within 1 s: not in hybrid" in overload_tables([one], 1.0)
    assert table(["a", "b"], [[1234, 0.5], ["x", float("nan")]]).splitlines()[2:] == ["| 1,234 | 0.50 |", "| x | - |"]


def test_passages_end_with_a_whole_word() -> None:
    assert shortened("weft and warp", 8) == "weft and"
    assert shortened("weft and warp", 10) == "weft and"
    assert shortened("weftandwarp", 4) == "weft"
    assert shortened("weft", 4) == "weft"

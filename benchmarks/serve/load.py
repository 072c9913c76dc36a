"""A load generator: many HTTP/1.1 connections from one process of its own, without an HTTP library.

    python -m benchmarks.serve.load http://127.0.0.1:8765/health --clients 64 --seconds 5

A closed loop has a fixed number of clients, and each sends its next request when it has the answer to the last one. An
open loop sends requests when they are due, whatever the server does. `run_load` starts the generator as a process, so
that it shares no interpreter lock with what measures; without a body, this command shows what the generator itself can
do against a cheap address.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from benchmarks.serve.summary import Answers, summarize

DRAIN_SECONDS = 10.0  # that an open loop waits for the last answers


@dataclass(frozen=True, slots=True)
class Load:
    """Requests to send, again and again in this order, to one server."""

    url: str  # scheme, host and port
    path: str
    bodies: Sequence[str] = ()  # JSON; none: GET
    seconds: float = 60.0
    clients: int = 64  # of a closed loop
    rate: float | None = None  # requests a second of an open loop; None: a closed loop
    max_connections: int = 1_000  # of an open loop
    first: int = 0  # the body to begin with
    headers: dict[str, str] = field(default_factory=dict)

    def requests(self) -> list[bytes]:
        """The bytes of each request."""
        host = urlsplit(self.url).netloc
        common = f"Host: {host}\r\n" + "".join(f"{name}: {value}\r\n" for name, value in self.headers.items())
        if not self.bodies:
            return [f"GET {self.path} HTTP/1.1\r\n{common}\r\n".encode()]
        encoded = [body.encode() for body in self.bodies]
        begin = f"POST {self.path} HTTP/1.1\r\n{common}Content-Type: application/json\r\n"
        return [f"{begin}Content-Length: {len(body)}\r\n\r\n".encode() + body for body in encoded]


class Connection(asyncio.Protocol):
    """One connection: sends a request, and calls `on_answer` with the status of the answer, or 0 if there is none."""

    def __init__(self, on_answer: Callable[[Connection, int], None]) -> None:
        self._on_answer = on_answer
        self._received = bytearray()
        self._transport: asyncio.Transport | None = None
        self._waits = self.is_closed = False
        self.due = 0.0  # when the request that runs was due
        self.retry_after = 0.0  # seconds that the last answer asked for

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def send(self, request: bytes, due: float) -> None:
        assert self._transport is not None
        self.due, self._waits = due, True
        self._transport.write(request)

    def close(self) -> None:
        self._waits = False
        if self._transport is not None:
            self._transport.close()

    def data_received(self, data: bytes) -> None:
        self._received += data
        answer = read_answer(self._received)
        if answer is None:
            return
        status, length, closes = answer
        self.retry_after = retry_after(self._received[:length]) if status == 429 else 0.0
        del self._received[:length]
        self._waits = False
        if closes:
            self.is_closed = True
            self.close()
        self._on_answer(self, status)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 -- the name of the protocol
        self.is_closed = True
        if self._waits:
            self._waits = False
            self._on_answer(self, 0)


def read_answer(received: bytes | bytearray) -> tuple[int, int, bool] | None:
    """Status, length in bytes, and whether the server closes the connection; None if the answer is not complete."""
    end = received.find(b"\r\n\r\n")
    if end < 0:
        return None
    head = bytes(received[:end]).lower()
    status, closes, body = int(head[9:12]), b"\r\nconnection: close" in head, end + 4
    at = head.find(b"\r\ncontent-length:")
    if at >= 0:
        length = int(head[at + 17 :].split(b"\r\n", 1)[0])
        return (status, body + length, closes) if len(received) >= body + length else None
    if b"\r\ntransfer-encoding: chunked" not in head:
        return status, body, closes  # such as 204
    while True:
        line = received.find(b"\r\n", body)
        if line < 0:
            return None
        size = int(received[body:line].split(b";")[0], 16)
        body = line + 2 + size + 2
        if len(received) < body:
            return None
        if size == 0:
            return status, body, closes


def retry_after(answer: bytes | bytearray) -> float:
    """The seconds in the header Retry-After; 0 without one."""
    _, _, value = bytes(answer.partition(b"\r\n\r\n")[0]).lower().partition(b"\r\nretry-after:")
    return float(value.split(b"\r\n", 1)[0] or 0)


class _Run:
    """The state of one run."""

    def __init__(self, load: Load) -> None:
        self.load = load
        requests = load.requests()
        self.requests: Iterator[bytes] = itertools.cycle([*requests[load.first :], *requests[: load.first]])
        self.statuses: list[int] = []
        self.seconds: list[float] = []
        self.n_broken = 0
        parts = urlsplit(load.url)
        assert parts.hostname is not None
        self.host, self.port = parts.hostname, parts.port or 80

    async def connect(self, on_answer: Callable[[Connection, int], None]) -> Connection:
        loop = asyncio.get_running_loop()
        _, connection = await loop.create_connection(lambda: Connection(on_answer), self.host, self.port)
        return connection

    def note(self, connection: Connection, status: int) -> None:
        if status:
            self.statuses.append(status)
            self.seconds.append(time.perf_counter() - connection.due)
        else:
            self.n_broken += 1

    def answers(self, began: float, cpu: float, n_unsent: int = 0) -> Answers:
        wall, used = time.perf_counter() - began, time.process_time() - cpu
        return Answers(self.statuses, self.seconds, wall, used, self.n_broken, n_unsent)


async def closed_loop(load: Load) -> Answers:
    """Each client sends its next request when its last one is answered, and after the seconds that a 429 asks for.
    Requests that run at the end are not counted; a connection that breaks is opened again."""
    run, done = _Run(load), asyncio.Event()
    clients: list[Connection] = []
    opening: set[asyncio.Task[None]] = set()

    def answered(connection: Connection, status: int) -> None:
        if done.is_set():
            return
        run.note(connection, status)
        if connection.is_closed:
            task = asyncio.create_task(begin())
            opening.add(task)
            task.add_done_callback(opening.discard)
        elif connection.retry_after:
            asyncio.get_running_loop().call_later(connection.retry_after, send, connection)
        else:
            send(connection)

    def send(connection: Connection) -> None:
        if not done.is_set() and not connection.is_closed:
            connection.send(next(run.requests), time.perf_counter())

    async def begin() -> None:
        while not done.is_set():
            try:
                connection = await run.connect(answered)
            except OSError:
                run.n_broken += 1
                await asyncio.sleep(0.1)
                continue
            clients.append(connection)
            connection.send(next(run.requests), time.perf_counter())
            return

    began, cpu = time.perf_counter(), time.process_time()
    await asyncio.gather(*(begin() for _ in range(load.clients)))
    await asyncio.sleep(began + load.seconds - time.perf_counter())
    done.set()
    answers = run.answers(began, cpu)
    for connection in clients:
        connection.close()
    return answers


async def open_loop(load: Load) -> Answers:
    """Request i is due at i / rate. If every connection is busy it waits here, and that time counts."""
    assert load.rate is not None
    run = _Run(load)
    free: list[Connection] = []
    overdue: deque[float] = deque()
    n_connections, n_running, tasks = 0, 0, set[asyncio.Task[None]]()

    def answered(connection: Connection, status: int) -> None:
        nonlocal n_connections, n_running
        run.note(connection, status)
        n_running -= 1
        if connection.is_closed:
            n_connections -= 1
        else:
            free.append(connection)
        dispatch()

    def dispatch() -> None:
        nonlocal n_connections, n_running
        while overdue:
            while free and free[-1].is_closed:  # by the server, while it was idle
                free.pop()
                n_connections -= 1
            if free:
                n_running += 1
                free.pop().send(next(run.requests), overdue.popleft())
            elif n_connections < load.max_connections:
                n_connections += 1
                n_running += 1
                task = asyncio.create_task(send_on_new(overdue.popleft()))
                tasks.add(task)
                task.add_done_callback(tasks.discard)
            else:
                return

    async def send_on_new(due: float) -> None:
        nonlocal n_connections, n_running
        try:
            connection = await run.connect(answered)
        except OSError:
            run.n_broken += 1
            n_connections, n_running = n_connections - 1, n_running - 1
            return
        connection.send(next(run.requests), due)

    n_requests = round(load.seconds * load.rate)
    began, cpu, n_due = time.perf_counter(), time.process_time(), 0
    while n_due < n_requests:
        n_now = min(n_requests, int((time.perf_counter() - began) * load.rate) + 1)
        overdue.extend(began + number / load.rate for number in range(n_due, n_now))
        n_due = n_now
        dispatch()
        await asyncio.sleep(max(0.0, began + n_due / load.rate - time.perf_counter()))
    end = time.perf_counter() + DRAIN_SECONDS
    while (n_running or overdue) and time.perf_counter() < end:
        await asyncio.sleep(0.01)
    answers = run.answers(began, cpu, n_running + len(overdue))
    for connection in free:
        connection.close()
    return answers


def run_here(load: Load) -> Answers:
    return asyncio.run(closed_loop(load) if load.rate is None else open_loop(load))


class LoadProcess:
    """A generator that runs beside; `answers` waits for its end."""

    def __init__(self, load: Load) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="plait-load-")
        folder = Path(self._folder.name)
        (folder / "load.json").write_text(json.dumps(asdict(load)), encoding="utf-8")
        self._out = folder / "answers.json"
        command = [sys.executable, "-m", "benchmarks.serve.load", "--spec", str(folder / "load.json")]
        self._process = subprocess.Popen([*command, "--out", str(self._out)])

    def answers(self) -> Answers:
        try:
            if self._process.wait():
                raise SystemExit("the load generator failed; see above")
            return Answers(**json.loads(self._out.read_text(encoding="utf-8")))
        finally:
            self._folder.cleanup()


def run_load(load: Load) -> Answers:
    """Runs a load in a process of its own."""
    return LoadProcess(load).answers()


def bodies_for(queries: Sequence[str], **fields: Any) -> list[str]:
    """One search body for each query."""
    return [json.dumps({"query": query, **fields}) for query in queries]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("address", nargs="?")
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--rate", type=float)
    parser.add_argument("--body")
    parser.add_argument("--spec", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.spec is not None:
        answers = run_here(Load(**json.loads(options.spec.read_text(encoding="utf-8"))))
        options.out.write_text(json.dumps(answers.as_fields()), encoding="utf-8")
        return
    parts = urlsplit(options.address)
    load = Load(
        url=f"{parts.scheme}://{parts.netloc}",
        path=parts.path or "/",
        bodies=[options.body] if options.body else [],
        seconds=options.seconds,
        clients=options.clients,
        rate=options.rate,
    )
    answers = run_here(load)
    print(answers.counts(), summarize(answers))


if __name__ == "__main__":
    main()

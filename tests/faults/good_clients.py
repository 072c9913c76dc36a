"""Clients that behave well: they search and write at a steady pace, in a process of their own.

`python -m faults.good_clients URL INDEX` reads two keys from its input, then prints one line for each request: when it
began, the seconds it took, and how it was answered. It ends when its input ends.
"""

from __future__ import annotations

import argparse
import http.client
import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

N_SEARCHING = 3
PAUSE = 0.05  # seconds between two requests of a client
WRITE_PAUSE = 0.2
MAX_SENT = 40  # of one write
WORDS = ["loom", "warp", "weft", "thread", "needle", "cloth", "shuttle", "bobbin", "vectors", "spindle"]


@dataclass(frozen=True, slots=True)
class Request:
    """One request. `answer` is its status, or "no answer"; `was_cut` if it was sent again."""

    began: float  # on the clock that all processes share
    seconds: float
    kind: str  # "search" or "write"
    answer: str
    was_cut: bool
    id: str = ""  # of the document of a write


class Client:
    """One connection, opened again when it breaks."""

    def __init__(self, url: str, key: str) -> None:
        parts = urlsplit(url)
        self._address, self._key = (parts.hostname or "", parts.port or 80), key
        self._connection: http.client.HTTPConnection | None = None

    def post(self, path: str, body: dict[str, Any], headers: dict[str, str] | None = None) -> str:
        """The status of the answer. Raises OSError or HTTPException if the connection breaks."""
        connection = self._connection or http.client.HTTPConnection(*self._address, timeout=60)
        self._connection = None
        given = {"authorization": f"Bearer {self._key}", "content-type": "application/json", **(headers or {})}
        connection.request("POST", path, json.dumps(body), given)
        answer = connection.getresponse()
        answer.read()
        self._connection = connection
        return str(answer.status)

    def measured(self, kind: str, path: str, body: dict[str, Any], id: str = "") -> Request:
        """Sends a request; once more if the connection breaks. A write is also sent again while the writer is being
        replaced (503). It has an idempotency key, so it is done once."""
        began, n_sent = time.monotonic(), 0
        headers = {"idempotency-key": id} if id else None
        while True:
            n_sent += 1
            try:
                answer = self.post(path, body, headers)
            except (OSError, http.client.HTTPException):
                answer = "no answer"
            if n_sent < 2 and answer == "no answer":
                continue
            if kind == "write" and answer in ("503", "no answer") and n_sent < MAX_SENT:
                time.sleep(0.5)
                continue
            return Request(began, time.monotonic() - began, kind, answer, n_sent > 1, id)


def _search(client: Client, index: str, number: int) -> Request:
    words = [WORDS[number * step % len(WORDS)] for step in (1, 3, 7)]
    return client.measured("search", f"/v1/indexes/{index}/search", {"query": f"{' '.join(words)} {number}", "k": 5})


def _write(client: Client, index: str, number: int) -> Request:
    id = f"good-{number}"
    body = {"documents": [{"id": id, "text": f"{WORDS[number % len(WORDS)]} number {number}"}]}
    return client.measured("write", f"/v1/indexes/{index}/documents", body, id)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("url")
    parser.add_argument("index")
    arguments = parser.parse_args()
    read_key, write_key = sys.stdin.readline().split()
    stop, lock = threading.Event(), threading.Lock()

    def run(kind: str, client: Client, first: int, step: int) -> None:
        number = first
        while not stop.is_set():
            made = (
                _search(client, arguments.index, number)
                if kind == "search"
                else _write(client, arguments.index, number)
            )
            with lock:
                print(json.dumps([getattr(made, name) for name in Request.__slots__]), flush=True)
            number += step
            stop.wait(PAUSE if kind == "search" else WRITE_PAUSE)

    threads = [
        threading.Thread(target=run, args=("search", Client(arguments.url, read_key), n, N_SEARCHING))
        for n in range(N_SEARCHING)
    ]
    threads.append(threading.Thread(target=run, args=("write", Client(arguments.url, write_key), 0, 1)))
    for thread in threads:
        thread.start()
    sys.stdin.read()
    stop.set()


@dataclass
class GoodClients:
    """The process, and what it has reported so far."""

    process: subprocess.Popen[str]
    requests: list[Request] = field(default_factory=list)

    def read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.requests.append(Request(*json.loads(line)))

    def between(self, begin: float, end: float) -> list[Request]:
        """The requests that ran in this time, or in a part of it."""
        return [one for one in list(self.requests) if one.began < end and one.began + one.seconds >= begin]

    def wait_for(self, n_requests: int, seconds: float = 120.0) -> None:
        end = time.monotonic() + seconds
        while len(self.requests) < n_requests:
            assert self.process.poll() is None, "the good clients have ended"
            assert time.monotonic() < end, "the good clients get no answers"
            time.sleep(0.05)


def p99(requests: Sequence[Request]) -> float:
    """Seconds of the slowest search in a hundred."""
    seconds = sorted(one.seconds for one in requests if one.kind == "search")
    return seconds[min(len(seconds) - 1, len(seconds) * 99 // 100)] if seconds else float("nan")


@contextmanager
def good_clients(url: str, index: str, read_key: str, write_key: str) -> Iterator[GoodClients]:
    command = [sys.executable, "-m", "faults.good_clients", url, index]
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[1]
    )
    clients = GoodClients(process)
    reader = threading.Thread(target=clients.read)
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        process.stdin.write(f"{read_key} {write_key}\n")
        process.stdin.flush()
        reader.start()
        yield clients
        process.stdin.close()
        reader.join(90)
    finally:
        process.kill()
        process.wait()
        if reader.is_alive():
            reader.join(5)
        process.stdout.close()


if __name__ == "__main__":
    main()

"""What hostile clients send to a server: `faults.hostile_clients` runs each attack beside clients that behave well.

`python -m faults.hostile_requests NAME URL` reads keys from its input, as JSON, and attacks the index `fabrics`; then
it prints what it sent and how that was answered. It runs at the lowest priority: real attackers have their own
processors.
"""

from __future__ import annotations

import argparse
import asyncio
import errno
import gzip
import itertools
import json
import os
import random
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, urlsplit

from faults.hostile_filters import hostile_filters

N_SLOW = 300  # connections that send by drops
DROP_SECONDS = 0.3  # between two drops
N_AT_ONCE = 8  # connections of attacks that send whole requests
ANSWER_SECONDS = 60.0
MEGABYTE = 1_000_000
CLOSED = (errno.ECONNRESET, errno.EPIPE, errno.ECONNABORTED)  # by the server
SEARCH = "/v1/indexes/fabrics/search"
DOCUMENTS = "/v1/indexes/fabrics/documents"


@dataclass
class Attacker:
    """Where to attack, for how long, and what came back."""

    url: str
    keys: Mapping[str, str]
    seconds: float
    rng: random.Random
    answers: Counter[str] = field(default_factory=Counter)
    acknowledged: list[str] = field(default_factory=list)  # ids of documents whose writes were confirmed

    def __post_init__(self) -> None:
        parts = urlsplit(self.url)
        self.host, self.port = parts.hostname or "", parts.port or 80
        self.end = time.monotonic() + self.seconds

    def goes_on(self) -> bool:
        return time.monotonic() < self.end

    def request(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        *,
        key: str | None = "reader",
        headers: Mapping[str, str] | None = None,
    ) -> bytes:
        """A request as bytes. A header that is given replaces the usual one."""
        given = {"host": f"{self.host}:{self.port}"}
        if key is not None:
            given["authorization"] = f"Bearer {self.keys[key]}"
        if body is not None:
            given |= {"content-type": "application/json", "content-length": str(len(body))}
        given |= headers or {}
        lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in given.items())]
        return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + (body or b"")

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
        reader, writer = await asyncio.open_connection(self.host, self.port)
        try:
            yield reader, writer
        finally:
            writer.transport.abort()

    async def send(self, *parts: bytes, pieces: Iterable[bytes] = ()) -> str:
        """Sends a request on a connection of its own; counts and gives its status, or "closed" or "no answer"."""
        try:
            async with self.connection() as (reader, writer):
                sending = asyncio.create_task(_send(writer, itertools.chain(parts, pieces)))
                try:
                    answer = await status_of(reader)
                finally:
                    sending.cancel()
                    with suppress(asyncio.CancelledError, OSError):
                        await sending
        except OSError as error:
            answer = "closed" if error.errno in CLOSED else f"error {error.errno}"
        self.answers[answer] += 1
        return answer

    async def repeat(self, make: Callable[[int], bytes], n_at_once: int = N_AT_ONCE, most: int = 10**9) -> int:
        """Sends requests until the time is over, and some at least; gives how many."""
        numbers = itertools.count()

        async def run() -> None:
            while (number := next(numbers)) < most and (number < n_at_once or self.goes_on()):
                await self.send(make(number))

        await asyncio.gather(*(run() for _ in range(n_at_once)))
        return sum(self.answers.values())

    async def drip(self, first: bytes, drops: Callable[[], bytes], n_connections: int = N_SLOW) -> None:
        """Opens connections, and sends a drop on each from time to time, until the server ends them; it has to."""

        async def run() -> None:
            try:
                async with self.connection() as (reader, writer):
                    writer.write(first)
                    watching = asyncio.create_task(_until_closed(reader))
                    while time.monotonic() < self.end + ANSWER_SECONDS and not watching.done():
                        writer.write(drops())
                        await asyncio.wait({watching}, timeout=DROP_SECONDS)
                    if watching.done():
                        self.answers[watching.result()] += 1
                    else:
                        watching.cancel()
                        self.answers["still open"] += 1
            except OSError:
                self.answers["closed"] += 1

        await asyncio.gather(*(run() for _ in range(n_connections)))


async def _send(writer: asyncio.StreamWriter, parts: Iterable[bytes]) -> None:
    for part in parts:
        writer.write(part)
        await writer.drain()


async def status_of(reader: asyncio.StreamReader) -> str:
    """The status of an answer that has come as a whole."""
    try:
        async with asyncio.timeout(ANSWER_SECONDS):
            head = await reader.readuntil(b"\r\n\r\n")
            for line in head.lower().split(b"\r\n"):
                if line.startswith(b"content-length:"):
                    await reader.readexactly(int(line.partition(b":")[2]))
    except TimeoutError:
        return "no answer"
    except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, OSError):
        return "closed"
    return head.split()[1].decode("latin-1")


async def _until_closed(reader: asyncio.StreamReader) -> str:
    """Waits until the server ends the connection: gives the status of its answer, if it sent one."""
    head = b""
    with suppress(OSError):
        while part := await reader.read(4096):
            head = head or part
    return f"{head.split()[1].decode('latin-1')}, then closed" if head.startswith(b"HTTP/1.1 ") else "closed"


def _json(value: Any) -> bytes:
    return json.dumps(value).encode()


def _chunks(size: int, count: int | None = None) -> Iterator[bytes]:
    """A chunked body without an end."""
    chunk = f"{size:x}\r\n".encode() + b"[" * size + b"\r\n"
    return itertools.repeat(chunk) if count is None else itertools.repeat(chunk, count)


CHUNKED = {"content-type": "application/json", "transfer-encoding": "chunked"}
LINES = {"content-type": "application/x-ndjson"}


# -- slow clients


async def slow_headers(on: Attacker) -> str:
    await on.drip(b"GET / HTTP/1.1\r\nhost: localhost\r\n", lambda: b"x-a: b\r\n")
    return f"{N_SLOW} requests, headers by drops"


async def slow_bodies(on: Attacker) -> str:
    await on.drip(on.request("POST", SEARCH, headers={**CHUNKED}), lambda: b"1\r\n \r\n")
    return f"{N_SLOW} requests, bodies by drops"


async def slow_uploads(on: Attacker) -> str:
    head = on.request("POST", DOCUMENTS, key="writer", headers={**CHUNKED, **LINES})
    await on.drip(head, lambda: b"1\r\n \r\n")
    return f"{N_SLOW} uploads of lines, by drops"


async def bodies_without_key(on: Attacker) -> str:
    await on.drip(on.request("POST", SEARCH, key=None, headers={**CHUNKED}), lambda: b"1\r\n \r\n")
    return f"{N_SLOW} requests without key, bodies by drops after the answer"


async def held_bodies(on: Attacker) -> str:
    """Bodies that are complete but for their last byte, so that the server has to keep them."""
    body = b'"' + b"x" * (15 * MEGABYTE)
    head = on.request("POST", DOCUMENTS, key="writer", headers={**_sized(len(body) + 1)})

    async def hold() -> None:
        async with on.connection() as (reader, writer):
            sending = asyncio.create_task(_send(writer, _parts_of(body)))
            writer.write(head)
            watching = asyncio.create_task(_until_closed(reader))
            await asyncio.wait({watching}, timeout=on.seconds + ANSWER_SECONDS)
            sending.cancel()
            on.answers[watching.result() if watching.done() else "still open"] += 1

    await asyncio.gather(*(hold() for _ in range(60)), return_exceptions=True)
    return "60 bodies of 15 MB without their last byte"


def _sized(nbytes: int) -> dict[str, str]:
    return {"content-type": "application/json", "content-length": str(nbytes)}


def _parts_of(body: bytes) -> Iterator[bytes]:
    return (body[begin : begin + 65536] for begin in range(0, len(body), 65536))


async def slow_readers(on: Attacker) -> str:
    """Clients that ask for large answers and read nothing."""
    body = _json({"queries": ["loom"] * 100, "k": 80, "text": True, "mode": "bm25"})
    wanted = on.request("POST", SEARCH, body)

    async def ask() -> None:
        try:
            async with on.connection() as (reader, writer):
                writer.transport.pause_reading()  # type: ignore[attr-defined]  # only transports that read have it
                writer.write(wanted)
                while on.goes_on():
                    await asyncio.sleep(0.1)
                writer.transport.resume_reading()  # type: ignore[attr-defined]
                on.answers[await status_of(reader)] += 1
        except OSError:
            on.answers["closed"] += 1

    await asyncio.gather(*(ask() for _ in range(40)))
    return "40 large answers that nobody reads"


# -- too much


async def large_body(on: Attacker) -> str:
    body = b"x" * MEGABYTE
    while on.goes_on():
        await on.send(on.request("POST", SEARCH, headers=_sized(100 * MEGABYTE)), pieces=itertools.repeat(body, 100))
        await on.send(on.request("POST", SEARCH, headers=CHUNKED), pieces=_chunks(MEGABYTE, 100))
        await on.send(
            on.request("POST", DOCUMENTS, key="writer", headers={**CHUNKED, **LINES}), pieces=_chunks(MEGABYTE, 100)
        )
    return "bodies of 100 MB, sized, chunked and as one line"


async def endless_body(on: Attacker) -> str:
    head = on.request("POST", SEARCH, headers=CHUNKED)

    async def run() -> None:
        while on.goes_on():
            await on.send(head, pieces=_chunks(1000))

    await asyncio.gather(*(run() for _ in range(4)))
    return "chunked bodies without an end"


async def deep_json(on: Attacker) -> str:
    def make(number: int) -> bytes:
        open, close = [(b"[", b"]"), (b'{"a":', b"}")][number % 2]
        depth = [65, 10_000, 1_000_000][number % 3]
        nested = open * depth + (b"1" + close * depth if number % 4 else b"")
        return on.request("POST", SEARCH, b'{"query": "x", "params": ' + nested + b"}")

    await on.repeat(make)
    return "JSON 65 to 1,000,000 deep"


async def long_filters(on: Attacker) -> str:
    filters = hostile_filters(on.rng.randrange(1000))

    def make(number: int) -> bytes:
        filter = next(filters) if number % 2 else _long_filter(on.rng, 19_000 + 400 * (number % 8))
        return on.request("POST", SEARCH, _json({"query": "loom", "filter": filter, "timeout": 0.5}))

    await on.repeat(make)
    return "filters of up to 20 kB and more, made to be slow"


def _long_filter(rng: random.Random, length: int) -> str:
    parts: list[str] = []
    while sum(map(len, parts)) + 4 * len(parts) < length:
        parts.append(f"text like '%{'a' * rng.randint(10, 900)}_b%{rng.randint(0, 10**6)}'")
    return " or ".join(parts)


async def many_candidates(on: Attacker) -> str:
    wanted = [
        {"query": "loom", "candidates": [f"d{number}" for number in range(10**6)]},
        {"query": "loom", "candidates": ["d1"] * 10**6},
        {"query": "loom", "k": 10**6},
        {"query": "loom", "offset": 10**6, "k": 1},
        {"query": "loom", "window": 10**6, "sort": "year"},
        {"query": "loom", "mode": "multi", "params": {"candidates": 10**6}},
    ]
    bodies = [on.request("POST", SEARCH, _json(body)) for body in wanted]
    await on.repeat(lambda number: bodies[number % len(bodies)], n_at_once=4)
    return "10^6 candidates, k, offset, window"


async def large_batches(on: Attacker) -> str:
    bodies = [
        on.request("POST", SEARCH, _json({"queries": [f"loom {number}" for number in range(10**5)]})),
        on.request("POST", "/v1/encode", _json({"texts": [f"loom {number}" for number in range(10**5)]})),
        on.request("POST", f"{DOCUMENTS}/get", _json({"ids": [f"d{number}" for number in range(10**5)]})),
        on.request("POST", SEARCH, _json({"queries": [0] * 300_000})),
        on.request("POST", "/v1/encode", _json({"texts": [0] * 10**6})),
        on.request("PATCH", DOCUMENTS, _json({"changes": dict.fromkeys(range(10**5), 0)}), key="writer"),
    ]
    await on.repeat(lambda number: bodies[number % len(bodies)], n_at_once=4)
    return "batches of 10^5 queries, texts, ids, and of wrong items"


async def long_queries(on: Attacker) -> str:
    def make(number: int) -> bytes:
        if number % 4 == 3:
            path = f"{SEARCH}?q={'x' * 200_000}"
            return on.request("GET", path)
        length = [19_999, 20_001, 2 * MEGABYTE][number % 4]
        return on.request("POST", SEARCH, _json({"query": "ab " * (length // 3), "timeout": 1.0}))

    await on.repeat(make, n_at_once=4)
    return "queries of 20 kB, 2 MB, and 200 kB in the path"


async def searches_at_once(on: Attacker) -> str:
    """A thousand searches that were never asked before, and commits between them."""

    async def write() -> None:
        for number in itertools.count():
            if not on.goes_on():
                return
            documents = [{"id": f"hostile-{number}", "text": f"shuttle {number}"}]
            await on.send(on.request("POST", DOCUMENTS, _json({"documents": documents}), key="writer"))

    writing = asyncio.create_task(write())
    numbers = itertools.count()
    while on.goes_on():
        bodies = [_json({"query": f"loom {next(numbers)}", "timeout": 5.0}) for _ in range(1000)]
        await asyncio.gather(*(on.send(on.request("POST", SEARCH, body)) for body in bodies))
    await writing
    return "1,000 searches at once, with commits between them"


async def gzip_bombs(on: Attacker) -> str:
    bomb = gzip.compress(b"[" * (50 * MEGABYTE))
    headers = {"content-encoding": "gzip"}
    await on.repeat(lambda number: on.request("POST", [SEARCH, "/v1/encode"][number % 2], bomb, headers=headers))
    return "gzip bodies, 50 MB when unpacked"


async def broken_lines(on: Attacker) -> str:
    good = _json({"id": "broken", "text": "never stored"}) + b"\n"
    bad = [b"{", b"\xff\xfe\n", b"[1]\n", b"null\n", b'{"id": 1}\n', b'{"id": "x", "text": NaN}\n', b"[" * 100_000]
    bad += [b'{"id": "x", "text": "' + b"x" * (9 * MEGABYTE), b"\0" * 1000, b'{"id":"x","text":"\\ud800"']

    def make(number: int) -> bytes:
        body = (b"" if number % 3 else good * 100) + bad[number % len(bad)]
        return on.request("POST", DOCUMENTS, body, key="writer", headers=LINES)

    await on.repeat(make)
    return "uploads with a broken line"


# -- requests that browsers and programs must not make


async def foreign_hosts(on: Attacker) -> str:
    hosts = ["evil.example", "127.0.0.1.evil.example", "localhost.evil.example:80", "[::1", "", "a@localhost", "0x7f.1"]
    origins = ["http://evil.example", "null", "http://localhost:1", "https://localhost.evil.example", "file://"]
    body = _json({"query": "loom"})

    def make(number: int) -> bytes:
        if number % 2:
            return on.request("POST", SEARCH, body, headers={"host": hosts[number // 2 % len(hosts)]})
        return on.request("POST", SEARCH, body, headers={"origin": origins[number // 2 % len(origins)]})

    await on.repeat(make, most=2000)
    return "foreign Host and Origin (DNS rebinding)"


async def traversal(on: Attacker) -> str:
    ups = ["../../../../etc/passwd", "..%2f..%2f..%2fetc%2fpasswd", "%2e%2e/%2e%2e/etc/passwd", "/etc/passwd"]
    ups += ["..%5c..%5cetc%5cpasswd", "%00", "....//....//etc/passwd", "..%c0%af..%c0%afetc/passwd", "~root"]
    targets = [f"/assets/{up}" for up in ups] + [f"/{up}" for up in ups] + [f"{DOCUMENTS}/{up}" for up in ups]
    targets += [f"/v1/indexes/{up}" for up in ups] + [f"/v1/indexes/{up}/search?q=x" for up in ups]
    targets += [f"/v1/jobs/{up}" for up in ups]
    names = ["../evil", "..", ".", "/tmp/evil", "a/b", "a\0b", "evil\n", "A", "x" * 100, "con:evil", "%2e%2e"]
    models = ["/etc/passwd", "../model", "http://evil.example/model"]

    def make(number: int) -> bytes:
        if number % 3 == 0:
            return on.request("POST", "/v1/indexes", _json({"name": names[number // 3 % len(names)]}), key="admin")
        if number % 3 == 1 and number % 2:
            body = {"name": "new", "model": models[number % len(models)]}
            return on.request("POST", "/v1/indexes", _json(body), key="admin")
        return on.request("GET", targets[number % len(targets)], key="admin")

    await on.repeat(make, most=3000)
    return "paths in names of indexes, models, ids and files"


async def broken_http(on: Attacker) -> str:
    """Header injection, requests hidden in requests, and bytes that are not HTTP."""
    host = f"host: {on.host}:{on.port}\r\nauthorization: Bearer {on.keys['reader']}\r\n".encode()
    post = b"POST " + SEARCH.encode() + b" HTTP/1.1\r\n" + host
    made = [
        post + b"content-type: application/json\r\ncontent-length: 5\r\ncontent-length: 6\r\n\r\n{}",
        post
        + b"content-type: application/json\r\ntransfer-encoding: chunked\r\ncontent-length: 9\r\n\r\n0\r\n\r\nGET / HT",
        post + b"transfer-encoding: chunked, identity\r\n\r\n0\r\n\r\n",
        post + b"content-type: application/json\r\ntransfer-encoding: chunked\r\n\r\nffffffffffffffff\r\n{}",
        post + b"content-type: application/json\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n{}\r\n",
        post + b"content-length: -1\r\n\r\n",
        post + b"x-request-id: a\x00b\r\ncontent-length: 0\r\n\r\n",
        post + b"x request: 1\r\n\r\n",
        post + b" folded: 1\r\n\r\n",
        post + b"host: evil.example\r\ncontent-length: 0\r\n\r\n",
        post + b"upgrade: websocket\r\nconnection: upgrade\r\ncontent-length: 0\r\n\r\n",
        b"GET /\r\n\r\n",
        b"POST " + SEARCH.encode() + b" HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(200),
        b"GET http://evil.example/ HTTP/1.1\r\n" + host + b"\r\n",
        b"CONNECT evil.example:443 HTTP/1.1\r\n" + host + b"\r\n",
        b"GET /v1/indexes%0d%0aset-cookie:%20a=b HTTP/1.1\r\n" + host + b"\r\n",
        b"GET /\xff\xfe HTTP/1.1\r\n" + host + b"\r\n",
    ]
    crlf = quote("x\r\nset-cookie: a=b")
    made.append(on.request("GET", f"{DOCUMENTS}/{crlf}"))
    made.append(on.request("POST", DOCUMENTS, b"{}", key="writer", headers={"idempotency-key": "a\x7fb"}))
    await on.repeat(lambda number: made[number % len(made)], most=3000)
    return "header injection, smuggled requests, bytes that are not HTTP"


async def key_guessing(on: Attacker) -> str:
    right = on.keys["admin"]

    def make(number: int) -> bytes:
        guess = [right[:-1], right[:-1] + "x", right.upper(), "plait_" + "a" * 60, "", "x" * 5000, right + " " + right][
            number % 7
        ]
        name, value = [("authorization", f"Bearer {guess}"), ("x-api-key", guess or "?"), ("authorization", guess)][
            number % 3
        ]
        return on.request("POST", SEARCH, _json({"query": "loom"}), key=None, headers={name: value})

    await on.repeat(make)
    return "wrong keys, among them the right one without its end"


async def huge_headers(on: Attacker) -> str:
    def make(number: int) -> bytes:
        if number % 2:
            return on.request("GET", "/v1/indexes", headers={"x-a": "b" * 2 * MEGABYTE})
        return on.request("GET", "/v1/indexes", headers={f"x-{n}": "b" * 20 for n in range(20_000)})

    await on.repeat(make)
    return "headers of 2 MB, and 20,000 of them"


# -- crashes


async def _write_all(on: Attacker) -> None:
    """Writes with idempotency keys, each sent until it is confirmed."""
    numbers, prefix = itertools.count(), f"w{on.rng.randrange(10**6)}"

    async def run() -> None:
        while on.goes_on():
            id = f"{prefix}-{next(numbers)}"
            documents = [{"id": f"{id}-{part}", "text": f"thread {part} of {id}"} for part in range(5)]
            wanted = on.request(
                "POST", DOCUMENTS, _json({"documents": documents}), key="writer", headers={"idempotency-key": id}
            )
            for _ in range(100):
                if await on.send(wanted) == "200":
                    on.acknowledged.extend(one["id"] for one in documents)
                    break
                await asyncio.sleep(0.1)

    await asyncio.gather(*(run() for _ in range(4)))


async def kill_worker(on: Attacker) -> str:
    await _write_all(on)
    return "kill -9 of a worker, while documents are added"


async def kill_writer(on: Attacker) -> str:
    await _write_all(on)
    return "kill -9 of the writer, while documents are added"


@dataclass(frozen=True, slots=True)
class Attack:
    """An attack, and the answers that are right."""

    run: Callable[[Attacker], Awaitable[str]]
    answers: str  # apart from "closed"
    kills: str | None = None  # the process that is killed meanwhile


ATTACKS: dict[str, Attack] = {
    "slow headers": Attack(slow_headers, ""),
    "slow bodies": Attack(slow_bodies, "408"),
    "slow uploads": Attack(slow_uploads, "408"),
    "bodies without key": Attack(bodies_without_key, "401"),
    "held bodies": Attack(held_bodies, "408 429"),
    "slow readers": Attack(slow_readers, "200 429 504"),
    "100 MB bodies": Attack(large_body, "413 422"),
    "endless bodies": Attack(endless_body, "413 408"),
    "deep JSON": Attack(deep_json, "400 413 422 429"),
    "20 kB filters": Attack(long_filters, "200 422 429 504"),
    "10^6 candidates": Attack(many_candidates, "413 422 429"),
    "10^5 queries": Attack(large_batches, "413 422 429"),
    "long queries": Attack(long_queries, "200 400 413 422 429 504"),
    "1,000 searches": Attack(searches_at_once, "200 429 503 504"),
    "gzip bombs": Attack(gzip_bombs, "400 415"),
    "broken lines": Attack(broken_lines, "400 413 422"),
    "foreign hosts": Attack(foreign_hosts, "403 421"),
    "path traversal": Attack(traversal, "400 404 405 422"),
    "broken HTTP": Attack(broken_http, "400 401 403 404 405 408 415 421 422"),
    "key guessing": Attack(key_guessing, "401 400"),
    "huge headers": Attack(huge_headers, "400 431"),
    "killed worker": Attack(kill_worker, "200 503 429", kills="worker-1"),
    "killed writer": Attack(kill_writer, "200 503 429", kills="writer"),
}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("name", choices=ATTACKS)
    parser.add_argument("url")
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    os.nice(19)
    keys = json.loads(sys.stdin.readline())
    on = Attacker(arguments.url, keys, arguments.seconds, random.Random(arguments.seed))

    async def run() -> str:
        return await ATTACKS[arguments.name].run(on)

    sent = asyncio.run(run())
    print(json.dumps({"sent": sent, "answers": on.answers, "acknowledged": on.acknowledged}))


if __name__ == "__main__":
    main()

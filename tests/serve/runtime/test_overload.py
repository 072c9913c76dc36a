"""Full queues over real HTTP, and keys that share them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import copy_context
from pathlib import Path
from typing import Any

import httpx
import pytest

from plait.deadline import Deadline
from plait.errors import SearchTimeoutError
from plait.index import Index
from plait.serve.config import Queues
from plait.serve.limits import Limits
from plait.serve.protocol import CURRENT_OWNER, OverloadedError
from plait.serve.runtime.admission import Admission
from plait.serve.runtime.batching import EXTRA_SLOTS, ComputeSlots, Job
from plait.serve.runtime.fair_queue import FairQueue, share
from plait.serve.runtime.metrics import Metrics
from plait.serve.runtime.models import SHORT_CHARACTERS
from plait.serve.runtime.runtime import ServeRuntime
from serve.api.servers import bearer, config_of, with_keys
from serve.listening import listening
from serve.processes import wait_until

COUNT = "/v1/indexes/fabrics/count"
DOCUMENTS = "/v1/indexes/fabrics/documents"


@contextmanager
def blocked(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str) -> Iterator[None]:
    """Calls of this function wait until the block ends."""
    go, call = threading.Event(), getattr(owner, name)

    def wait(*arguments: Any, **keywords: Any) -> Any:
        assert go.wait(60)
        return call(*arguments, **keywords)

    with monkeypatch.context() as patch:
        patch.setattr(owner, name, wait)
        try:
            yield
        finally:
            go.set()


def as_owner(owner: str, call: Any, *arguments: Any) -> Any:
    """Calls in a context whose requests are from this owner."""

    def run() -> Any:
        CURRENT_OWNER.set(owner)
        return call(*arguments)

    return copy_context().run(run)


# -- over HTTP


def test_a_search_beyond_the_queue_is_429_with_retry_after(fabrics: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = config_of(fabrics, queues=Queues(running=1, waiting=1))
    runtime = ServeRuntime(config)
    with listening(config, runtime) as url, ThreadPoolExecutor(2) as pool:
        waiting: list[Future[httpx.Response]] = []
        with blocked(monkeypatch, Index, "count"):
            waiting.append(pool.submit(httpx.post, url + COUNT, json={}, timeout=60))
            wait_until(lambda: runtime.admission.running == 1, "no request runs")
            waiting.append(pool.submit(httpx.post, url + COUNT, json={}, timeout=60))
            wait_until(lambda: runtime.admission.waiting == 1, "no request waits")
            refused = httpx.post(url + COUNT, json={}, timeout=60)
            assert refused.status_code == 429
            assert refused.json()["error"]["code"] == "overloaded"
            assert int(refused.headers["retry-after"]) >= 1
            assert httpx.get(f"{url}/health", timeout=60).status_code == 200  # it does not wait
        assert [one.result().status_code for one in waiting] == [200, 200]
        assert httpx.post(url + COUNT, json={}, timeout=60).status_code == 200


def test_a_write_beyond_the_queue_is_429_with_retry_after(fabrics: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = config_of(fabrics, queues=Queues(writes=2))

    def add(url: str, id: str) -> httpx.Response:
        return httpx.post(url + DOCUMENTS, json={"documents": [{"id": id, "text": "x"}]}, timeout=60)

    runtime = ServeRuntime(config)
    with listening(config, runtime) as url, ThreadPoolExecutor(2) as pool:
        with blocked(monkeypatch, Index, "add"):
            waiting = [pool.submit(add, url, id) for id in "ab"]
            lines: Any = runtime.writes._lines  # type: ignore[attr-defined]
            wait_until(lambda: "fabrics" in lines and lines["fabrics"].n_waiting == 2, "the writes do not wait")
            refused = add(url, "c")
            assert (refused.status_code, refused.json()["error"]["code"]) == (429, "overloaded")
            assert int(refused.headers["retry-after"]) >= 1
        assert [one.result().status_code for one in waiting] == [200, 200]
        assert add(url, "c").status_code == 200


def test_bodies_that_are_held_are_bounded_in_all(fabrics: Path) -> None:
    limits = Limits(max_held_bytes=100_000, body_timeout=30)
    with listening(config_of(fabrics, limits=limits)) as url:
        sent, go = threading.Event(), threading.Event()

        def slowly() -> Iterator[bytes]:
            yield b'{"filter": "' + b"x" * 90_000
            sent.set()
            assert go.wait(60)
            yield b'"}'

        headers = {"content-type": "application/json"}
        with ThreadPoolExecutor(1) as pool:
            first = pool.submit(httpx.post, url + COUNT, content=slowly(), headers=headers, timeout=60)
            assert sent.wait(60)  # before any other request, or that one would be held and this one refused

            def is_refused() -> bool:
                answer = httpx.post(url + COUNT, content=b" " * 50_000 + b"{}", headers=headers, timeout=60)
                assert answer.status_code in (200, 429)
                return answer.status_code == 429 and answer.headers["retry-after"] == "1"

            wait_until(is_refused, "the bodies are not counted")
            assert httpx.post(url + COUNT, json={}, timeout=60).status_code == 200
            go.set()
            assert first.result().status_code == 422
        assert not is_refused()  # what was held is free again


def test_a_search_may_not_be_as_large_as_a_document(fabrics: Path) -> None:
    with listening(config_of(fabrics)) as url:
        body = {"query": "loom", "candidates": ["x" * 100] * 10_500}
        assert httpx.post(f"{url}/v1/indexes/fabrics/search", json=body, timeout=60).status_code == 413
        assert httpx.post(f"{url}/v1/encode", json={"texts": ["x", " " * 1_100_000]}, timeout=60).status_code == 200


def test_a_key_with_many_requests_leaves_room_for_others(fabrics: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config, keys = with_keys(
        config_of(fabrics, queues=Queues(running=4, waiting=4)), fabrics.parent / "keys.json", greedy={}, other={}
    )
    runtime = ServeRuntime(config)
    with listening(config, runtime) as url, ThreadPoolExecutor(8) as pool:
        with blocked(monkeypatch, Index, "count"):

            def count() -> httpx.Response:
                return httpx.post(url + COUNT, json={}, headers=bearer(keys["greedy"]), timeout=60)

            waiting = [pool.submit(count) for _ in range(6)]
            wait_until(lambda: (runtime.admission.running, runtime.admission.waiting) == (3, 3), "they do not wait")
            assert count().status_code == 429
            answer = httpx.post(
                f"{url}/v1/indexes/fabrics/search", json={"query": "loom"}, headers=bearer(keys["other"]), timeout=60
            )
            assert answer.status_code == 200
        assert [one.result().status_code for one in waiting] == [200] * 6


# -- the parts


def test_owners_take_turns() -> None:
    queue: FairQueue[int] = FairQueue()
    for number in range(5):
        queue.append("a", number)
    queue.append("b", 10)
    queue.append("b", 11)
    order: list[int] = []
    while (waits := queue.next()) is not None:
        order.append(waits[1])
        assert queue.pop(waits[0]) == waits[1]
    assert order == [0, 10, 1, 11, 2, 3, 4]
    assert (len(queue), list(queue), queue.count("a")) == (0, [], 0)
    queue.append("a", 1)
    queue.append("b", 2)
    assert queue.next(lambda owner: owner == "b") == ("b", 2)
    queue.remove("b", 2)
    assert queue.next(lambda owner: owner == "b") is None
    assert [share(most) for most in (0, 1, 4, 32)] == [0, 1, 3, 24]


def test_an_owner_waits_for_its_own_requests_only() -> None:
    async def main() -> None:
        admission = Admission(Queues(running=4, waiting=8), Metrics(), has_owners=True)
        entered: list[str] = []

        async def enter(owner: str) -> None:
            CURRENT_OWNER.set(owner)
            await admission.enter(Deadline(30))
            entered.append(owner)

        def leave(owner: str) -> None:
            as_owner(owner, admission.leave, 0.01)

        tasks = [asyncio.create_task(enter("a")) for _ in range(6)]
        await asyncio.sleep(0)
        assert entered == ["a"] * 3  # one place is left
        await enter("b")
        tasks += [asyncio.create_task(enter(owner)) for owner in "bbc"]
        await asyncio.sleep(0)
        assert (admission.running, admission.waiting) == (4, 6)
        for owner in "aab":
            leave(owner)
            await asyncio.sleep(0.01)
        assert sorted(entered[4:]) == ["a", "b", "c"]  # each has one, though a came first
        for owner in entered[:]:
            if admission.running:
                leave(owner)
        await asyncio.sleep(0.01)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    asyncio.run(main())


def test_an_owner_that_fills_its_share_of_the_queue_is_refused_and_another_is_not() -> None:
    async def main() -> None:
        admission = Admission(Queues(running=1, waiting=4), Metrics(), has_owners=True)

        async def enter(owner: str) -> None:
            CURRENT_OWNER.set(owner)
            await admission.enter(Deadline(30))

        tasks = [asyncio.create_task(enter("a")) for _ in range(4)]
        await asyncio.sleep(0)
        with pytest.raises(OverloadedError):
            await asyncio.create_task(enter("a"))
        other = asyncio.create_task(enter("b"))
        await asyncio.sleep(0)
        assert admission.waiting == 4
        for task in (*tasks, other):
            task.cancel()
        await asyncio.gather(*tasks, other, return_exceptions=True)
        assert admission.waiting == 0

    asyncio.run(main())


class Computing:
    """Searches that compute until they are let go."""

    def __init__(self, slots: ComputeSlots, pool: ThreadPoolExecutor) -> None:
        self._slots, self._pool, self._go = slots, pool, threading.Event()
        self.owners: list[str] = []

    def run(self, owner: str) -> None:
        def compute() -> None:
            self.owners.append(owner)
            assert self._go.wait(60)

        self._slots.submit(self._pool, Job(owner, compute))

    def end(self) -> None:
        self._go.set()


def test_an_owner_without_a_slot_computes_beside_those_that_have_all() -> None:
    slots = ComputeSlots(2)
    with ThreadPoolExecutor(20) as pool:
        computing = Computing(slots, pool)
        for _ in range(4):
            computing.run("a")
        wait_until(lambda: computing.owners == ["a"] * 2 and slots.n_waiting == 2, "two of four compute")
        for number in range(EXTRA_SLOTS + 1):
            computing.run(f"b{number}")
        wait_until(lambda: len(computing.owners) == 2 + EXTRA_SLOTS, "others compute at once")
        assert slots.n_waiting == 3  # two of a, and one beyond the further slots
        computing.end()
        wait_until(lambda: not slots.n_taken, "a search did not run")
    assert sorted(computing.owners) == ["a"] * 4 + [f"b{number}" for number in range(EXTRA_SLOTS + 1)]
    assert (slots.n_taken, slots.n_waiting) == (0, 0)


def test_a_search_whose_deadline_passes_waits_for_no_slot(fabrics: Path) -> None:
    async def main() -> None:
        runtime = ServeRuntime(config_of(fabrics, queues=Queues(computing=1)))
        await runtime.start()
        go, ran = threading.Event(), list[str]()
        first = asyncio.create_task(runtime.in_slot(lambda: go.wait(60), Deadline(60)))
        await asyncio.sleep(0)
        with pytest.raises(SearchTimeoutError):
            await runtime.in_slot(lambda: ran.append("late"), Deadline(0.05))
        gone = asyncio.create_task(runtime.in_slot(lambda: ran.append("gone"), Deadline(60)))
        await asyncio.sleep(0.01)
        gone.cancel()  # its client has gone
        with pytest.raises(asyncio.CancelledError):
            await gone
        assert (runtime.slots.n_waiting, runtime.admission.running) == (0, 1)
        go.set()
        assert await first
        await runtime.stop()
        assert (ran, runtime.slots.n_taken) == ([], 0)

    asyncio.run(main())


def test_a_short_query_does_not_wait_for_a_long_text(fabrics: Path) -> None:
    config = config_of(fabrics)
    runtime = ServeRuntime(config)
    with listening(config, runtime) as url, ThreadPoolExecutor(1) as pool:
        httpx.post(f"{url}/v1/encode", json={"texts": ["x"]}, timeout=60).raise_for_status()
        encoder = runtime.loaded.encoder(None)
        go, began, encode = threading.Event(), threading.Event(), encoder._long._run

        def slowly(kind: str, pieces: list[Sequence[str]]) -> Any:
            began.set()
            assert go.wait(60)
            return encode(kind, pieces)

        encoder._long._run = slowly
        text = "x " * SHORT_CHARACTERS
        long = pool.submit(httpx.post, f"{url}/v1/encode", json={"texts": [text]}, timeout=60)
        assert began.wait(60)
        assert httpx.post(f"{url}/v1/encode", json={"texts": ["short"]}, timeout=60).status_code == 200
        assert not long.done()
        go.set()
        assert long.result().status_code == 200

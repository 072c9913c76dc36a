"""Admission and batching by themselves."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

from plait.deadline import Deadline
from plait.errors import SearchTimeoutError
from plait.serve.config import Queues
from plait.serve.protocol import OverloadedError, UnavailableError
from plait.serve.runtime.admission import Admission
from plait.serve.runtime.batching import Batcher, ComputeSlots, Job
from plait.serve.runtime.metrics import Metrics
from serve.processes import wait_until


def test_a_request_beyond_the_queue_is_refused_at_once() -> None:
    async def main() -> None:
        admission = Admission(Queues(running=1, waiting=1), Metrics())
        await admission.enter(Deadline(30))
        second = asyncio.create_task(admission.enter(Deadline(30)))
        await asyncio.sleep(0)
        with pytest.raises(OverloadedError) as refused:
            await admission.enter(Deadline(30))
        assert refused.value.retry_after >= 1
        admission.leave(0.01)
        await second
        assert (admission.running, admission.waiting) == (1, 0)

    asyncio.run(main())


def test_a_request_that_would_wait_too_long_is_refused() -> None:
    async def main() -> None:
        admission = Admission(Queues(running=1, waiting=100, max_wait=1.0), Metrics())
        await admission.enter(Deadline(30))
        admission.mean_seconds = 2.0
        with pytest.raises(OverloadedError):
            await admission.enter(Deadline(30))

    asyncio.run(main())


def test_a_request_whose_deadline_passes_leaves_the_queue() -> None:
    async def main() -> None:
        admission = Admission(Queues(running=1), Metrics())
        await admission.enter(Deadline(30))
        with pytest.raises(SearchTimeoutError):
            await admission.enter(Deadline(0.01))
        assert admission.waiting == 0
        assert not await admission.close(0.01)
        with pytest.raises(UnavailableError):
            await admission.enter(Deadline(30))

    asyncio.run(main())


def test_a_turn_passes_over_a_request_whose_client_left_in_the_same_moment() -> None:
    async def main() -> None:
        admission = Admission(Queues(running=1), Metrics())
        await admission.enter(Deadline(30))
        second, third = (asyncio.create_task(admission.enter(Deadline(30))) for _ in range(2))
        await asyncio.sleep(0)
        second.cancel()
        admission.leave(0.01)  # before the second task has run again
        await third
        with pytest.raises(asyncio.CancelledError):
            await second
        assert (admission.running, admission.waiting) == (1, 0)

    asyncio.run(main())


def test_a_request_that_is_cancelled_in_its_turn_gives_the_turn_back() -> None:
    async def main() -> None:
        admission = Admission(Queues(running=1), Metrics())
        await admission.enter(Deadline(30))
        second = asyncio.create_task(admission.enter(Deadline(30)))
        await asyncio.sleep(0)
        admission.leave(0.01)
        second.cancel()
        with pytest.raises(asyncio.CancelledError):
            await second
        assert (admission.running, admission.waiting) == (0, 0)

    asyncio.run(main())


class Model:
    """Reads texts when it is let go, and remembers its calls."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, list[str]]] = []
        self.go, self.reached = threading.Event(), threading.Event()

    def __call__(self, kind: str, pieces: list[Sequence[str]]) -> list[list[str]]:
        self.calls.append((kind, [text for piece in pieces for text in piece]))
        self.reached.set()
        assert self.go.wait(30)
        if any("bad" in text for piece in pieces for text in piece):
            raise ValueError("bad text")
        return [[text.upper() for text in piece] for piece in pieces]


def batcher(model: Model, max_waiting: int = 100) -> Batcher[str]:
    return Batcher(
        "m",
        model,
        kinds=("query", "document"),
        size=len,
        max_items=4,
        wait_seconds=0.0,
        max_waiting=max_waiting,
        slots=ComputeSlots(4),
        in_flight=lambda: 1,
        metrics=Metrics(),
    )


def test_what_waits_is_read_in_one_call_and_queries_come_first() -> None:
    model = Model()
    made = batcher(model)
    with ThreadPoolExecutor(8) as pool:
        first = pool.submit(made.call, "query", ["a"])
        assert model.reached.wait(30)
        documents = pool.submit(made.call, "document", ["d1", "d2", "d3", "d4", "d5"])
        wait_until(lambda: made._n_waiting == 5, "the documents do not wait")
        queries = [pool.submit(made.call, "query", [text]) for text in "bcd"]
        wait_until(lambda: made._n_waiting == 8, "the queries do not wait")
        model.go.set()
        assert first.result() == [["A"]]
        assert [one.result() for one in queries] == [[["B"]], [["C"]], [["D"]]]
        assert documents.result() == [["D1", "D2", "D3", "D4"], ["D5"]]
    made.close()
    assert [(kind, len(texts)) for kind, texts in model.calls] == [
        ("query", 1),
        ("query", 3),
        ("document", 4),
        ("document", 1),
    ]


def test_a_bad_text_fails_its_own_request_alone() -> None:
    model = Model()
    made = batcher(model)
    with ThreadPoolExecutor(4) as pool:
        pool.submit(made.call, "query", ["a"])
        assert model.reached.wait(30)
        bad, good = pool.submit(made.call, "query", ["bad"]), pool.submit(made.call, "query", ["good"])
        wait_until(lambda: made._n_waiting == 2, "the queries do not wait")
        model.go.set()
        assert good.result() == [["GOOD"]]
        with pytest.raises(ValueError, match="bad text"):
            bad.result()
    made.close()


def test_texts_beyond_the_queue_of_a_model_are_refused() -> None:
    model = Model()
    made = batcher(model, max_waiting=2)
    with ThreadPoolExecutor(4) as pool:
        pool.submit(made.call, "query", ["a"])
        assert model.reached.wait(30)
        pool.submit(made.call, "query", ["b", "c"])
        wait_until(lambda: made._n_waiting == 2, "the queries do not wait")
        with pytest.raises(OverloadedError):
            made.call("query", ["d"])
        model.go.set()
    made.close()


def test_slots_go_to_searches_that_have_begun_and_then_in_order() -> None:
    slots, order, threads = ComputeSlots(1), list[str](), list[int]()
    begun, go, end = threading.Event(), threading.Event(), threading.Event()

    def first() -> None:
        with slots.released():
            begun.set()
            assert go.wait(30)
        order.append("begun")

    def hold() -> None:
        assert end.wait(30)
        threads.append(threading.get_ident())

    def search(name: str) -> None:
        order.append(name)
        threads.append(threading.get_ident())

    with ThreadPoolExecutor(8) as pool:
        slots.submit(pool, Job("", first))
        assert begun.wait(30)
        slots.submit(pool, Job("", hold))
        for at in range(3):
            slots.submit(pool, Job("", partial(search, f"new {at}")))
        assert len(slots._new) == 3
        go.set()
        wait_until(lambda: len(slots._begun) == 1, "the first search does not wait for a slot")
        end.set()
        wait_until(lambda: len(order) == 4, "a search did not run")
    assert order == ["begun", "new 0", "new 1", "new 2"]
    assert len(set(threads[1:])) == 1  # the thread that has a slot goes on with the next search
    assert slots.n_taken == 0


def test_a_search_that_stops_waiting_for_a_slot_does_not_keep_it() -> None:
    slots, go, ran = ComputeSlots(1), threading.Event(), list[str]()
    with ThreadPoolExecutor(2) as pool:
        first, second = Job("", lambda: ran.append(f"first {go.wait(30)}")), Job("", lambda: ran.append("second"))
        slots.submit(pool, first)
        slots.submit(pool, second)
        assert slots.give_up(second)
        assert not slots.give_up(second)
        assert not slots.give_up(first)
        assert not slots.n_waiting
        go.set()
    assert ran == ["first True"]
    assert slots.n_taken == 0

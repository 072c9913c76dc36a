"""Slow and lost replicas: a second request, another try, and answers without the shards that are gone."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from plait.cluster.hedging import HedgedFanOut
from plait.deadline import deadline_scope
from plait.errors import FilterError, SearchTimeoutError


class Replicas:
    """Each call of a shard takes the next answer of its list: a value, an error, or an event to wait for first."""

    def __init__(self, answers: dict[int, list[Any]]) -> None:
        self.answers, self.calls = answers, list[int]()
        self.pool = ThreadPoolExecutor(16)

    def submit(self, shard: int, method: str, arguments: Sequence[Any]) -> Future[Any]:
        assert (method, arguments) == ("count", (None,))
        self.calls.append(shard)
        waiting = self.answers[shard]
        return self.pool.submit(self._answer, waiting.pop(0) if len(waiting) > 1 else waiting[0])

    def _answer(self, answer: Any) -> Any:
        if isinstance(answer, BaseException):
            raise answer
        if isinstance(answer, threading.Event):
            answer.wait(30)
            return "late"
        return answer


@pytest.fixture
def never() -> Iterator[threading.Event]:
    event = threading.Event()
    yield event
    event.set()


def call(replicas: Replicas, **options: Any) -> tuple[dict[int, Any], HedgedFanOut]:
    fan_out = HedgedFanOut(
        len(replicas.answers), replicas.submit, is_lost=lambda error: isinstance(error, ConnectionError), **options
    )
    return fan_out.call("count", dict.fromkeys(replicas.answers, (None,))), fan_out


def test_every_shard_is_asked_once_if_all_answer() -> None:
    replicas = Replicas({0: ["a"], 1: ["b"], 2: ["c"]})
    answers, fan_out = call(replicas)
    assert answers == {0: "a", 1: "b", 2: "c"}
    assert (sorted(replicas.calls), fan_out.n_hedged, fan_out.n_lost) == ([0, 1, 2], 0, 0)


def test_a_slow_replica_is_covered_by_a_second_request(never: threading.Event) -> None:
    replicas = Replicas({0: ["a"], 1: [never, "second"]})
    answers, fan_out = call(replicas, hedge_after=0.01)
    assert answers == {0: "a", 1: "second"}
    assert fan_out.n_hedged >= 1


def test_a_lost_request_is_sent_again() -> None:
    replicas = Replicas({0: [ConnectionError(), ConnectionError(), "a"]})
    answers, fan_out = call(replicas)
    assert answers == {0: "a"}
    assert fan_out.n_lost == 2


def test_a_shard_that_does_not_answer_in_time_is_absent(never: threading.Event) -> None:
    assert call(Replicas({0: ["a"], 1: [never]}), timeout=0.2)[0] == {0: "a"}
    assert call(Replicas({0: ["a"], 1: [ConnectionError()]}), timeout=0.2)[0] == {0: "a"}


def test_an_error_of_the_request_is_raised() -> None:
    with pytest.raises(FilterError, match="wrong"):
        call(Replicas({0: ["a"], 1: [FilterError("wrong")]}))


def test_a_deadline_that_ends_before_any_answer_is_a_timeout(never: threading.Event) -> None:
    with deadline_scope(0.1), pytest.raises(SearchTimeoutError):
        call(Replicas({0: [never]}))


def test_the_delay_follows_the_durations() -> None:
    replicas = Replicas({0: ["a"]})
    fan_out = HedgedFanOut(1, replicas.submit, is_lost=lambda _: False, timeout=8.0)
    assert fan_out.hedge_seconds() == 2.0
    fan_out._durations.extend([0.1] * 95 + [0.3] * 5)
    assert fan_out.hedge_seconds() == pytest.approx(0.6)

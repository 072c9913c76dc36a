"""A small version of `python -m faults.hostile_clients`, and what it counts as a failure."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

import pytest

from faults.good_clients import Request, p99
from faults.hostile_clients import Line, problems_of, run
from faults.hostile_requests import ATTACKS

# The ratio of times is measured by the command, on a quiet machine.
ANY_RATIO = float("inf")


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads the memory of processes from /proc")
@pytest.mark.skipif(sys.platform == "win32", reason="plait serve needs Unix sockets")
def test_a_server_under_attack_answers_good_clients_and_loses_no_write() -> None:
    names = ["bodies without key", "broken HTTP", "killed writer"]
    lines = list(run(names, seconds=1.0, seed=1, max_ratio=ANY_RATIO))
    assert len(lines) == len(names) + 2
    assert [line for line, is_good in lines if not is_good] == []
    assert "none is lost" in lines[-1][0]


GOOD = [Request(0.0, 0.1, "search", "200", False), Request(0.0, 0.1, "write", "200", False, "a")]


def line(
    answers: dict[str, int], *, ratio: float = 1.0, failed: str | None = None, n_cut: int = 0, n_restarts: int = 0
) -> Line:
    return Line(
        "attack",
        "what was sent",
        Counter(answers),
        n_good=2,
        ratio=ratio,
        failed=Counter({failed: 1} if failed else {}),
        n_cut=n_cut,
        n_restarts=n_restarts,
    )


def test_what_should_be_is_no_problem() -> None:
    assert list(problems_of(line({"413": 3, "closed": 1}), ATTACKS["100 MB bodies"], GOOD, 2.0)) == []
    assert list(problems_of(line({"408, then closed": 3}), ATTACKS["slow bodies"], GOOD, 2.0)) == []
    assert list(problems_of(line({"200": 3}, n_cut=2), ATTACKS["killed worker"], GOOD, 2.0)) == []


@pytest.mark.parametrize(
    ("seen", "message"),
    [
        (line({"413": 3, "500": 1}), "answers that should not be: 500"),
        (line({"200": 1}), "answers that should not be: 200"),
        (line({}), "nothing was sent"),
        (line({"413": 1}, failed="429"), "good requests failed"),
        (line({"413": 1}, n_cut=1), "connections of good clients broke"),
        (line({"413": 1}, n_restarts=1), "a process ended"),
        (line({"413": 1}, ratio=2.5), "more than 2 times"),
        (line({"413": 1}, ratio=float("nan")), "more than 2 times"),
    ],
)
def test_what_should_not_be_is_a_problem(seen: Line, message: str) -> None:
    (problem,) = problems_of(seen, ATTACKS["100 MB bodies"], GOOD, 2.0)
    assert message in problem


def test_an_attack_without_good_searches_shows_nothing() -> None:
    problems = list(problems_of(line({"413": 1}), ATTACKS["100 MB bodies"], GOOD[1:], 2.0))
    assert problems == ["no good search was answered"]


def test_p99_is_the_slowest_of_a_hundred_searches() -> None:
    requests = [Request(0.0, float(number), "search", "200", False) for number in range(200)]
    assert p99([*requests, Request(0.0, 999.0, "write", "200", False)]) == 198.0

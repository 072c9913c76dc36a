"""Threads share one index, in one process and in several: every answer is one of a committed state. The checker notices
an index that closes snapshots too early, and answers of two states."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from faults.threads import Answer, Checker, Documents, Log, digest


def run(*options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "faults.threads", "--threads", "4", "--seconds", "2", "--commits", "24", *options]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=300, check=False, cwd=Path(__file__).parents[1]
    )


@pytest.mark.parametrize("n_processes", [1, 2])
def test_every_answer_is_one_of_a_committed_state(n_processes: int) -> None:
    done = run("--processes", str(n_processes))
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.endswith(" answers, 0 errors, all of a committed state\n")
    assert " 24 commits: " in done.stdout
    assert int(done.stdout.partition("commits: ")[2].split()[0]) > 24


def test_an_index_that_closes_what_others_read_is_noticed() -> None:
    done = run("--variant", "closes")
    assert done.returncode == 1
    assert ", 0 errors" not in done.stdout
    assert "closed" in done.stderr


def test_answers_of_two_states_are_noticed() -> None:
    done = run("--variant", "mixes")
    assert done.returncode == 1
    assert "of no committed state" in done.stdout


A: Documents = {"w0-1": 1}
B: Documents = {"w0-1": 1, "w0-2": 2}
C: Documents = {"w1-1": 3}


def answer(begin: float, *documents: Documents) -> Answer:
    together = {id: number for part in documents for id, number in part.items()}
    by_writer = {
        writer: digest((id, number) for id, number in together.items() if id.startswith(writer))
        for writer in ("w0", "w1")
    }
    return Answer(begin, begin + 0.5, "bm25", by_writer)


def problems_of(*answers: Answer) -> list[str]:
    """w0 wrote A from 1 to 2 and B from 5 to 9; w1, of another process, wrote C from 5 to 9."""
    first = Log(0, list(answers), [(3, 3.1)], {"w0": [(0, 0, {}), (1, 2, A), (5, 9, B)]})
    return Checker([first, Log(1, writes={"w1": [(0, 0, {}), (5, 9, C)]})]).wrong_answers()


def test_answers_of_states_in_order_are_right() -> None:
    assert problems_of(answer(1), answer(4, A), answer(6, A), answer(7, B), answer(8, B, C), answer(10, B, C)) == []
    assert problems_of(answer(10, B)) == []  # not refreshed since


@pytest.mark.parametrize(
    ("answers", "message"),
    [
        ([answer(3)], "none of its states 1 to 1"),  # its own write had returned
        ([answer(4, A, C)], "none of its states 0 to 0"),  # it had not begun
        ([answer(7, {"w0-2": 2})], "none of its states"),  # half of a commit
        ([answer(7, B), answer(8, A)], "went back"),
        ([answer(6, B), answer(6, A, C)], "cannot both be states"),
    ],
)
def test_an_answer_that_no_order_of_commits_explains_is_wrong(answers: list[Answer], message: str) -> None:
    assert any(message in problem for problem in problems_of(*answers))

"""A small version of `python -m faults.hostile_filters`."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from faults.hostile_filters import make_index, run

DEADLINE = 0.1


@pytest.mark.skipif(sys.platform == "win32", reason="stops a process by a signal")
def test_hostile_filters_end_in_time_and_others_do_not_wait(tmp_path: Path) -> None:
    with make_index(tmp_path / "index") as index:
        outcome = run(index, 30, DEADLINE)
    control, beside = outcome.p99
    assert outcome.count == 30
    assert outcome.n_ended > 3
    assert outcome.worst < DEADLINE + 1
    assert beside < 3 * control + 0.05  # the command measures; this notices a search that waits for a filter

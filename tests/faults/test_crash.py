"""An index that is killed at any point loses no commit. `make torture` does the same ten times as long."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

N_POINTS = 110


def torture(*arguments: object) -> subprocess.CompletedProcess[str]:
    """A process of its own, since it forks and changes what `os` and SQLite do."""
    command = [sys.executable, "-m", "faults.torture", *map(str, arguments)]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=600, check=False, cwd=Path(__file__).parents[1]
    )


def test_more_than_a_hundred_crashes_lose_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    done = torture("--points", N_POINTS, "--seed", 6)
    assert done.returncode == 0, done.stdout + done.stderr
    assert int(done.stdout.split()[0]) >= N_POINTS
    with capsys.disabled():
        print(f"\n{done.stdout.strip()}")


def test_a_disk_that_does_not_sync_is_detected() -> None:
    done = torture("--points", 40, "--kinds", "lying")
    assert done.returncode == 1
    assert "lost at: seed" in done.stderr

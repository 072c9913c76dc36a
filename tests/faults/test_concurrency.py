"""Four processes search while a fifth writes: every result matches a committed state."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def test_every_result_matches_a_committed_state() -> None:
    command = [sys.executable, "-m", "faults.concurrency", "--seconds", "3"]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=300, check=False, cwd=Path(__file__).parents[1]
    )
    assert done.returncode == 0, done.stdout + done.stderr
    n_answers, n_states = int(done.stdout.split()[0]), int(done.stdout.split()[-5])
    assert n_answers > n_states > 1

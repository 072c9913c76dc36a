"""Files that another program changes while they are mapped."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import pytest

from faults.changing import change_while_searching


def test_searches_survive_bytes_that_change_in_mapped_files(tmp_path: Path) -> None:
    status, printed, n_written = change_while_searching(tmp_path, 3, 0)
    assert status == 0, printed
    assert n_written > 0
    assert int(printed.split()[0]) > 0


@pytest.mark.skipif(sys.platform != "linux", reason="other systems may send another signal")
def test_truncating_a_mapped_file_ends_the_process_as_the_documentation_says(tmp_path: Path) -> None:
    status, _, _ = change_while_searching(tmp_path, 3, 0, truncate=True)
    assert status == -signal.SIGBUS

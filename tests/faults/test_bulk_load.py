"""Many batches: few segments, and an index that opens with few file descriptors."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from faults import bulk_load


def test_a_thousand_batches_of_a_hundred_megabytes_leave_few_segments() -> None:
    most, rewritten = bulk_load.simulate([bulk_load.BATCH_BYTES] * 1000)
    assert most <= 40
    assert rewritten < 3.5  # log of 1000 to the base of 8


def test_batches_of_many_sizes_leave_few_segments() -> None:
    most, rewritten = bulk_load.simulate(bulk_load.batches_of_many_sizes(500, 0))
    assert most <= 40
    assert rewritten < 4


@pytest.mark.skipif(sys.platform == "win32", reason="the limit is of Unix")
def test_segments_open_with_fewer_descriptors_than_files(tmp_path: Path) -> None:
    lines = bulk_load.run(40, 60, 64, tmp_path)
    assert lines[0].startswith("40 batches of 100 MB (simulated): at most ")
    assert lines[1] == "60 segments without a merge: opens, searches and compacts to 1 with ulimit -n 64"

"""Random values in segment files under valid checksums."""

from __future__ import annotations

from pathlib import Path

from faults.fuzz import fuzz


def test_a_file_with_random_values_is_refused_or_searched(tmp_path: Path) -> None:
    counts = fuzz(60, 3, tmp_path)
    assert min(counts["refused"], counts["answered"]) > 5

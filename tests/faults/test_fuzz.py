"""Values of segment files that nobody wrote, under checksums that say all is well."""

from __future__ import annotations

from pathlib import Path

from faults.fuzz import fuzz


def test_a_file_with_any_values_is_refused_or_answers(tmp_path: Path) -> None:
    counts = fuzz(60, 3, tmp_path)
    assert min(counts["refused"], counts["answered"]) > 5

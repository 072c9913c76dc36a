"""Bits that change on the disk after a file was verified."""

from __future__ import annotations

from pathlib import Path

import pytest

from faults.bit_rot import REWRITES, bit_rot


@pytest.mark.parametrize("rewrite", REWRITES)
def test_a_flipped_bit_is_refused_by_all_that_rewrites_or_copies(tmp_path: Path, rewrite: str) -> None:
    assert bit_rot(25, 1, tmp_path, rewrite) == {"refused": 25}

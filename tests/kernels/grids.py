"""Grids of sizes. A default run takes the edges of lanes, blocks and tiles; `pytest -m full_grid` takes the rest."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def grid(edges: Iterable[Any], *, rest: Iterable[Any]) -> list[Any]:
    """Parameters of one axis: cases with a value of `rest` on any axis are marked `full_grid`."""
    return [*edges, *(pytest.param(value, marks=pytest.mark.full_grid) for value in rest)]


DIMS = grid([8, 24, 128], rest=[16, 96, 256])  # of the integer kernels: multiples of 8
N_QUERY = grid([1, 8, 9, 33], rest=[7, 22, 32, 100])

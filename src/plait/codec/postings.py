"""Postings: for each cell, the items that have a row in it. Items ascend within a cell, and stand there once."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, eq=False)
class Postings:
    """Cell c holds items[offsets[c]:offsets[c + 1]]."""

    items: NDArray[np.uint32]
    offsets: NDArray[np.int64]  # (cells + 1,)

    @classmethod
    def of(cls, cells: NDArray[np.uint16] | NDArray[np.uint32], offsets: NDArray[np.int64], n_cells: int) -> Postings:
        """From the cell of each row, where item i owns rows offsets[i] to offsets[i + 1]."""
        items = np.repeat(np.arange(len(offsets) - 1, dtype=np.uint32), np.diff(offsets))
        order = np.argsort(cells, kind="stable")  # rows are in the order of their items, and stay so within a cell
        cells, items = cells[order], items[order]
        first = np.ones(len(items), bool)
        first[1:] = (cells[1:] != cells[:-1]) | (items[1:] != items[:-1])
        starts = np.searchsorted(cells[first], np.arange(n_cells + 1))
        return cls(items[first], starts.astype(np.int64))

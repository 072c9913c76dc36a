"""Postings: for each cell, the items that have a row in it, or those rows themselves. Both ascend within a cell."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, eq=False)
class Postings:
    """Cell c holds items[offsets[c]:offsets[c + 1]], each item once."""

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


@dataclass(frozen=True, slots=True, eq=False)
class RowPostings:
    """Cell c holds rows[offsets[c]:offsets[c + 1]], and `items` has the owner of each."""

    rows: NDArray[np.int64]
    items: NDArray[np.uint32]
    offsets: NDArray[np.int64]  # (cells + 1,)

    @classmethod
    def of(
        cls, cells: NDArray[np.uint16] | NDArray[np.uint32], owners: NDArray[np.uint32], n_cells: int
    ) -> RowPostings:
        """From the cell of each row, below n_cells, and its owner."""
        rows = np.argsort(cells, kind="stable")
        sizes = np.bincount(cells, minlength=n_cells)
        return cls(rows, owners[rows], np.concatenate([[0], np.cumsum(sizes)]))

    @property
    def sizes(self) -> NDArray[np.int64]:
        """(cells,) rows in each."""
        return np.diff(self.offsets)

    def only(self, keep: NDArray[np.bool_]) -> RowPostings:
        """Those of the items that are kept; `keep` has a value for each item."""
        kept = keep[self.items]
        before = np.concatenate([[0], np.cumsum(kept)])
        return RowPostings(self.rows[kept], self.items[kept], before[self.offsets])

    def of_cells(self, cells: NDArray[np.integer]) -> tuple[NDArray[np.int64], NDArray[np.uint32], NDArray[np.int64]]:
        """The rows of these cells, one cell after the other, their owners, and how many rows each cell has."""
        begins = self.offsets[cells]
        lengths = self.offsets[cells + 1] - begins
        places = np.repeat(begins - (np.cumsum(lengths) - lengths), lengths) + np.arange(lengths.sum())
        return self.rows[places], self.items[places], lengths

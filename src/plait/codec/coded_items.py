"""Compressed multi vectors of a segment: coded rows, the items that own them, and the postings of each cell."""

from __future__ import annotations

import threading
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from plait.codec.residual import ResidualCodec
from plait.locks import ForkSafeLock, once_property
from plait.scoring.residual import (
    CodedRows,
    ResidualQuery,
    Tally,
    check_cells,
    residual_maxsim,
    residual_maxsim_strided,
)
from plait.scoring.xtr import ItemTally


@dataclass(frozen=True, slots=True, eq=False)
class Postings:
    """The items with a row in cell c are items[offsets[c]:offsets[c + 1]], ascending, each once."""

    items: NDArray[np.uint32]
    offsets: NDArray[np.int64]  # (cells + 1,)

    @classmethod
    def of(cls, cells: NDArray[np.uint16] | NDArray[np.uint32], offsets: NDArray[np.int64], n_cells: int) -> Postings:
        """From the cell of each row; item i owns rows offsets[i] to offsets[i + 1]."""
        items = np.repeat(np.arange(len(offsets) - 1, dtype=np.uint32), np.diff(offsets))
        return cls.of_rows(cells, items, n_cells)

    @classmethod
    def of_rows(
        cls, cells: NDArray[np.uint16] | NDArray[np.uint32], items: NDArray[np.uint32], n_cells: int
    ) -> Postings:
        """From the cell and the item of each row; items ascend."""
        order = np.argsort(cells, kind="stable")  # rows are in the order of their items, and stay so within a cell
        cells, items = cells[order], items[order]
        first = np.ones(len(items), bool)
        first[1:] = (cells[1:] != cells[:-1]) | (items[1:] != items[:-1])
        starts = np.searchsorted(cells[first], np.arange(n_cells + 1))
        return cls(items[first], starts.astype(np.int64))


@dataclass(frozen=True, slots=True, eq=False)
class RowPostings:
    """The rows of cell c are rows[offsets[c]:offsets[c + 1]], ascending; `items` has the owner of each row."""

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
        """(cells,): the number of rows in each cell."""
        return np.diff(self.offsets)

    def only(self, keep: NDArray[np.bool_]) -> RowPostings:
        """The postings of the items for which `keep` (items,) is true."""
        is_kept = keep[self.items]
        before = np.concatenate([[0], np.cumsum(is_kept)])
        return RowPostings(self.rows[is_kept], self.items[is_kept], before[self.offsets])

    def of_cells(self, cells: NDArray[np.integer]) -> tuple[NDArray[np.int64], NDArray[np.uint32], NDArray[np.int64]]:
        """The rows of `cells`, one cell after the other; their owners; and the number of rows of each cell."""
        begins = self.offsets[cells]
        lengths = self.offsets[cells + 1] - begins
        positions = np.repeat(begins - (np.cumsum(lengths) - lengths), lengths) + np.arange(lengths.sum())
        return self.rows[positions], self.items[positions], lengths


class CodedItems:
    """Items of compressed rows: item i owns rows offsets[i] to offsets[i + 1], or `stride` rows each."""

    def __init__(
        self,
        codec: ResidualCodec,
        rows: CodedRows,
        offsets: NDArray[np.int64] | None,
        postings: Postings,
        *,
        codes_8bit: tuple[ResidualCodec, CodedRows] | None = None,
        stride: int | None = None,
    ) -> None:
        """Takes either `offsets` or `stride`, the number of rows of every item. `codes_8bit` are the same rows in 8
        bits, for the last stage of a search."""
        assert (offsets is None) != (stride is None)
        self.codec, self.rows, self.postings, self.codes_8bit = codec, rows, postings, codes_8bit
        self.stride, self._offsets = stride, offsets
        self._thread = threading.local()
        self._lock = ForkSafeLock()
        self._owners: NDArray[np.uint32] | None = None
        self._row_postings: RowPostings | None = None

    def __len__(self) -> int:
        if self.stride is not None:
            return len(self.rows.codes) // self.stride
        return len(self.offsets) - 1

    @once_property
    def offsets(self) -> NDArray[np.int64]:
        """(items + 1,): the first row of each item, and the end. Computed if items have a stride."""
        if self.stride is not None:
            return np.arange(len(self) + 1) * self.stride
        assert self._offsets is not None
        return self._offsets

    @property
    def tally(self) -> Tally:
        """The workspace of `Tally.gather` for this thread."""
        if not hasattr(self._thread, "tally"):
            self._thread.tally = Tally(len(self))
        tally: Tally = self._thread.tally
        return tally

    @property
    def item_tally(self) -> ItemTally:
        """The workspace of `ItemTally.best_items` for this thread."""
        if not hasattr(self._thread, "item_tally"):
            self._thread.item_tally = ItemTally(len(self))
        tally: ItemTally = self._thread.item_tally
        return tally

    @property
    def owners(self) -> NDArray[np.uint32]:
        """(rows,): the item of each row. Computed on first use."""
        with self._lock:
            if self._owners is None:
                self._owners = np.repeat(np.arange(len(self), dtype=np.uint32), np.diff(self.offsets))
            return self._owners

    @property
    def row_postings(self) -> RowPostings:
        """The rows of each cell. Computed on first use: one sort of all rows, and 12 bytes for each."""
        owners = self.owners
        with self._lock:
            if self._row_postings is None:
                assert self.rows.cells is not None
                check_cells(self.rows.cells, len(self.codec.codebook))
                self._row_postings = RowPostings.of(self.rows.cells, owners, len(self.codec.codebook))
            return self._row_postings

    def bounds(self, items: NDArray[np.integer] | None) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The first row of each item and the row after its last; of all items by default."""
        if items is None:
            return self.offsets[:-1], self.offsets[1:]
        if self.stride is not None:
            begins = items.astype(np.int64) * self.stride
            return begins, begins + self.stride
        return self.offsets[items], self.offsets[items + 1]

    def maxsim(self, query: ResidualQuery, rows: CodedRows, items: NDArray[np.int64] | None) -> NDArray[np.float32]:
        """The MaxSim of each item in `items`, or of all items. `rows` are `self.rows` or the rows of `codes_8bit`."""
        if self.stride is not None:
            return residual_maxsim_strided(query, rows, self.stride, np.arange(len(self)) if items is None else items)
        return residual_maxsim(query, rows, *self.bounds(items))

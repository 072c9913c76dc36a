"""Items of compressed rows: what a segment holds of the multi strand once it is compressed."""

from __future__ import annotations

import threading
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from plait.codec.postings import Postings, RowPostings
from plait.codec.residual import ResidualCodec
from plait.scoring.residual import CodedRows, ResidualQuery, Tally, check_cells, residual_fixed, residual_maxsim
from plait.scoring.xtr import ItemTally


class CodedItems:
    """Items of compressed rows: item i owns rows offsets[i] to offsets[i + 1], or with a stride, as many each."""

    def __init__(
        self,
        codec: ResidualCodec,
        rows: CodedRows,
        offsets: NDArray[np.int64] | None,
        postings: Postings,
        *,
        fine: tuple[ResidualCodec, CodedRows] | None = None,
        stride: int | None = None,
    ) -> None:
        """Either offsets, or the stride: the rows of every item."""
        assert (offsets is None) != (stride is None)
        self.codec, self.rows, self.postings, self.fine = codec, rows, postings, fine
        self.stride, self._offsets = stride, offsets
        self._own = threading.local()
        self._making = threading.Lock()
        self._owners: NDArray[np.uint32] | None = None
        self._row_postings: RowPostings | None = None

    def __len__(self) -> int:
        if self.stride is not None:
            return len(self.rows.codes) // self.stride
        return len(self.offsets) - 1

    @cached_property
    def offsets(self) -> NDArray[np.int64]:
        """The first row of each item, and the end; worked out where items have a stride."""
        if self.stride is not None:
            return np.arange(len(self) + 1) * self.stride
        assert self._offsets is not None
        return self._offsets

    @property
    def tally(self) -> Tally:
        """Room for one query; each thread has its own."""
        if not hasattr(self._own, "tally"):
            self._own.tally = Tally(len(self))
        tally: Tally = self._own.tally
        return tally

    @property
    def item_tally(self) -> ItemTally:
        """The same for searches that find rows rather than items."""
        if not hasattr(self._own, "item_tally"):
            self._own.item_tally = ItemTally(len(self))
        tally: ItemTally = self._own.item_tally
        return tally

    @property
    def owners(self) -> NDArray[np.uint32]:
        """The item of each row. Made when first asked for."""
        with self._making:
            if self._owners is None:
                self._owners = np.repeat(np.arange(len(self), dtype=np.uint32), np.diff(self.offsets))
            return self._owners

    @property
    def row_postings(self) -> RowPostings:
        """The rows of each cell. Made when first asked for: one sort of all rows, and 12 bytes for each."""
        owners = self.owners
        with self._making:
            if self._row_postings is None:
                assert self.rows.cells is not None
                check_cells(self.rows.cells, len(self.codec.codebook))
                self._row_postings = RowPostings.of(self.rows.cells, owners, len(self.codec.codebook))
            return self._row_postings

    def bounds(self, items: NDArray[np.integer] | None) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The first row of each item, and the one after its last."""
        if items is None:
            return self.offsets[:-1], self.offsets[1:]
        if self.stride is not None:
            begins = items.astype(np.int64) * self.stride
            return begins, begins + self.stride
        return self.offsets[items], self.offsets[items + 1]

    def maxsim(self, query: ResidualQuery, rows: CodedRows, items: NDArray[np.int64] | None) -> NDArray[np.float32]:
        """The score of each item that is named, or of all, by `rows`: the plain or the fine ones of these items."""
        if self.stride is not None:
            return residual_fixed(query, rows, self.stride, np.arange(len(self)) if items is None else items)
        return residual_maxsim(query, rows, *self.bounds(items))

"""Items of compressed rows: what a segment holds of the multi strand once it is compressed."""

from __future__ import annotations

import threading

import numpy as np
from numpy.typing import NDArray

from plait.codec.postings import Postings, RowPostings
from plait.codec.residual import ResidualCodec
from plait.scoring.impute import ItemTally
from plait.scoring.integer import CodedRows, Tally, check_cells


class CodedItems:
    """Items of compressed rows: item i owns rows offsets[i] to offsets[i + 1]."""

    def __init__(
        self,
        codec: ResidualCodec,
        rows: CodedRows,
        offsets: NDArray[np.int64],
        postings: Postings,
        *,
        fine: tuple[ResidualCodec, CodedRows] | None = None,
    ) -> None:
        self.codec, self.rows, self.offsets, self.postings, self.fine = codec, rows, offsets, postings, fine
        self._own = threading.local()
        self._making = threading.Lock()
        self._owners: NDArray[np.uint32] | None = None
        self._row_postings: RowPostings | None = None

    def __len__(self) -> int:
        return len(self.offsets) - 1

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
        return self.offsets[items], self.offsets[items + 1]

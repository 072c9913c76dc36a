"""The items of one segment that may be found, in the forms that the methods of search need them."""

from __future__ import annotations

import math
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from plait.codec.coded_items import CodedItems, RowPostings


class Chosen:
    """Some items, or all of them. A method searches as if the index held nothing else: cells have the sizes that they
    have without the others, and the rarer the items are, the more cells are read. Made once for all queries."""

    def __init__(
        self, items: CodedItems, numbers: NDArray[np.int64] | None = None, bits: NDArray[np.uint8] | None = None
    ) -> None:
        """`numbers` ascend; None is all items. `bits` are the same as a bit for each item, where they are known."""
        self._items, self.numbers, self._bits = items, numbers, bits

    def __len__(self) -> int:
        return len(self._items) if self.numbers is None else len(self.numbers)

    @cached_property
    def bits(self) -> NDArray[np.uint8] | None:
        """A bit for each item, as the kernels read them; None where all are chosen."""
        if self.numbers is None or self._bits is not None:
            return self._bits
        return np.packbits(self._keep, bitorder="little")

    @cached_property
    def row_postings(self) -> RowPostings:
        """The rows of each cell that are of chosen items."""
        whole = self._items.row_postings
        return whole if self.numbers is None else whole.only(self._keep)

    @cached_property
    def rows(self) -> NDArray[np.int64]:
        """All rows of the chosen items, ascending."""
        n_rows = len(self._items.rows.codes)
        return np.arange(n_rows) if self.numbers is None else np.flatnonzero(self._keep[self._items.owners])

    def n_cells(self, n_probe: int) -> int:
        """How many cells to read where an index of the chosen items alone would read `n_probe`."""
        share = len(self) / max(len(self._items), 1)
        return max(1, min(len(self._items.codec.codebook), math.ceil(n_probe / max(share, 1e-9))))

    @property
    def _keep(self) -> NDArray[np.bool_]:
        keep = np.zeros(len(self._items), bool)
        keep[self.numbers] = True
        return keep

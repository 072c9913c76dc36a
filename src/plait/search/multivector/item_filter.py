"""`ItemFilter`: the items of one compressed segment that may be found, in the forms that search methods need."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from plait.codec.coded_items import CodedItems, RowPostings
from plait.locks import once_property


class ItemFilter:
    """Some items of a segment, or all. A method searches as if the index held nothing else: cells have the sizes that
    they have without the other items, and the rarer the items, the more cells are read. Made once for all queries."""

    def __init__(
        self, items: CodedItems, numbers: NDArray[np.int64] | None = None, bits: NDArray[np.uint8] | None = None
    ) -> None:
        """`numbers` ascend; None: all items. `bits` are the same as one bit for each item, if they are known."""
        self._items, self.numbers, self._bits = items, numbers, bits

    def __len__(self) -> int:
        return len(self._items) if self.numbers is None else len(self.numbers)

    @once_property
    def bits(self) -> NDArray[np.uint8] | None:
        """One bit for each item, as the kernels read them; None: all items."""
        if self.numbers is None or self._bits is not None:
            return self._bits
        return np.packbits(self._accepted, bitorder="little")

    @once_property
    def row_postings(self) -> RowPostings:
        """The rows of each cell that belong to accepted items."""
        postings = self._items.row_postings
        return postings if self.numbers is None else postings.only(self._accepted)

    @once_property
    def rows(self) -> NDArray[np.int64]:
        """All rows of the accepted items, ascending."""
        n_rows = len(self._items.rows.codes)
        return np.arange(n_rows) if self.numbers is None else np.flatnonzero(self._accepted[self._items.owners])

    @property
    def _accepted(self) -> NDArray[np.bool_]:
        accepted = np.zeros(len(self._items), bool)
        accepted[self.numbers] = True
        return accepted

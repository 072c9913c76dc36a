"""Items of compressed rows: what a segment holds of the multi strand once it is compressed."""

from __future__ import annotations

import threading

import numpy as np
from numpy.typing import NDArray

from plait.codec.postings import Postings
from plait.codec.residual import ResidualCodec
from plait.scoring.integer import CodedRows, Tally


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

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def tally(self) -> Tally:
        """Room for one query; each thread has its own."""
        if not hasattr(self._own, "tally"):
            self._own.tally = Tally(len(self))
        tally: Tally = self._own.tally
        return tally

    def bounds(self, items: NDArray[np.integer] | None) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The first row of each item, and the one after its last."""
        if items is None:
            return self.offsets[:-1], self.offsets[1:]
        return self.offsets[items], self.offsets[items + 1]

"""Residual codes: what is left of a row when its centroid is taken away, in a few bits a dimension.

All levels of a dimension are equally far apart, so a code is a small number that the kernels multiply as it is: no
table, no decoding to floats. On residuals, which are close to normal, even steps of the right size lose next to nothing
against uneven ones. Steps differ between dimensions; they are folded into the query. A factor for each row, one byte,
brings the coded row back to the length of the row.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from plait.codec.codebook import Codebook
from plait.codec.packing import check_bits, pack, unpack
from plait.scoring.integer import CodedRows

# The step of a uniform quantiser with 2 ** bits levels that loses least on a normal distribution, in deviations.
STEPS = {1: 1.5958, 2: 0.9957, 4: 0.3352, 8: 0.0308}
SMALLEST_STEP = 1e-6  # for a dimension in which all residuals are equal


@dataclass(frozen=True, slots=True, eq=False)
class ResidualCodec:
    """How rows become bytes and come back. Fitted once for an index, on a sample of its rows."""

    codebook: Codebook
    bits: int
    steps: NDArray[np.float32]  # (dim,)
    factors: NDArray[np.float32]  # (256,) rising

    @classmethod
    def fit(cls, codebook: Codebook, bits: int, rows: NDArray[np.float32], cells: NDArray[np.integer]) -> ResidualCodec:
        """Steps and factors from a sample of rows that the codebook was not trained on."""
        check_bits(bits)
        residuals = rows - codebook.floats(cells)
        deviation = np.sqrt(np.mean(np.square(residuals), axis=0))
        steps = np.maximum(deviation * STEPS[bits], SMALLEST_STEP).astype(np.float32)
        unscaled = cls(codebook, bits, steps, np.ones(256, np.float32))
        _, exact = unscaled._code(rows, cells)
        low, high = np.quantile(exact, [0.001, 0.999])
        return cls(codebook, bits, steps, np.linspace(low, max(high, low + 1e-3), 256, dtype=np.float32))

    @property
    def dim(self) -> int:
        return self.codebook.dim

    @property
    def middle(self) -> float:
        """The code that would stand for a residual of 0."""
        return ((1 << self.bits) - 1) / 2

    def encode(self, rows: NDArray[np.float32], cells: NDArray[np.integer]) -> CodedRows:
        """Rows whose nearest centroids are `cells`."""
        codes, exact = self._code(rows, cells)
        place = np.rint((exact - self.factors[0]) / (self.factors[1] - self.factors[0]))
        small = cells.astype(np.uint16) if len(self.codebook) <= 1 << 16 else cells.astype(np.uint32)
        factors = np.clip(place, 0, 255).astype(np.uint8)
        return CodedRows(self.bits, pack(codes, self.bits), small, factors, self.factors)

    def decode(self, coded: CodedRows) -> NDArray[np.float32]:
        """The rows that the codes stand for."""
        assert coded.cells is not None
        return self._levels(unpack(coded.codes, self.bits), coded.cells) * self.factors[coded.factors][:, None]

    def _code(
        self, rows: NDArray[np.float32], cells: NDArray[np.integer]
    ) -> tuple[NDArray[np.uint8], NDArray[np.float32]]:
        """Codes, and the factors that bring the coded rows to the lengths of the rows."""
        half = 2 ** (self.bits - 1)
        scaled = (rows - self.codebook.floats(cells)) / self.steps
        codes = np.clip(np.floor(scaled) + half, 0, 2 * half - 1).astype(np.uint8)
        lengths = np.linalg.norm(self._levels(codes, cells), axis=1)
        exact = np.linalg.norm(rows, axis=1) / np.maximum(lengths, 1e-9)
        return codes, exact.astype(np.float32)

    def _levels(self, codes: NDArray[np.uint8], cells: NDArray[np.integer]) -> NDArray[np.float32]:
        return self.codebook.floats(cells) + (codes.astype(np.float32) - np.float32(self.middle)) * self.steps

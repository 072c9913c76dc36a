"""Residual codes: what is left of a row when its centroid is taken away, in a few bits a dimension.

The residual is divided by its length first, because rows lie near to their centroids and far from them, and one set of
levels suits both only so. All levels of a dimension are equally far apart, so a code is a small number that the
kernels multiply as it is: no table, no decoding to floats. On residuals, which are close to normal, even steps of the
right size lose next to nothing against uneven ones. Steps differ between dimensions; they are folded into the query.
Two bytes for each row name its length, and a factor that brings the coded row back to the length of the row.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from plait.codec.codebook import Codebook
from plait.codec.packing import check_bits, unpack
from plait.scoring.residual import CodedRows, encode_rows

# The step of a uniform quantiser with 2 ** bits levels that loses least on a normal distribution, in deviations.
STEPS = {1: 1.5958, 2: 0.9957, 4: 0.3352, 8: 0.0308}
SMALLEST_STEP = 1e-6  # for a dimension in which all residuals are equal
SMALLEST_LENGTH = 1e-6
TABLE = 256  # what a byte can name
EDGES = (0.001, 0.999)  # quantiles that the tables reach from and to
BEYOND = 1.05


@dataclass(frozen=True, slots=True, eq=False)
class ResidualCodec:
    """How rows become bytes and come back. Fitted once for an index, on a sample of its rows."""

    codebook: Codebook
    bits: int
    steps: NDArray[np.float32]  # (dim,)
    lengths: NDArray[np.float32]  # (256,) rising
    factors: NDArray[np.float32]  # (256,) rising

    @classmethod
    def fit(cls, codebook: Codebook, bits: int, rows: NDArray[np.float32], cells: NDArray[np.integer]) -> ResidualCodec:
        """Steps, lengths and factors from a sample of rows that the codebook was not trained on."""
        check_bits(bits)
        residuals = rows - codebook.floats(cells)
        residuals /= np.maximum(np.linalg.norm(residuals, axis=1, keepdims=True), SMALLEST_LENGTH)
        deviation = np.sqrt(np.mean(np.square(residuals), axis=0))
        steps = np.maximum(deviation * STEPS[bits], SMALLEST_STEP).astype(np.float32)
        _, exact, _ = _coded(codebook, bits, steps, None, rows, cells)
        # What is shorter than the table is still coded well, what is longer is cut: so it reaches past the longest.
        low, high = np.maximum([np.quantile(exact, EDGES[0]), BEYOND * exact.max()], SMALLEST_LENGTH)
        lengths = np.geomspace(low, max(high, 1.001 * low), TABLE, dtype=np.float32)
        _, _, exact = _coded(codebook, bits, steps, lengths, rows, cells)
        low, high = np.quantile(exact, EDGES)
        factors = np.linspace(low, max(high, low + 1e-3), TABLE, dtype=np.float32)
        return cls(codebook, bits, steps, lengths, factors)

    @property
    def dim(self) -> int:
        return self.codebook.dim

    @property
    def middle(self) -> float:
        """The code that would stand for a residual of 0."""
        return ((1 << self.bits) - 1) / 2

    def encode(self, rows: NDArray[np.float32], cells: NDArray[np.integer]) -> CodedRows:
        """Rows whose nearest centroids are `cells`."""
        codes, lengths, exact = _coded(self.codebook, self.bits, self.steps, self.lengths, rows, cells)
        place = np.rint((exact - self.factors[0]) / (self.factors[1] - self.factors[0]))
        small = cells.astype(np.uint16) if len(self.codebook) <= 1 << 16 else cells.astype(np.uint32)
        return CodedRows(
            self.bits,
            codes,
            small,
            np.searchsorted(self.lengths, lengths).astype(np.uint8),
            self.lengths,
            np.clip(place, 0, TABLE - 1).astype(np.uint8),
            self.factors,
        )

    def decode(self, coded: CodedRows) -> NDArray[np.float32]:
        """The rows that the codes stand for."""
        assert coded.cells is not None
        levels = (unpack(coded.codes, self.bits).astype(np.float32) - np.float32(self.middle)) * self.steps
        levels *= self.lengths[coded.lengths][:, None]
        levels += self.codebook.floats(coded.cells)
        return levels * self.factors[coded.factors][:, None]


def _coded(
    codebook: Codebook,
    bits: int,
    steps: NDArray[np.float32],
    lengths: NDArray[np.float32] | None,
    rows: NDArray[np.float32],
    cells: NDArray[np.integer],
) -> tuple[NDArray[np.uint8], NDArray[np.float32], NDArray[np.float32]]:
    """Codes, lengths and exact factors."""
    whole = np.ascontiguousarray(rows, np.float32)
    return encode_rows(whole, cells.astype(np.int32), codebook.centroids, codebook.scale, steps, bits, lengths)

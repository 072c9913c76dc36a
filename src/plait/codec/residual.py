"""Residual codes: the difference between a row and its centroid, in 1, 2, 4 or 8 bits a dimension.

The residual is divided by its length first, so that one set of levels suits rows near to their centroid and rows far
from it. The levels of a dimension are evenly spaced: a code is a small integer that the kernels multiply directly,
without a lookup table. Residuals are close to normally distributed, and for a normal distribution even steps lose next
to nothing against uneven ones. Each dimension has its own step, which is folded into the query. Each row has two more
bytes: the index of its residual's length in a table, and the index of a factor that restores the norm of the row.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from plait.codec.codebook import MAX_QUERY_VALUE, Codebook, pack_int8, pad_lanes, to_integers
from plait.codec.packing import check_bits, unpack
from plait.scoring.residual import CodedRows, ResidualQuery, encode_rows, pack_query

# The best step of a uniform quantizer with 2 ** bits levels for a normal distribution, in standard deviations.
STEPS = {1: 1.5958, 2: 0.9957, 4: 0.3352, 8: 0.0308}
MIN_STEP = 1e-6  # for a dimension in which all residuals are equal
MIN_LENGTH = 1e-6
TABLE_SIZE = 256  # entries that one byte can index
TABLE_QUANTILES = (0.001, 0.999)  # of the sample, at the ends of the tables
LENGTH_MARGIN = 1.05  # the table of lengths ends at this many times the largest of the sample
MAX_INT16_QUERY = 16_383


@dataclass(frozen=True, slots=True, eq=False)
class ResidualCodec:
    """Encodes and decodes rows. Fitted once for an index, on a sample of its rows."""

    codebook: Codebook
    bits: int
    steps: NDArray[np.float32]  # (dim,)
    lengths: NDArray[np.float32]  # (256,) ascending
    factors: NDArray[np.float32]  # (256,) ascending

    @classmethod
    def fit(cls, codebook: Codebook, bits: int, rows: NDArray[np.float32], cells: NDArray[np.integer]) -> ResidualCodec:
        """Fits steps, lengths and factors on a sample of rows that the codebook was not trained on."""
        check_bits(bits)
        residuals = rows - codebook.floats(cells)
        residuals /= np.maximum(np.linalg.norm(residuals, axis=1, keepdims=True), MIN_LENGTH)
        deviation = np.sqrt(np.mean(np.square(residuals), axis=0))
        steps = np.maximum(deviation * STEPS[bits], MIN_STEP).astype(np.float32)
        _, exact, _ = _coded(codebook, bits, steps, None, rows, cells)
        # A residual shorter than the table is still coded well; a longer one is truncated. So the table reaches past
        # the longest of the sample.
        low, high = np.maximum([np.quantile(exact, TABLE_QUANTILES[0]), LENGTH_MARGIN * exact.max()], MIN_LENGTH)
        lengths = np.geomspace(low, max(high, 1.001 * low), TABLE_SIZE, dtype=np.float32)
        _, _, exact = _coded(codebook, bits, steps, lengths, rows, cells)
        low, high = np.quantile(exact, TABLE_QUANTILES)
        factors = np.linspace(low, max(high, low + 1e-3), TABLE_SIZE, dtype=np.float32)
        return cls(codebook, bits, steps, lengths, factors)

    @property
    def dim(self) -> int:
        return self.codebook.dim

    @property
    def middle(self) -> float:
        """The code of a residual of 0; halfway between two codes."""
        return ((1 << self.bits) - 1) / 2

    def encode(self, rows: NDArray[np.float32], cells: NDArray[np.integer]) -> CodedRows:
        """Encodes rows (rows, dim) whose nearest centroids are `cells` (rows,)."""
        codes, lengths, exact = _coded(self.codebook, self.bits, self.steps, self.lengths, rows, cells)
        factor_index = np.rint((exact - self.factors[0]) / (self.factors[1] - self.factors[0]))
        small_cells = cells.astype(np.uint16) if len(self.codebook) <= 1 << 16 else cells.astype(np.uint32)
        return CodedRows(
            self.bits,
            codes,
            small_cells,
            np.searchsorted(self.lengths, lengths).astype(np.uint8),
            self.lengths,
            np.clip(factor_index, 0, TABLE_SIZE - 1).astype(np.uint8),
            self.factors,
        )

    def decode(self, coded: CodedRows) -> NDArray[np.float32]:
        """The approximate rows (rows, dim) of the codes."""
        assert coded.cells is not None
        levels = (unpack(coded.codes, self.bits).astype(np.float32) - np.float32(self.middle)) * self.steps
        levels *= self.lengths[coded.lengths][:, None]
        levels += self.codebook.floats(coded.cells)
        return levels * self.factors[coded.factors][:, None]


def residual_query(
    query: NDArray[np.float32], codec: ResidualCodec, table: NDArray[np.int16], table_scale: float
) -> ResidualQuery:
    """Query rows (n_query, dim) as integers, to be scored against coded rows. The steps of the codes are folded in;
    `table` has the scores of the centroids, in units of `table_scale`."""
    if codec.bits == 8:
        # 16-bit times 8-bit products are summed in 32 bits; the limit keeps the sum below half of that range.
        integers, scale = to_integers(query * codec.steps, min(MAX_INT16_QUERY, 2**30 // (255 * codec.dim)))
        packed = pack_query(integers.astype(np.int16))
    else:
        integers, scale = to_integers(query * codec.steps, MAX_QUERY_VALUE)
        packed = pack_int8(integers)
    offset = pad_lanes((-codec.middle * scale * integers.sum(axis=1)).astype(np.float32))
    return ResidualQuery(packed, len(query), scale, offset, table, table_scale)


def _coded(
    codebook: Codebook,
    bits: int,
    steps: NDArray[np.float32],
    lengths: NDArray[np.float32] | None,
    rows: NDArray[np.float32],
    cells: NDArray[np.integer],
) -> tuple[NDArray[np.uint8], NDArray[np.float32], NDArray[np.float32]]:
    """Codes, lengths and exact factors; lengths are exact without a table."""
    contiguous = np.ascontiguousarray(rows, np.float32)
    return encode_rows(contiguous, cells.astype(np.int32), codebook.centroids, codebook.scale, steps, bits, lengths)

"""A query in the whole numbers of the kernels, for one codec.

Two sets of them: one against centroids, one against codes, with the steps of the codes folded in. Each has one scale
for all rows of the query, because the scores of different rows are added.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from plait.codec.codebook import MIDDLE, Codebook
from plait.codec.residual import ResidualCodec
from plait.scoring.residual import ResidualQuery, lanes_for, pack_query, score_cells

LARGEST_BYTE = 127
LARGEST_TABLE = 32_767

T = TypeVar("T", bound=np.generic)


@dataclass(frozen=True, slots=True, eq=False)
class CellQuery:
    """Query rows against centroids: score = (sum of products - bias) >> shift, in units of `scale`."""

    numbers: NDArray[np.int32]  # (n_query, dim)
    packed: NDArray[np.int8]  # (dim / 4, lanes, 4)
    bias: NDArray[np.int32]  # (lanes,)
    shift: int
    scale: float

    @classmethod
    def of(cls, query: NDArray[np.float32], codebook: Codebook) -> CellQuery:
        numbers, scale = rounded(query, LARGEST_BYTE)
        # No score can be larger than the product of the lengths; the shift brings that within the table's 16 bits.
        largest = float(np.linalg.norm(numbers, axis=1).max(initial=1.0)) * codebook.longest
        shift = max(0, math.ceil(math.log2(largest / LARGEST_TABLE)))
        bias = pad_lanes(MIDDLE * numbers.sum(axis=1, dtype=np.int32))
        return cls(numbers, pack_bytes(numbers), bias, shift, scale * codebook.scale * 2**shift)

    def table(self, codebook: Codebook) -> NDArray[np.int16]:
        """(cells, lanes) scores of every centroid."""
        return score_cells(self.packed, codebook.centroids, self.bias, self.shift)


def residual_query(
    query: NDArray[np.float32], codec: ResidualCodec, table: NDArray[np.int16], table_scale: float
) -> ResidualQuery:
    """Query rows against coded rows: the centroid's score from the table, and that of the codes."""
    if codec.bits == 8:
        # Products of 16 bits with 8 are added in 32; half of what fits leaves room for nothing to go wrong.
        numbers, scale = rounded(query * codec.steps, min(16_383, 2**30 // (255 * codec.dim)))
        packed = pack_query(numbers.astype(np.int16))
    else:
        numbers, scale = rounded(query * codec.steps, LARGEST_BYTE)
        packed = pack_bytes(numbers)
    offset = pad_lanes((-codec.middle * scale * numbers.sum(axis=1)).astype(np.float32))
    return ResidualQuery(packed, len(query), scale, offset, table, table_scale)


def rounded(query: NDArray[np.float32], largest: int) -> tuple[NDArray[np.int32], float]:
    """The query in whole numbers of at most `largest`, and what one of them stands for."""
    scale = float(np.abs(query).max(initial=0.0)) / largest or 1.0
    return np.rint(query / scale).astype(np.int32), scale


def pack_bytes(numbers: NDArray[np.int32]) -> NDArray[np.int8]:
    """Whole numbers that fit a byte, in the order that the kernels read."""
    return pack_query(numbers.astype(np.int8)).view(np.int8)


def pad_lanes(values: NDArray[T]) -> NDArray[T]:
    """With zeros for the lanes that no query row fills."""
    return np.concatenate([values, np.zeros(lanes_for(len(values)) - len(values), values.dtype)])

"""The codebook: centroids as small integers, and the query that is scored against them.

Centroids are stored as bytes from 0 to 127, where 64 stands for 0, with one scale for all. Rounding them loses nothing:
residuals are taken from the rounded centroids. Seven bits, because products of two 8-bit numbers overflow the 16-bit
sums of processors without dot-product instructions.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from plait.scoring.residual import lanes_for, pack_query, score_centroids

MIDDLE = 64  # the byte that stands for 0
MAX_MAGNITUDE = 63  # of a centroid value, in units of the scale
MAX_QUERY_VALUE = 127
MAX_TABLE = 32_767
REMAINDER_BITS = 7  # what is lost by rounding a query to integers, at most a half, as integers of this many bits

T = TypeVar("T", bound=np.generic)


@dataclass(frozen=True, slots=True, eq=False)
class Codebook:
    """K centroids of `dim` dimensions."""

    centroids: NDArray[np.uint8]  # (cells, dim), 0 to 127
    scale: float
    longest: float  # the largest norm of a centroid, in units of the scale

    @classmethod
    def rounded(cls, centroids: NDArray[np.float32]) -> Codebook:
        """Quantizes centroids in float32."""
        scale = float(np.abs(centroids).max(initial=0.0)) / MAX_MAGNITUDE or 1.0
        integers = np.rint(centroids / scale)
        longest = float(np.linalg.norm(integers, axis=1).max(initial=1.0))
        return cls((integers + MIDDLE).astype(np.uint8), scale, longest)

    def __len__(self) -> int:
        return len(self.centroids)

    @property
    def dim(self) -> int:
        return int(self.centroids.shape[1])

    def floats(self, cells: NDArray[np.integer] | None = None) -> NDArray[np.float32]:
        """The centroids of `cells` as float32; all centroids by default."""
        chosen = self.centroids if cells is None else self.centroids[cells]
        return (chosen.astype(np.float32) - MIDDLE) * np.float32(self.scale)


@dataclass(frozen=True, slots=True, eq=False)
class CentroidQuery:
    """Query rows as int8, to be scored against centroids: score = (dot product - bias) >> shift, in units of `scale`.

    All rows share one scale, because the scores of different query rows are added. Fine scores also have the product
    with what rounding the query to integers lost.
    """

    integers: NDArray[np.int32]  # (n_query, dim)
    remainder: NDArray[np.float32]  # (n_query, dim) in units of the integers
    packed: NDArray[np.int8]  # (dim / 4, lanes, 4)
    bias: NDArray[np.int32]  # (lanes,)
    shift: int
    scale: float

    @classmethod
    def of(cls, query: NDArray[np.float32], codebook: Codebook) -> CentroidQuery:
        integers, scale = to_integers(query, MAX_QUERY_VALUE)
        remainder = query / np.float32(scale) - integers
        # A score is at most the product of the two norms; the shift makes that fit in the 16 bits of the table.
        norm = float(np.linalg.norm(integers, axis=1).max(initial=1.0))
        largest = (norm + float(np.linalg.norm(remainder, axis=1).max(initial=0.0))) * codebook.longest
        shift = max(0, math.ceil(math.log2(largest / MAX_TABLE)))
        bias = pad_lanes(MIDDLE * integers.sum(axis=1, dtype=np.int32))
        return cls(integers, remainder, pack_int8(integers), bias, shift, scale * codebook.scale * 2**shift)

    def table(self, centroids: NDArray[np.uint8], *, fine: bool = False) -> NDArray[np.int16]:
        """(cells, lanes): the scores of centroids of the codebook with every query row."""
        table = score_centroids(self.packed, centroids, self.bias, self.shift)
        return self.finer(table, centroids) if fine else table

    def finer(self, table: NDArray[np.int16], centroids: NDArray[np.uint8]) -> NDArray[np.int16]:
        """The fine scores of centroids whose scores are in `table`."""
        integers = np.rint(self.remainder * 2**REMAINDER_BITS).astype(np.int32)
        bias = pad_lanes(MIDDLE * integers.sum(axis=1, dtype=np.int32))
        return table + score_centroids(pack_int8(integers), centroids, bias, self.shift + REMAINDER_BITS)


def to_integers(query: NDArray[np.float32], largest: int) -> tuple[NDArray[np.int32], float]:
    """The query rounded to integers of at most `largest` in magnitude, and the value of one unit."""
    scale = float(np.abs(query).max(initial=0.0)) / largest or 1.0
    return np.rint(query / scale).astype(np.int32), scale


def pack_int8(integers: NDArray[np.int32]) -> NDArray[np.int8]:
    """Integers that fit in int8, in the order that the kernels read."""
    return pack_query(integers.astype(np.int8)).view(np.int8)


def pad_lanes(values: NDArray[T]) -> NDArray[T]:
    """`values` (n_query,) with zeros up to a whole number of lanes."""
    return np.concatenate([values, np.zeros(lanes_for(len(values)) - len(values), values.dtype)])

"""The codebook: centroids as small integers. A row is coded as the nearest of them and what is left over.

Centroids are kept as bytes from 0 to 127 around 64, with one scale for all. What that rounding loses is not lost: the
residual is taken from the rounded centroid. Seven bits, because the products of two eight-bit numbers overflow the
16-bit sums that processors without special instructions add them in.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

MIDDLE = 64  # the byte that stands for 0
LARGEST = 63  # the largest magnitude, in units of the scale


@dataclass(frozen=True, slots=True, eq=False)
class Codebook:
    """K centroids of `dim` dimensions."""

    centroids: NDArray[np.uint8]  # (cells, dim), 0 to 127
    scale: float
    longest: float  # the length of the longest centroid, in units of the scale

    @classmethod
    def rounded(cls, centroids: NDArray[np.float32]) -> Codebook:
        """The codebook nearest to centroids in floats."""
        scale = float(np.abs(centroids).max(initial=0.0)) / LARGEST or 1.0
        numbers = np.rint(centroids / scale)
        longest = float(np.linalg.norm(numbers, axis=1).max(initial=1.0))
        return cls((numbers + MIDDLE).astype(np.uint8), scale, longest)

    def __len__(self) -> int:
        return len(self.centroids)

    @property
    def dim(self) -> int:
        return int(self.centroids.shape[1])

    def floats(self, cells: NDArray[np.integer] | None = None) -> NDArray[np.float32]:
        """The centroids of these cells, or all of them."""
        chosen = self.centroids if cells is None else self.centroids[cells]
        return (chosen.astype(np.float32) - MIDDLE) * np.float32(self.scale)

"""ColBERTv2's residual codec as the paper has it, decoded to floats: what plait's own codec is compared with."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

HELD_OUT = 20  # one row in so many sets the buckets


def decoded_as_in_paper(
    rows: NDArray[np.float32], centroids: NDArray[np.float32], cells: NDArray[np.integer], bits: int
) -> NDArray[np.float32]:
    """The rows (n, dim) after coding: their centroid, and for each dimension the weight of its bucket. Buckets are
    quantiles of all residuals together, one table for all dimensions; rows are brought back to length one."""
    nearest = (centroids / np.maximum(np.linalg.norm(centroids, axis=1, keepdims=True), 1e-9))[cells]
    residuals = rows - nearest
    n_buckets = 1 << bits
    sample = residuals[::HELD_OUT].ravel()
    cutoffs = np.quantile(sample, np.arange(1, n_buckets) / n_buckets)
    weights = np.quantile(sample, (np.arange(n_buckets) + 0.5) / n_buckets).astype(np.float32)
    return _unit(nearest + weights[np.searchsorted(cutoffs, residuals)])


def binarised(rows: NDArray[np.float32]) -> NDArray[np.float32]:
    """The signs of the rows alone, at length one: a bit a dimension and no centroid."""
    return _unit(np.where(rows > 0, np.float32(1), np.float32(-1)))


def _unit(rows: NDArray[np.float32]) -> NDArray[np.float32]:
    return np.ascontiguousarray(rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-9), np.float32)

"""Spherical k-means in whole numbers: the centroids of a codebook.

Rows are assigned by direction, to the centroid with the largest inner product among centroids of length one; the
codebook then keeps the mean of each cell, which leaves the smallest residuals. Assigning uses the kernel that scores
centroids at search time: rounding moves a few rows to a neighbour that is as near, and does not move the means.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from plait.codec.assign import Nearest, Rows, sums_by_cell


def train(rows: Rows, n_cells: int, *, n_iterations: int = 6, seed: int = 0, n_threads: int = 1) -> NDArray[np.float32]:
    """The means of at most `n_cells` cells; fewer where there are fewer different rows."""
    rng = np.random.default_rng(seed)
    means = _first_means(rows, n_cells, rng)
    for _ in range(n_iterations):
        cells = Nearest(means).cells(rows, n_threads=n_threads)
        means = _means(rows, cells, len(means), rng)
    return means


def _first_means(rows: Rows, n_cells: int, rng: np.random.Generator) -> NDArray[np.float32]:
    """Rows drawn at random, each different: a corpus that repeats itself must not start with equal centroids."""
    drawn = rows[rng.permutation(len(rows))[: 2 * n_cells]]
    _, first = np.unique(drawn, axis=0, return_index=True)
    return drawn[np.sort(first)[:n_cells]].astype(np.float32)


def _means(rows: Rows, cells: NDArray[np.int32], n_cells: int, rng: np.random.Generator) -> NDArray[np.float32]:
    """The mean of each cell; an empty cell starts again at some row."""
    sums, counts = sums_by_cell(rows, cells, n_cells)
    others = rows[rng.integers(0, len(rows), n_cells)].astype(np.float32)
    return np.where(counts[:, None] > 0, sums / np.maximum(counts, 1)[:, None], others).astype(np.float32)

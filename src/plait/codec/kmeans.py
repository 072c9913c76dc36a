"""Spherical k-means: the centroids of a codebook.

A row is assigned by direction, to the centroid with the largest dot product among centroids of length one. A codebook
stores the mean of each cell, which minimises the residuals. Assignment runs in integers, with the kernel that scores
centroids at search time: rounding moves a few rows to a centroid that is as near, which does not move the means.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from plait.codec.assign import NearestCentroids, Rows, sums_by_cell


def train(rows: Rows, n_cells: int, *, n_iterations: int = 6, seed: int = 0, n_threads: int = 1) -> NDArray[np.float32]:
    """The means of at most `n_cells` cells; fewer if there are fewer distinct rows."""
    rng = np.random.default_rng(seed)
    means = _first_means(rows, n_cells, rng)
    for _ in range(n_iterations):
        cells = NearestCentroids(means).assign(rows, n_threads=n_threads)
        means = _means(rows, cells, len(means), rng)
    return means


def _first_means(rows: Rows, n_cells: int, rng: np.random.Generator) -> NDArray[np.float32]:
    """Distinct rows, drawn at random: repeated rows in a corpus must not give equal centroids."""
    drawn = rows[rng.permutation(len(rows))[: 2 * n_cells]]
    _, first = np.unique(drawn, axis=0, return_index=True)
    return drawn[np.sort(first)[:n_cells]].astype(np.float32)


def _means(rows: Rows, cells: NDArray[np.int32], n_cells: int, rng: np.random.Generator) -> NDArray[np.float32]:
    """The mean of each cell; an empty cell restarts at a random row."""
    sums, counts = sums_by_cell(rows, cells, n_cells)
    random_rows = rows[rng.integers(0, len(rows), n_cells)].astype(np.float32)
    return np.where(counts[:, None] > 0, sums / np.maximum(counts, 1)[:, None], random_rows).astype(np.float32)

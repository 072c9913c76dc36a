"""Spherical k-means in whole numbers: the centroids of a codebook.

Rows are assigned by direction, to the centroid with the largest inner product among centroids of length one; the
codebook then keeps the mean of each cell, which leaves the smallest residuals. Assigning uses the kernel that scores
centroids at search time: rounding moves a few rows to a neighbour that is as near, and does not move the means.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
from numpy.typing import NDArray

from plait.codec.codebook import Codebook
from plait.codec.query import LARGEST_BYTE, pack_bytes, rounded
from plait.scoring.integer import NO_SCORE, nearest_rows

# Rows that one call assigns: enough to keep a thread busy for some milliseconds, few enough to share out evenly.
ASSIGN_BLOCK = 2048


def directions(centroids: NDArray[np.float32]) -> Codebook:
    """Centroids brought to length one: what rows are assigned to."""
    return Codebook.rounded(_unit(centroids))


def assign(rows: NDArray[np.float32], to: Codebook, *, n_threads: int = 1) -> NDArray[np.int32]:
    """The nearest of `directions` for each row; the same for any number of threads."""
    cells = np.empty(len(rows), np.int32)

    def block(start: int) -> None:
        stop = min(start + ASSIGN_BLOCK, len(rows))
        numbers, _ = rounded(rows[start:stop], LARGEST_BYTE)
        best = np.full(stop - start, NO_SCORE, np.int32)
        nearest_rows(pack_bytes(numbers), to.centroids, best, cells[start:stop])

    starts = range(0, len(rows), ASSIGN_BLOCK)
    if n_threads == 1 or len(starts) < 2:
        for start in starts:
            block(start)
    else:
        with ThreadPoolExecutor(n_threads) as pool:
            list(pool.map(block, starts))
    return cells


def train(
    rows: NDArray[np.float32], n_cells: int, *, n_iterations: int = 6, seed: int = 0, n_threads: int = 1
) -> NDArray[np.float32]:
    """The means of at most `n_cells` cells; fewer where there are fewer different rows."""
    rng = np.random.default_rng(seed)
    means = _first_means(rows, n_cells, rng)
    for _ in range(n_iterations):
        cells = assign(rows, directions(means), n_threads=n_threads)
        means = _means(rows, cells, len(means), rng)
    return means


def _first_means(rows: NDArray[np.float32], n_cells: int, rng: np.random.Generator) -> NDArray[np.float32]:
    """Rows drawn at random, each different: a corpus that repeats itself must not start with equal centroids."""
    drawn = rows[rng.permutation(len(rows))[: 2 * n_cells]]
    _, first = np.unique(drawn, axis=0, return_index=True)
    return drawn[np.sort(first)[:n_cells]]


def _means(
    rows: NDArray[np.float32], cells: NDArray[np.int32], n_cells: int, rng: np.random.Generator
) -> NDArray[np.float32]:
    """The mean of each cell; an empty cell starts again at some row."""
    order = np.argsort(cells, kind="stable")
    present, starts, counts = np.unique(cells[order], return_index=True, return_counts=True)
    means = rows[rng.integers(0, len(rows), n_cells)].copy()
    means[present] = np.add.reduceat(rows[order], starts, axis=0) / counts[:, None]
    return means


def _unit(rows: NDArray[np.float32]) -> NDArray[np.float32]:
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    return np.asarray(rows / np.maximum(lengths, 1e-12), np.float32)

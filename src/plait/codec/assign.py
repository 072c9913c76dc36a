"""Assigns rows to cells: the nearest centroid of each row, by direction, in integers.

Up to two thousand centroids are all compared with each row. More are grouped around centroids of centroids, and a row
is compared with the centroids of its nearest groups only. A few rows in a hundred then get a centroid that is nearly as
near as the nearest; the residual makes up for it. The cost grows with the square root of the number of centroids.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
from numpy.typing import NDArray

from plait.codec.codebook import CentroidQuery, Codebook
from plait.scoring.residual import NO_SCORE, assign_rows, nearest_centroids, select_cells

Rows = NDArray[np.float16] | NDArray[np.float32]

BLOCK = 16_384  # rows assigned by one call: enough that each group of centroids meets many of them
MIN_GROUPED = 2048  # with fewer centroids, comparing all of them is as fast
N_NEAR_GROUPS = 8  # groups that a row is compared with
N_GROUPING_ROUNDS = 4


class NearestCentroids:
    """Centroids of length one, ready to be searched. Results are the same for any number of threads."""

    def __init__(self, centroids: NDArray[np.float32], *, grouped: bool = True) -> None:
        """With `grouped=False` a row is compared with all centroids: faster if there are few rows to assign."""
        directions = unit(centroids)
        self._dim = directions.shape[1]
        n_groups = round(np.sqrt(len(directions))) if grouped and len(directions) >= MIN_GROUPED else 1
        self._order = np.arange(len(directions))
        self._groups, self._starts = None, np.array([0, len(directions)])
        if n_groups > 1:
            self._groups, groups = _group(directions, n_groups)
            self._order = np.argsort(groups, kind="stable")
            self._starts = np.searchsorted(groups[self._order], np.arange(len(self._groups) + 1))
        self._codebook = Codebook.rounded(directions[self._order])

    @classmethod
    def from_codebook(cls, codebook: Codebook) -> NearestCentroids:
        """From the codebook as it is stored, so that later rows get the same cells as those it was trained on."""
        return cls(codebook.floats())

    def assign(self, rows: Rows, *, n_threads: int = 1) -> NDArray[np.int32]:
        """(rows,): the number of the nearest centroid of each row."""
        cells = np.empty(len(rows), np.int32)

        def assign_block(start: int) -> None:
            stop = min(start + BLOCK, len(rows))
            cells[start:stop] = self._assign_block(rows[start:stop].astype(np.float32, copy=False))

        starts = range(0, len(rows), BLOCK)
        if n_threads == 1 or len(starts) < 2:
            for start in starts:
                assign_block(start)
        else:
            with ThreadPoolExecutor(n_threads) as pool:
                list(pool.map(assign_block, starts))
        return cells

    def _assign_block(self, rows: NDArray[np.float32]) -> NDArray[np.int64]:
        query = CentroidQuery.of(rows, self._codebook)
        best, which = np.full(len(rows), NO_SCORE, np.int32), np.full(len(rows), -1, np.int32)
        if self._groups is None:
            nearest_centroids(query.packed, self._codebook.centroids, best, which)
            return self._order[which]
        integers = query.integers.astype(np.int8)
        near = self._near_groups(rows)
        order = np.argsort(near, kind="stable")
        firsts = np.searchsorted(near[order], np.arange(len(self._groups) + 1))
        pairs: NDArray[np.int32] = (order % len(rows)).astype(np.int32)
        for group in range(len(self._groups)):
            group_rows = pairs[firsts[group] : firsts[group + 1]]
            first, end = self._starts[group], self._starts[group + 1]
            if not len(group_rows) or first == end:
                continue
            assign_rows(integers, group_rows, self._codebook.centroids[first:end], best, which, first_row=int(first))
        return self._order[which]

    def _near_groups(self, rows: NDArray[np.float32]) -> NDArray[np.uint16]:
        """The nearest group of every row, then the second nearest of every row, and so on: (N_NEAR_GROUPS * rows,)."""
        assert self._groups is not None
        table = CentroidQuery.of(rows, self._groups).table(self._groups.centroids)
        near, _ = select_cells(table, len(rows), min(N_NEAR_GROUPS, len(self._groups)))
        return near.T.astype(np.uint16).ravel()


def unit(rows: NDArray[np.float32]) -> NDArray[np.float32]:
    """Rows divided by their norms."""
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    return np.asarray(rows / np.maximum(lengths, 1e-12), np.float32)


def sums_by_cell(rows: Rows, cells: NDArray[np.int32], n_cells: int) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """The sum of the rows in each cell (n_cells, dim), and their number (n_cells,). Never copies all rows."""
    sums = np.zeros((n_cells, rows.shape[1]), np.float32)
    for start in range(0, len(rows), BLOCK):
        block, block_cells = rows[start : start + BLOCK], cells[start : start + BLOCK]
        order = np.argsort(block_cells, kind="stable")
        present, firsts = np.unique(block_cells[order], return_index=True)
        sums[present] += np.add.reduceat(block[order].astype(np.float32), firsts, axis=0)
    return sums, np.bincount(cells, minlength=n_cells)


def _group(directions: NDArray[np.float32], n_groups: int) -> tuple[Codebook, NDArray[np.int32]]:
    """The centroids of the groups, and the group of each direction. Groups start at evenly spread directions."""
    middles = directions[np.linspace(0, len(directions) - 1, n_groups).astype(np.int64)]
    for _ in range(N_GROUPING_ROUNDS):
        groups = NearestCentroids(middles).assign(directions)
        sums, counts = sums_by_cell(directions, groups, n_groups)
        middles = np.where(counts[:, None] > 0, unit(sums), middles)
    return Codebook.rounded(middles), NearestCentroids(middles).assign(directions)

"""Rows to cells: the nearest centroid of each row, by direction, in whole numbers.

A few centroids are all tried. Of many, only some: they are grouped around centroids of their own, and a row is tried
with the centroids of the groups nearest to it. That finds another than the nearest for a few rows in a hundred, one
that is nearly as near; the residual makes up for it. What it costs grows with the square root of the centroids.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
from numpy.typing import NDArray

from plait.codec.codebook import Codebook
from plait.codec.query import CellQuery
from plait.scoring.residual import NO_SCORE, nearest_listed, nearest_rows, select_cells

Rows = NDArray[np.float16] | NDArray[np.float32]

# Rows that one call assigns: enough that each group of centroids meets many of them.
BLOCK = 16_384
# Below this, trying all centroids is as fast.
FEWEST_GROUPED = 2048
# Groups that a row is tried with.
N_NEAR = 8
N_GROUPING_ROUNDS = 4


class Nearest:
    """The centroids of a codebook, brought to length one and ready to be searched; the same for any thread count."""

    def __init__(self, centroids: NDArray[np.float32], *, grouped: bool = True) -> None:
        """Not `grouped`, all centroids are tried however many they are: for few rows, that is sooner done."""
        directions = unit(centroids)
        self._dim = directions.shape[1]
        n_groups = round(np.sqrt(len(directions))) if grouped and len(directions) >= FEWEST_GROUPED else 1
        self._order = np.arange(len(directions))
        self._groups, self._starts = None, np.array([0, len(directions)])
        if n_groups > 1:
            self._groups, groups = _grouped(directions, n_groups)
            self._order = np.argsort(groups, kind="stable")
            self._starts = np.searchsorted(groups[self._order], np.arange(len(self._groups) + 1))
        self._codebook = Codebook.rounded(directions[self._order])

    def cells(self, rows: Rows, *, n_threads: int = 1) -> NDArray[np.int32]:
        """The number of the nearest centroid for each row."""
        cells = np.empty(len(rows), np.int32)

        def block(start: int) -> None:
            stop = min(start + BLOCK, len(rows))
            cells[start:stop] = self._block(rows[start:stop].astype(np.float32, copy=False))

        starts = range(0, len(rows), BLOCK)
        if n_threads == 1 or len(starts) < 2:
            for start in starts:
                block(start)
        else:
            with ThreadPoolExecutor(n_threads) as pool:
                list(pool.map(block, starts))
        return cells

    def _block(self, rows: NDArray[np.float32]) -> NDArray[np.int64]:
        query = CellQuery.of(rows, self._codebook)
        best, which = np.full(len(rows), NO_SCORE, np.int32), np.full(len(rows), -1, np.int32)
        if self._groups is None:
            nearest_rows(query.packed, self._codebook.centroids, best, which)
            return self._order[which]
        numbers = query.numbers.astype(np.int8)
        near = self._near_groups(rows)
        order = np.argsort(near, kind="stable")
        firsts = np.searchsorted(near[order], np.arange(len(self._groups) + 1))
        pairs: NDArray[np.int32] = (order % len(rows)).astype(np.int32)
        for group in range(len(self._groups)):
            own = pairs[firsts[group] : firsts[group + 1]]
            first, end = self._starts[group], self._starts[group + 1]
            if not len(own) or first == end:
                continue
            nearest_listed(numbers, own, self._codebook.centroids[first:end], best, which, first_row=int(first))
        return self._order[which]

    def _near_groups(self, rows: NDArray[np.float32]) -> NDArray[np.uint16]:
        """The groups nearest to each row: those of the first place for all rows, then those of the second, and on."""
        assert self._groups is not None
        table = CellQuery.of(rows, self._groups).table(self._groups)
        near, _ = select_cells(table, len(rows), min(N_NEAR, len(self._groups)))
        return near.T.astype(np.uint16).ravel()


def unit(rows: NDArray[np.float32]) -> NDArray[np.float32]:
    """Rows brought to length one."""
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    return np.asarray(rows / np.maximum(lengths, 1e-12), np.float32)


def sums_by_cell(rows: Rows, cells: NDArray[np.int32], n_cells: int) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """The sum of the rows in each cell, and how many they are. A block at a time: no copy of the rows is made."""
    sums = np.zeros((n_cells, rows.shape[1]), np.float32)
    for start in range(0, len(rows), BLOCK):
        block, own = rows[start : start + BLOCK], cells[start : start + BLOCK]
        order = np.argsort(own, kind="stable")
        present, firsts = np.unique(own[order], return_index=True)
        sums[present] += np.add.reduceat(block[order].astype(np.float32), firsts, axis=0)
    return sums, np.bincount(cells, minlength=n_cells)


def _grouped(directions: NDArray[np.float32], n_groups: int) -> tuple[Codebook, NDArray[np.int32]]:
    """Centroids of groups, and the group of each direction. Groups start at directions spread over the whole list."""
    middles = directions[np.linspace(0, len(directions) - 1, n_groups).astype(np.int64)]
    for _ in range(N_GROUPING_ROUNDS):
        groups = Nearest(middles).cells(directions)
        sums, counts = sums_by_cell(directions, groups, n_groups)
        middles = np.where(counts[:, None] > 0, unit(sums), middles)
    return Codebook.rounded(middles), Nearest(middles).cells(directions)

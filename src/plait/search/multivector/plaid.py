"""PLAID (Santhanam et al., 2022): passages of the nearest cells, cut twice by their centroids, then scored by codes.

1. Candidates are all items with a row in one of the `n_probe` best cells of each of the first 32 query rows.
2. MaxSim over centroids, without those that score below `t_cs` with every query row; the best `n_docs` go on.
3. The same with all centroids; a quarter of `n_docs` goes on.
4. MaxSim over the codes, each row brought back to its length.

Centroid scores are compared in 254 steps over their whole range, which is finer than centroids are true.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from plait.scoring.maxsim import top_k as top_k_floats
from plait.scoring.residual import centroid_maxsim, narrow_table, select_cells, top_k
from plait.search.multivector.item_filter import Chosen
from plait.search.multivector.method import NOTHING, Found, at_least_one
from plait.search.multivector.query import MultiVectorQuery

DRIVING_ROWS = 32
LEVELS = 254  # above 0, which is for items all of whose centroids were pruned
WIDEST = 32_000  # of a table's 16 bits, that the kernel can take differences of


@dataclass(frozen=True, slots=True, kw_only=True)
class Plaid:
    """Settings that are None are the paper's for k items: see `settled`."""

    n_probe: int | None = None  # cells read for each query row
    t_cs: float | None = None  # centroids below this for every query row are pruned in the first cut
    n_docs: int | None = None  # items after the first cut; a quarter of them, and at least k, after the second

    comparable: ClassVar[bool] = True

    def __post_init__(self) -> None:
        at_least_one(self, "n_probe", "n_docs")

    def settled(self, k: int) -> tuple[int, float, int]:
        """n_probe, t_cs and n_docs."""
        if k <= 10:
            n_probe, t_cs, n_docs = 1, 0.5, 256
        elif k <= 100:
            n_probe, t_cs, n_docs = 2, 0.45, 1024
        else:
            n_probe, t_cs, n_docs = 4, 0.4, max(4 * k, 4096)
        return (
            n_probe if self.n_probe is None else self.n_probe,
            t_cs if self.t_cs is None else self.t_cs,
            n_docs if self.n_docs is None else self.n_docs,
        )

    def search(self, asked: MultiVectorQuery, k: int, chosen: Chosen, *, n_threads: int = 1) -> Found:
        if not len(chosen):
            return NOTHING
        n_probe, t_cs, n_docs = self.settled(k)
        found = _candidates(asked, chosen.n_cells(n_probe), chosen)
        found = _cut(asked, found, max(n_docs, k), "pruned centroids", t_cs)
        found = _cut(asked, found, max(n_docs // 4, k), "centroids of items", None)
        scores = asked.scores(found, n_threads=n_threads)
        best = top_k_floats(scores, k)
        return found[best], scores[best]

    def wider(self, asked: MultiVectorQuery, k: int, chosen: Chosen) -> Self | None:
        n_probe, _, _ = self.settled(k)
        return None if chosen.n_cells(n_probe) >= len(asked.table) else replace(self, n_probe=2 * n_probe)


def _candidates(asked: MultiVectorQuery, n_cells: int, chosen: Chosen) -> NDArray[np.int64]:
    with asked.trace.stage("candidates") as stage:
        cells, _ = select_cells(asked.table, len(asked.query), n_cells)
        driving = cells[:DRIVING_ROWS]
        postings, level = asked.items.postings, np.zeros(driving.shape, np.int16)
        found, _, n_met = asked.items.tally.gather(
            driving, level, level[:, 0].copy(), postings.offsets, postings.items, len(asked.items), allowed=chosen.bits
        )
        n_postings = int((postings.offsets[driving + 1] - postings.offsets[driving]).sum())
        stage.counts.update(
            cells=driving.size, postings=n_postings, items=n_met, bytes=n_postings * postings.items.itemsize
        )
        return found.astype(np.int64)


def _cut(
    asked: MultiVectorQuery, items: NDArray[np.int64], n_keep: int, name: str, t_cs: float | None
) -> NDArray[np.int64]:
    """The best by MaxSim over centroids, in the order of their numbers; no work where all are kept."""
    if len(items) <= n_keep:
        return items
    with asked.trace.stage(name) as stage:
        cells = asked.items.rows.cells
        assert cells is not None
        narrow = _levels(asked.table)
        if t_cs is not None:
            best = asked.table[:, : len(asked.query)].max(axis=1)
            narrow[best * asked.scale < t_cs] = 0
        begins, ends = asked.items.bounds(items)
        n_rows = int((ends - begins).sum())
        stage.counts.update(items=len(items), rows=n_rows, bytes=n_rows * cells.itemsize)
        return items[np.sort(top_k(centroid_maxsim(narrow, cells, begins, ends), n_keep))]


def _levels(table: NDArray[np.int16]) -> NDArray[np.uint8]:
    """The table in bytes from 1 up, one step for all query rows, each from its own worst centroid: a constant for each
    row changes no ranking."""
    high, low = table.max(axis=0).astype(np.int32), table.min(axis=0).astype(np.int32)
    low = np.maximum(low, high - WIDEST)
    shift = 0
    while int((high - low).max()) >> shift >= LEVELS:
        shift += 1
    return narrow_table(table, np.maximum(low - (1 << shift), -32768).astype(np.int16), shift)

"""PLAID (Santhanam et al., 2022): candidates of the nearest cells, pruned twice by centroids, then scored by codes.

1. Candidates are all items with a row in one of the `n_probe` best cells of each of the first 32 query rows.
2. MaxSim over centroids, without those that score below `t_cs` with every query row; the best `n_docs` go on.
3. The same with all centroids; a quarter of `n_docs` goes on.
4. MaxSim over the codes, each row scaled to its original length.

Centroid scores are compared in 254 steps over their whole range: centroids are not more accurate. Mode `plaid`.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from plait.scoring.maxsim import top_k as top_k_floats
from plait.scoring.residual import centroid_maxsim, narrow_table, select_cells, top_k
from plait.search.modes import register
from plait.search.multivector.item_filter import ItemFilter
from plait.search.multivector.method import NOTHING, FoundItems, method_mode
from plait.search.multivector.query import MultiVectorQuery
from plait.search.multivector.steps import BestScores, InSteps, Sizes, Steps
from plait.search.params import check_counts, check_types

MAX_PROBING_ROWS = 32  # query rows that read cells
LEVELS = 254  # above 0, which is for items all of whose centroids were pruned
MAX_RANGE = 32_000  # of a table's 16 bits: the kernel can take differences within it


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaidParams:
    """Parameters of mode `plaid`. None: the paper's value for k, see `settled`."""

    n_probe: int | None = None  # cells read for each query row
    t_cs: float | None = None  # centroids below this for every query row are left out of the first pruning
    n_docs: int | None = None  # items after the first pruning; a quarter of them, and at least k, after the second

    def __post_init__(self) -> None:
        check_types(self)
        check_counts(self, "n_probe", "n_docs")

    def settled(self, k: int) -> tuple[int, float, int]:
        """n_probe, t_cs and n_docs for k items."""
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


@dataclass(frozen=True, slots=True)
class Plaid(InSteps):
    params: PlaidParams = PlaidParams()

    comparable: ClassVar[bool] = True

    def steps(
        self, query: MultiVectorQuery, k: int, item_filter: ItemFilter, sizes: Sizes, *, n_threads: int = 1
    ) -> Steps:
        if not sizes.n_accepted:
            return NOTHING
        n_probe, t_cs, n_docs = self.params.settled(k)
        items = _candidates(query, sizes.n_cells(n_probe), item_filter)
        items = yield from _prune(query, items, max(n_docs, k), "pruned centroids", t_cs, sizes)
        items = yield from _prune(query, items, max(n_docs // 4, k), "centroids of items", None, sizes)
        scores = query.scores(items, n_threads=n_threads)
        best = top_k_floats(scores, k)
        return FoundItems(items[best], scores[best])

    def wider_than(self, sizes: Sizes, k: int) -> Self | None:
        n_probe, _, _ = self.params.settled(k)
        if sizes.n_cells(n_probe) >= sizes.n_centroids:
            return None
        return replace(self, params=replace(self.params, n_probe=2 * n_probe))


def _candidates(query: MultiVectorQuery, n_cells: int, item_filter: ItemFilter) -> NDArray[np.int64]:
    with query.trace.stage("candidates") as stage:
        cells, _ = select_cells(query.table, len(query.query), n_cells)
        probed = cells[:MAX_PROBING_ROWS]
        postings, level = query.items.postings, np.zeros(probed.shape, np.int16)
        items, _, n_met = query.items.tally.gather(
            probed,
            level,
            level[:, 0].copy(),
            postings.offsets,
            postings.items,
            len(query.items),
            allowed=item_filter.bits,
        )
        n_postings = int((postings.offsets[probed + 1] - postings.offsets[probed]).sum())
        stage.counts.update(
            cells=probed.size, postings=n_postings, items=n_met, bytes=n_postings * postings.items.itemsize
        )
        return items.astype(np.int64)


def _prune(
    query: MultiVectorQuery, items: NDArray[np.int64], n_keep: int, name: str, t_cs: float | None, sizes: Sizes
) -> Generator[BestScores, Any, NDArray[np.int64]]:
    """The `n_keep` best items of all shards by MaxSim over centroids, ascending; no work if there are no more."""
    if (len(items) if sizes.n_shards == 1 else sizes.n_accepted) <= n_keep:
        return items
    with query.trace.stage(name) as stage:
        cells = query.items.rows.cells
        assert cells is not None
        narrow = _levels(query.table)
        if t_cs is not None:
            best = query.table[:, : len(query.query)].max(axis=1)
            narrow[best * query.scale < t_cs] = 0
        begins, ends = query.items.bounds(items)
        n_rows = int((ends - begins).sum())
        stage.counts.update(items=len(items), rows=n_rows, bytes=n_rows * cells.itemsize)
        scores = centroid_maxsim(narrow, cells, begins, ends)
        best = top_k(scores, n_keep)
        n_kept: int = yield BestScores(scores[best], n_keep)
        return items[np.sort(best[:n_kept])]


def _levels(table: NDArray[np.int16]) -> NDArray[np.uint8]:
    """The table in bytes from 1 up. All query rows have the same step and start at their worst centroid: a constant for
    each row changes no ranking."""
    high, low = table.max(axis=0).astype(np.int32), table.min(axis=0).astype(np.int32)
    low = np.maximum(low, high - MAX_RANGE)
    shift = 0
    while int((high - low).max()) >> shift >= LEVELS:
        shift += 1
    return narrow_table(table, np.maximum(low - (1 << shift), -32768).astype(np.int16), shift)


register(
    method_mode("plaid", "MaxSim of the passages left after two prunings by centroids (PLAID)", PlaidParams, Plaid)
)

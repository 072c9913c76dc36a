"""WARP (Scheerer et al., 2025): XTR's score from the nearest cells alone, without decompressing a row.

Each query row reads its own best cells and scores only their rows: the centroid's score, which is known, plus that of
the codes. Rows are not scaled to their lengths. Rows that a query row did not read are imputed with the score of the
centroid at which, best first, the cells together reach t' rows. The score is the sum over query rows. Mode `warp`.
"""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from plait.codec.coded_items import RowPostings
from plait.scoring.residual import CodedRows, select_cells
from plait.scoring.warp import score_probed_rows
from plait.scoring.xtr import RetrievedRows
from plait.search.modes import register
from plait.search.multivector.item_filter import ItemFilter
from plait.search.multivector.method import NOTHING, FoundItems, method_mode
from plait.search.multivector.query import MultiVectorQuery
from plait.search.multivector.steps import Counts, InSteps, Sizes, Steps
from plait.search.params import check_counts, check_types

MANY_CELLS = 1 << 16  # above which the paper has fixed values of t'
MIN_THREADED_ROWS = 50_000


@dataclass(frozen=True, slots=True, kw_only=True)
class WarpParams:
    """Parameters of mode `warp`."""

    n_probe: int = 32  # cells read for each query row
    t_prime: int | None = None  # rows at which the imputed score is taken; None: the rule of `t_prime_for`
    bound: int = 128  # cells among which that is looked for; the last of them counts if they hold fewer rows

    def __post_init__(self) -> None:
        check_types(self)
        check_counts(self, "n_probe", "t_prime", "bound")


@dataclass(frozen=True, slots=True)
class Warp(InSteps):
    params: WarpParams = WarpParams()

    comparable: ClassVar[bool] = False

    def steps(
        self, query: MultiVectorQuery, k: int, item_filter: ItemFilter, sizes: Sizes, *, n_threads: int = 1
    ) -> Steps:
        nonzero = np.flatnonzero(query.query.any(axis=1))  # masked tokens are rows of zeros and add nothing
        if not sizes.n_accepted or not len(nonzero):
            return NOTHING
        postings = item_filter.row_postings
        with query.trace.stage("cells") as stage:
            n_read = sizes.n_cells(self.params.n_probe)
            n_cells = max(n_read, sizes.n_cells(self.params.bound))
            cells, levels = select_cells(query.table, len(query.query), n_cells)
            cells, scores = cells[nonzero], levels[nonzero] * np.float32(query.scale)
            t_prime = self.params.t_prime or t_prime_for(sizes.n_accepted_rows, len(query.table), k)
            cell_sizes: NDArray[np.int64] = yield Counts(postings.sizes[cells])
            missing = _imputed_scores(cell_sizes, scores, t_prime)
            imputed = np.zeros(len(query.query), np.float32)
            imputed[nonzero] = missing
            stage.counts["cells"] = len(nonzero) * n_read
        with query.trace.stage("codes") as stage:
            codec, coded = query.items.codes_8bit or (query.items.codec, query.items.rows)
            rows = query.query[nonzero] * codec.steps
            retrieved = _score(coded, rows, cells[:, :n_read], scores[:, :n_read], missing, postings, n_threads)
            n_rows = len(retrieved.items)
            n_bytes = n_rows * (coded.codes.shape[1] + postings.rows.itemsize + postings.items.itemsize)
            stage.counts.update(postings=n_rows, rows=n_rows, bytes=n_bytes)
        with query.trace.stage("impute") as stage:
            items, sums, n_met = query.items.item_tally.best_items(retrieved, k)
            stage.counts.update(tokens=n_rows, items=n_met)
        return FoundItems(items, sums, imputed)

    def wider_than(self, sizes: Sizes, k: int) -> Self | None:
        del k
        n_probe = self.params.n_probe
        if sizes.n_cells(n_probe) >= sizes.n_centroids:
            return None
        return replace(self, params=replace(self.params, n_probe=2 * n_probe))


def t_prime_for(n_rows: int, n_cells: int, k: int) -> int:
    """WARP's rule, which rounds down to thousands, except where that gives zero: a t' that is too small would impute
    more than most of the cells that were read can give."""
    if n_cells > MANY_CELLS:
        return 100_000 if k > 100 else 50_000
    rows = math.sqrt(8 * n_rows)
    return int(rows / 1000) * 1000 or max(1, math.ceil(rows))


def _imputed_scores(sizes: NDArray[np.int64], scores: NDArray[np.float32], t_prime: int) -> NDArray[np.float32]:
    """For each query row the score of the first cell, best first, at which t_prime rows are reached, or of the last."""
    reached = np.cumsum(sizes, axis=1) >= t_prime
    reached[:, -1] = True
    return np.asarray(scores[np.arange(len(scores)), reached.argmax(axis=1)])


def _score(
    coded: CodedRows,
    query_rows: NDArray[np.float32],
    cells: NDArray[np.int32],
    scores: NDArray[np.float32],
    missing: NDArray[np.float32],
    postings: RowPostings,
    n_threads: int,
) -> RetrievedRows:
    """The rows of each query row's cells with their scores; threads share the query rows."""

    def score(numbers: NDArray[np.int64]) -> tuple[NDArray[np.uint32], NDArray[np.float32], NDArray[np.int64]]:
        return score_probed_rows(
            query_rows[numbers],
            coded,
            np.ascontiguousarray(cells[numbers]),
            np.ascontiguousarray(scores[numbers]),
            postings.offsets,
            postings.rows,
            postings.items,
        )

    all_rows = np.arange(len(query_rows))
    if n_threads == 1 or postings.sizes.mean() * cells.size < MIN_THREADED_ROWS:
        return RetrievedRows(*score(all_rows), missing)
    with ThreadPoolExecutor(n_threads) as pool:
        items, row_scores, starts = zip(*pool.map(score, np.array_split(all_rows, n_threads)), strict=True)
    ends = np.cumsum([begins[-1] for begins in starts])
    later = [begins[1:] + first for begins, first in zip(starts, [0, *ends], strict=False)]
    return RetrievedRows(np.concatenate(items), np.concatenate(row_scores), np.concatenate([[0], *later]), missing)


register(method_mode("warp", "like xtr, among the best cells of each query token by itself (WARP)", WarpParams, Warp))

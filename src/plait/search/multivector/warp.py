"""WARP (Scheerer et al., 2025): XTR's score from the nearest cells alone, without decompressing a row.

Each query row reads its own best cells and scores only their rows: the centroid's score, which is there already, and
that of the codes. Rows are not brought back to their lengths. What a query row did not find is imputed with the score
of the centroid at which, best first, the cells together reach t' rows. An item's score is the sum over query rows.
"""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from plait.codec.coded_items import RowPostings
from plait.scoring.residual import select_cells
from plait.scoring.warp import score_probed_rows
from plait.scoring.xtr import RetrievedRows
from plait.search.multivector.item_filter import Chosen
from plait.search.multivector.method import NOTHING, Found, at_least_one
from plait.search.multivector.query import MultiVectorQuery

MANY_CELLS = 1 << 16
WORTH_THREADS = 50_000  # rows


@dataclass(frozen=True, slots=True, kw_only=True)
class Warp:
    n_probe: int = 32  # cells read for each query row
    t_prime: int | None = None  # rows at which the imputed score is taken; None is the rule of `t_prime_for`
    bound: int = 128  # cells among which that is looked for; the last of them counts if they hold fewer rows

    comparable: ClassVar[bool] = False

    def __post_init__(self) -> None:
        at_least_one(self, "n_probe", "t_prime", "bound")

    def search(self, asked: MultiVectorQuery, k: int, chosen: Chosen, *, n_threads: int = 1) -> Found:
        live = np.flatnonzero(asked.query.any(axis=1))  # a row of zeros, which is what masked tokens are, adds nothing
        if not len(chosen) or not len(live):
            return NOTHING
        postings = chosen.row_postings
        with asked.trace.stage("cells") as stage:
            n_read = chosen.n_cells(self.n_probe)
            cells, levels = select_cells(asked.table, len(asked.query), max(n_read, chosen.n_cells(self.bound)))
            cells, scores = cells[live], levels[live] * np.float32(asked.scale)
            t_prime = self.t_prime or t_prime_for(len(postings.rows), len(asked.table), k)
            missing = _imputed(postings.sizes[cells], scores, t_prime)
            asked.imputed = np.zeros(len(asked.query), np.float32)
            asked.imputed[live] = missing
            stage.counts["cells"] = len(live) * n_read
        with asked.trace.stage("codes") as stage:
            query = asked.query[live] * asked.items.codec.steps
            found = _score(asked, query, cells[:, :n_read], scores[:, :n_read], missing, postings, n_threads)
            n_rows, coded = len(found.items), asked.items.rows
            n_bytes = n_rows * (coded.codes.shape[1] + postings.rows.itemsize + postings.items.itemsize)
            stage.counts.update(postings=n_rows, rows=n_rows, bytes=n_bytes)
        with asked.trace.stage("impute") as stage:
            items, sums, n_met = asked.items.item_tally.best_items(found, k)
            stage.counts.update(tokens=n_rows, items=n_met)
        return items, sums

    def wider(self, asked: MultiVectorQuery, k: int, chosen: Chosen) -> Self | None:
        del k
        return None if chosen.n_cells(self.n_probe) >= len(asked.table) else replace(self, n_probe=2 * self.n_probe)


def t_prime_for(n_rows: int, n_cells: int, k: int) -> int:
    """WARP's own rule, which rounds down to thousands. Where that leaves nothing it is not rounded: a smaller t' would
    impute more than what most cells that were read can give."""
    if n_cells > MANY_CELLS:
        return 100_000 if k > 100 else 50_000
    rows = math.sqrt(8 * n_rows)
    return int(rows / 1000) * 1000 or max(1, math.ceil(rows))


def _imputed(sizes: NDArray[np.int64], scores: NDArray[np.float32], t_prime: int) -> NDArray[np.float32]:
    """For each query row the score of the first cell, best first, at which t_prime rows are reached, or of the last."""
    reached = np.cumsum(sizes, axis=1) >= t_prime
    reached[:, -1] = True
    return np.asarray(scores[np.arange(len(scores)), reached.argmax(axis=1)])


def _score(
    asked: MultiVectorQuery,
    query: NDArray[np.float32],
    cells: NDArray[np.int32],
    scores: NDArray[np.float32],
    missing: NDArray[np.float32],
    postings: RowPostings,
    n_threads: int,
) -> RetrievedRows:
    """What the query rows find, each in its own cells; a share of the query rows for each thread."""

    def share(own: NDArray[np.int64]) -> tuple[NDArray[np.uint32], NDArray[np.float32], NDArray[np.int64]]:
        return score_probed_rows(
            query[own],
            asked.items.rows,
            np.ascontiguousarray(cells[own]),
            np.ascontiguousarray(scores[own]),
            postings.offsets,
            postings.rows,
            postings.items,
        )

    everyone = np.arange(len(query))
    if n_threads == 1 or postings.sizes.mean() * cells.size < WORTH_THREADS:
        return RetrievedRows(*share(everyone), missing)
    with ThreadPoolExecutor(n_threads) as pool:
        items, found, starts = zip(*pool.map(share, np.array_split(everyone, n_threads)), strict=True)
    ends = np.cumsum([own[-1] for own in starts])
    later = [own[1:] + first for own, first in zip(starts, [0, *ends], strict=False)]
    return RetrievedRows(np.concatenate(items), np.concatenate(found), np.concatenate([[0], *later]), missing)

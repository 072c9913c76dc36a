"""ColXTR (Bhat et al., 2024): XTR on compressed rows. The cells of all query rows are read together.

Each query row selects its best cells; every row in their union is scored with every query row, and each query row keeps
its best. An item's score is the sum over query rows of its best kept row, or of the last score that was kept. Rows are
scaled to their original length. Mode `colxtr`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Self

import numpy as np

from plait.errors import ConfigError
from plait.scoring.maxsim import top_k
from plait.scoring.residual import select_cells
from plait.search.modes import register
from plait.search.multivector.item_filter import ItemFilter
from plait.search.multivector.method import NOTHING, FoundItems, method_mode
from plait.search.multivector.query import MultiVectorQuery, bytes_of_row
from plait.search.multivector.steps import BestScores, InSteps, Sizes, Steps
from plait.search.multivector.xtr import retrieve_tokens
from plait.search.params import check_counts, check_types

# The paper keeps 500 tokens on its small sets and 100,000 on its large ones; the size where it changes is ours.
SMALL_TOKENS, LARGE_TOKENS, MIN_LARGE = 500, 100_000, 10_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ColXtrParams:
    """Parameters of mode `colxtr`."""

    n_cells: int = 10  # cells that each query row selects
    n_tokens: int | None = None  # rows that each query row keeps; None: 500, or 100,000 from ten million rows on
    rerank: int = 0  # items that are scored again by MaxSim over all their codes, at least k; 0: none

    def __post_init__(self) -> None:
        check_types(self)
        check_counts(self, "n_cells", "n_tokens")
        if self.rerank < 0:
            raise ConfigError(f"rerank is {self.rerank}; it must be 0, for none, or more")


@dataclass(frozen=True, slots=True)
class ColXtr(InSteps):
    params: ColXtrParams = ColXtrParams()

    comparable: ClassVar[bool] = False

    def steps(
        self, query: MultiVectorQuery, k: int, item_filter: ItemFilter, sizes: Sizes, *, n_threads: int = 1
    ) -> Steps:
        rerank = self.params.rerank
        with query.trace.stage("tokens") as stage:
            cells, _ = select_cells(query.table, len(query.query), sizes.n_cells(self.params.n_cells))
            union = np.unique(cells)
            rows, _, _ = item_filter.row_postings.of_cells(union)
            kernel_query, coded = query.kernel_arguments(use_8bit=False)
            stage.counts.update(cells=len(union), postings=len(rows), rows=len(rows))
            stage.counts.update(bytes=len(rows) * (bytes_of_row(coded) + rows.itemsize))
            if not len(rows) and sizes.n_shards == 1:
                return NOTHING
            tokens = yield from retrieve_tokens(
                kernel_query, coded, rows, query.items.owners, self._n_tokens(sizes), n_threads=n_threads
            )
        with query.trace.stage("impute") as stage:
            items, scores, n_met = query.items.item_tally.best_items(tokens, max(k, rerank))
            stage.counts.update(tokens=len(tokens.items), items=n_met)
        if not rerank:
            return FoundItems(items, scores, tokens.missing)
        n_kept: int = yield BestScores(scores, max(k, rerank))
        items = np.sort(items[:n_kept])
        scores = query.scores(items, n_threads=n_threads)
        best = top_k(scores, k)
        return FoundItems(items[best], scores[best], tokens.missing)

    def wider_than(self, sizes: Sizes, k: int) -> Self | None:
        del k
        params, n_tokens = self.params, self._n_tokens(sizes)
        if sizes.n_cells(params.n_cells) < sizes.n_centroids:
            return replace(self, params=replace(params, n_cells=2 * params.n_cells))
        if n_tokens >= sizes.n_accepted_rows:
            return None
        return replace(self, params=replace(params, n_tokens=2 * n_tokens))

    def _n_tokens(self, sizes: Sizes) -> int:
        return self.params.n_tokens or (SMALL_TOKENS if sizes.n_rows < MIN_LARGE else LARGE_TOKENS)


register(
    method_mode("colxtr", "like xtr, among the best cells of all query tokens together (ColXTR)", ColXtrParams, ColXtr)
)

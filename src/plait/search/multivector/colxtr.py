"""ColXTR (Bhat et al., 2024): XTR on compressed rows. The cells of all query rows are read together.

Each query row names its best cells; every row in the union of them is scored with every query row, and each query row
keeps its best. An item's score is the sum over query rows of its best kept row, or of the last score that was kept.
Rows have the length that they had before they were coded.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Self

import numpy as np

from plait.errors import ConfigError
from plait.scoring.maxsim import top_k
from plait.scoring.residual import select_cells
from plait.search.multivector.item_filter import Chosen
from plait.search.multivector.method import NOTHING, Found, at_least_one
from plait.search.multivector.query import MultiVectorQuery, bytes_of_row
from plait.search.multivector.token_retrieval import best_rows

# The paper keeps 500 on its small sets and 100,000 on its large ones; where it changes is ours.
N_SMALL, N_LARGE, LARGE = 500, 100_000, 10_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ColXtr:
    n_cells: int = 10  # cells that each query row names
    n_tokens: int | None = None  # rows that each query row keeps; None is 500, or 100,000 from ten million rows on
    rerank: int = 0  # items that are scored again by MaxSim over all their codes, k at least; 0 is none

    comparable: ClassVar[bool] = False

    def __post_init__(self) -> None:
        at_least_one(self, "n_cells", "n_tokens")
        if self.rerank < 0:
            raise ConfigError(f"rerank is {self.rerank}; it must be 0, for none, or more")

    def search(self, asked: MultiVectorQuery, k: int, chosen: Chosen, *, n_threads: int = 1) -> Found:
        with asked.trace.stage("tokens") as stage:
            cells, _ = select_cells(asked.table, len(asked.query), chosen.n_cells(self.n_cells))
            union = np.unique(cells)
            rows, _, _ = chosen.row_postings.of_cells(union)
            query, coded = asked.kernel_arguments(use_8bit=False)
            stage.counts.update(cells=len(union), postings=len(rows), rows=len(rows))
            stage.counts.update(bytes=len(rows) * (bytes_of_row(coded) + rows.itemsize))
            if not len(rows):
                return NOTHING
            n_tokens = self._settled(asked)
            found = best_rows(query, coded, rows, asked.items.owners, n_tokens, n_threads=n_threads)
            asked.imputed = found.missing
        with asked.trace.stage("impute") as stage:
            items, scores, n_met = asked.items.item_tally.best_items(found, max(k, self.rerank))
            stage.counts.update(tokens=len(found.items), items=n_met)
        if not self.rerank:
            return items, scores
        items = np.sort(items)
        scores = asked.scores(items, n_threads=n_threads)
        best = top_k(scores, k)
        return items[best], scores[best]

    def wider(self, asked: MultiVectorQuery, k: int, chosen: Chosen) -> Self | None:
        del k
        n_tokens = self._settled(asked)
        if chosen.n_cells(self.n_cells) < len(asked.table):
            return replace(self, n_cells=2 * self.n_cells)
        return None if n_tokens >= len(chosen.row_postings.rows) else replace(self, n_tokens=2 * n_tokens)

    def _settled(self, asked: MultiVectorQuery) -> int:
        return self.n_tokens or (N_SMALL if len(asked.items.rows.codes) < LARGE else N_LARGE)

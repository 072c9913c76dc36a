"""XTR (Lee et al., 2023): documents are scored by the tokens that were retrieved, and no other.

Each query row retrieves its best rows among all, here by exact search over the codes. An item's score is the mean over
query rows of its best retrieved row, or, where a query row retrieved none of it, of that query row's last score: the
most that what was missed can have.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Self

import numpy as np

from plait.search.multivector.item_filter import Chosen
from plait.search.multivector.method import NOTHING, Found, at_least_one
from plait.search.multivector.query import MultiVectorQuery, bytes_of_row
from plait.search.multivector.token_retrieval import best_rows

# With one in 10,000, small sets lost up to 0.06 nDCG@10 to imputation; so many lose a hundredth at most.
FEWEST, MOST, ONE_IN = 500, 40_000, 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Xtr:
    n_tokens: int | None = None  # rows that each query row retrieves (k'); None is one in 1,000, from 500 to 40,000

    comparable: ClassVar[bool] = False

    def __post_init__(self) -> None:
        at_least_one(self, "n_tokens")

    def search(self, asked: MultiVectorQuery, k: int, chosen: Chosen, *, n_threads: int = 1) -> Found:
        rows = chosen.rows
        if not len(rows):
            return NOTHING
        with asked.trace.stage("tokens") as stage:
            query, coded = asked.kernel_arguments(use_8bit=asked.items.codes_8bit is not None)
            found = best_rows(query, coded, rows, asked.items.owners, self._settled(chosen), n_threads=n_threads)
            asked.imputed = found.missing
            stage.counts.update(rows=len(rows), tokens=len(found.items), bytes=len(rows) * bytes_of_row(coded))
        with asked.trace.stage("impute") as stage:
            items, scores, n_met = asked.items.item_tally.best_items(found, k)
            stage.counts.update(tokens=len(found.items), items=n_met)
        return items, scores / np.float32(len(asked.query))

    def wider(self, asked: MultiVectorQuery, k: int, chosen: Chosen) -> Self | None:
        del asked, k
        n_tokens = self._settled(chosen)
        return None if n_tokens >= len(chosen.rows) else replace(self, n_tokens=2 * n_tokens)

    def _settled(self, chosen: Chosen) -> int:
        return self.n_tokens or min(max(len(chosen.rows) // ONE_IN, FEWEST), MOST)

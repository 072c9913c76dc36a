"""plait's own method, which `plait.search.multivector.query` has: cells, centroids, codes, each on fewer items."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Self

from plait.search.multivector.item_filter import Chosen
from plait.search.multivector.method import Found
from plait.search.multivector.query import MultiVectorQuery, ProbeConfig


@dataclass(frozen=True, slots=True)
class Probed:
    config: ProbeConfig = ProbeConfig()  # noqa: RUF009 -- frozen

    comparable: ClassVar[bool] = True

    def search(self, asked: MultiVectorQuery, k: int, chosen: Chosen, *, n_threads: int = 1) -> Found:
        del n_threads  # the stages are too short to share out
        config = replace(self.config, n_candidates=max(self.config.n_candidates, 4 * k))
        return asked.search(k, config, allowed=chosen.bits)

    def wider(self, asked: MultiVectorQuery, k: int, chosen: Chosen) -> Self | None:
        del k, chosen
        if self.config.n_probe >= len(asked.table):
            return None
        return replace(self, config=replace(self.config, n_probe=2 * self.config.n_probe))

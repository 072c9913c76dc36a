"""MaxSim of every item by its finest codes: what the other methods are compared with. Mode `exhaustive`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from plait.scoring.maxsim import top_k
from plait.search.modes import register
from plait.search.multivector.item_filter import ItemFilter
from plait.search.multivector.method import NOTHING, FoundItems, method_mode
from plait.search.multivector.query import MultiVectorQuery
from plait.search.params import NoParams


@dataclass(frozen=True, slots=True)
class Exhaustive:
    params: NoParams = NoParams()  # noqa: RUF009 -- frozen

    comparable: ClassVar[bool] = True

    def search(self, query: MultiVectorQuery, k: int, item_filter: ItemFilter, *, n_threads: int = 1) -> FoundItems:
        if not len(item_filter):
            return NOTHING
        scores = query.scores(item_filter.numbers, n_threads=n_threads)
        best = top_k(scores, k)
        return FoundItems(best if item_filter.numbers is None else item_filter.numbers[best], scores[best])

    def wider(self, query: MultiVectorQuery, k: int, item_filter: ItemFilter) -> None:
        del query, k, item_filter


register(method_mode("exhaustive", "MaxSim of every passage", NoParams, Exhaustive, exact=True))

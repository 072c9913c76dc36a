"""Every item, by its finest codes: what the others are measured against."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from plait.scoring.maxsim import top_k
from plait.search.multivector.item_filter import Chosen
from plait.search.multivector.method import NOTHING, Found
from plait.search.multivector.query import MultiVectorQuery


@dataclass(frozen=True, slots=True, kw_only=True)
class Exhaustive:
    comparable: ClassVar[bool] = True

    def search(self, asked: MultiVectorQuery, k: int, chosen: Chosen, *, n_threads: int = 1) -> Found:
        if not len(chosen):
            return NOTHING
        scores = asked.scores(chosen.numbers, n_threads=n_threads)
        best = top_k(scores, k)
        return best if chosen.numbers is None else chosen.numbers[best], scores[best]

    def wider(self, asked: MultiVectorQuery, k: int, chosen: Chosen) -> None:
        del asked, k, chosen

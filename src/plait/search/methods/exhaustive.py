"""Every item, by its finest codes: what the others are measured against."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from plait.scoring.maxsim import top_k
from plait.search.chosen import Chosen
from plait.search.coded import CodedQuery
from plait.search.methods.method import NOTHING, Found


@dataclass(frozen=True, slots=True, kw_only=True)
class Exhaustive:
    comparable: ClassVar[bool] = True

    def search(self, asked: CodedQuery, k: int, chosen: Chosen, *, n_threads: int = 1) -> Found:
        if not len(chosen):
            return NOTHING
        scores = asked.scores(chosen.numbers, n_threads=n_threads)
        best = top_k(scores, k)
        return best if chosen.numbers is None else chosen.numbers[best], scores[best]

    def wider(self, asked: CodedQuery, k: int, chosen: Chosen) -> None:
        del asked, k, chosen

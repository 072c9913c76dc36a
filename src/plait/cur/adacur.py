"""Search in rounds: score some items, fit the query to their vectors, let it choose the next.

ADACUR and AXN differ in the vectors alone. ADACUR takes an item's scores with the anchor queries, the column of R; the
fit c pinv(R[:, A]) is then ANNCUR's, with anchors that are chosen for this query. AXN takes dense vectors, or factors
of a score matrix that is known in part, and needs no anchor queries at all. One round is retrieve-and-rerank.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from plait.cur.algebra import DEFAULT_CUT, pseudo_inverse
from plait.cur.calls import Calls, Found, Items, Scores
from plait.cur.order import best_unseen, drawn, share
from plait.cur.scale import AS_IT_IS, ScoreMap, fit_scale
from plait.errors import ConfigError

CHOICES = ("top", "sample")


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundsConfig:
    """How the budget is spent."""

    n_rounds: int = 5
    choose: str = "top"  # or "sample": a draw from the softmax of approximate scores
    temperature: float = 1.0  # of that draw
    cut: float = DEFAULT_CUT  # singular values below this part of the largest are left out of the fit
    ridge: float = 0.0  # damps the others
    mix: float = 0.0  # lambda: how much of the query's own dense vector stays in the fitted one
    seed: int = 0

    def __post_init__(self) -> None:
        if self.n_rounds < 1:
            raise ConfigError(f"n_rounds is {self.n_rounds}; at least one round is needed")
        if self.choose not in CHOICES:
            raise ConfigError(f"choose is {self.choose!r}; it must be one of {', '.join(CHOICES)}")
        if self.temperature <= 0:
            raise ConfigError(f"temperature is {self.temperature}; it must be above 0")
        if not 0 <= self.mix <= 1:
            raise ConfigError(f"mix is {self.mix}; it is a share, from 0 to 1")
        if not 0 <= self.cut < 1 or self.ridge < 0:
            raise ConfigError(
                f"cut is {self.cut} and ridge {self.ridge}; a cut is from 0 to below 1, a ridge 0 or more"
            )


@dataclass(frozen=True, slots=True, eq=False)
class AdaptiveCur:
    """ADACUR (`vectors` are columns of R) or AXN (`vectors` are dense or factors)."""

    vectors: NDArray[np.floating]  # (items, dim)
    config: RoundsConfig = RoundsConfig()
    # Brings exact scores to the range of the vectors' inner products; None fits it to the first round, which needs the
    # query's own vector.
    scale: ScoreMap | None = AS_IT_IS

    def search(
        self,
        calls: Calls,
        k: int,
        *,
        first: Items,
        among: Items | None = None,
        query: NDArray[np.floating] | None = None,
    ) -> Found:
        """The k best that were found. `first` are items to begin with, best first: dense or BM25 candidates, or random
        ones. `query` is the dense vector to mix in, needed where `mix` is not 0."""
        if self.config.mix and query is None:
            raise ConfigError(f"mix is {self.config.mix}, and there is no dense query vector to mix in; set it to 0")
        rng = np.random.default_rng(self.config.seed)
        sizes = share(calls.left, self.config.n_rounds)
        started = first if among is None else first[np.isin(first, among)]
        calls.score(_unseen(started, calls.items)[: sizes[0]], name="round 1")
        scale = self._scale(calls, query)
        for number, size in enumerate(sizes[1:], 2):
            promised = self.vectors @ self.fitted(calls.items, calls.scores, query, scale)
            if self.config.choose == "sample":
                promised = drawn(promised, temperature=self.config.temperature, rng=rng)
            calls.score(best_unseen(promised, calls.items, size, among=among), name=f"round {number}")
        # A short first list leaves calls over; the last fit spends them.
        if calls.left and len(sizes) > 1:
            promised = self.vectors @ self.fitted(calls.items, calls.scores, query, scale)
            calls.score(best_unseen(promised, calls.items, calls.left, among=among), name="the rest")
        return calls.best(k, among=among)

    def _scale(self, calls: Calls, query: NDArray[np.floating] | None) -> ScoreMap:
        if self.scale is not None:
            return self.scale
        if query is None:
            raise ConfigError("scores are to be scaled to those of the query's own vector, and there is none; give one")
        dense = self.vectors[calls.items] @ query
        # Scores that are all equal have no range; they are fitted as they are.
        if len(dense) < 2 or not np.std(dense) or not np.std(calls.scores):
            return AS_IT_IS
        return fit_scale(calls.scores, dense)

    def fitted(
        self,
        items: Items,
        scores: Scores,
        query: NDArray[np.floating] | None = None,
        scale: ScoreMap = AS_IT_IS,
    ) -> Scores:
        """The query vector (dim,) whose inner products with these items come nearest to their scores."""
        if not len(items):
            vector = np.zeros(self.vectors.shape[1])
        else:
            inverse = pseudo_inverse(self.vectors[items], cut=self.config.cut, ridge=self.config.ridge)
            vector = inverse @ scale.of(scores)
        if query is None or not self.config.mix:
            return vector
        return (1 - self.config.mix) * vector + self.config.mix * np.asarray(query, np.float64)


def retrieve_and_rerank(calls: Calls, k: int, *, first: Items, among: Items | None = None) -> Found:
    """The baseline: the whole budget goes to the first candidates."""
    started = first if among is None else first[np.isin(first, among)]
    calls.score(started[: calls.left], name="reranked")
    return calls.best(k, among=among)


def _unseen(items: Items, seen: Items) -> Items:
    return items[~np.isin(items, seen)]

"""`AdaptiveCur`: search in rounds. Score some items, fit a query vector to their scores, let it choose the next items.

ADACUR (Yadav et al., 2023) and AXN (Yadav et al., 2024) differ only in the item vectors. ADACUR takes an item's scores
with the anchor queries, its column of R; the fit c pinv(R[:, A]) is that of ANNCUR with anchors A chosen for this
query. AXN takes dense vectors, or factors of a partly known score matrix (`plait.cur.axn`), and needs no anchor
queries. With one round both are retrieve-and-rerank.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from plait.cur.algebra import DEFAULT_RCOND, pseudo_inverse
from plait.cur.calls import Calls, Items, Scores, TopItems, best_unscored
from plait.errors import ConfigError, InputError

SELECTIONS = ("top", "sample")


@dataclass(frozen=True, slots=True)
class ScoreScale:
    """The linear map beta * (score - alpha), from cross-encoder scores to the range of inner products."""

    alpha: float
    beta: float

    def apply(self, scores: NDArray[np.floating]) -> Scores:
        return self.beta * (np.asarray(scores, np.float64) - self.alpha)


IDENTITY = ScoreScale(0.0, 1.0)


def fit_scale(cross: NDArray[np.floating], dense: NDArray[np.floating]) -> ScoreScale:
    """The map that gives cross-encoder scores the mean and standard deviation of the dense scores of the same pairs."""
    if cross.shape != dense.shape or cross.size < 2:
        raise InputError(f"scores of the same two or more pairs are needed; got shapes {cross.shape} and {dense.shape}")
    spread = float(np.std(cross))
    if not np.isfinite(spread) or spread == 0:
        raise InputError(f"the cross-encoder's scores have the spread {spread}, so they cannot be scaled; check them")
    beta = float(np.std(dense)) / spread
    if beta == 0:
        raise InputError("all dense scores are equal, so they have no range to scale other scores to; check them")
    return ScoreScale(float(np.mean(cross)) - float(np.mean(dense)) / beta, beta)


@dataclass(frozen=True, slots=True, kw_only=True)
class AdaptiveCurConfig:
    """How the budget is spent."""

    n_rounds: int = 5
    selection: str = "top"  # or "sample": a draw from the softmax of approximate scores
    temperature: float = 1.0  # of that softmax
    rcond: float = DEFAULT_RCOND  # singular values below this fraction of the largest are dropped from the fit
    ridge: float = 0.0  # damps the others
    mix: float = 0.0  # lambda: the share of the query's dense vector in the fitted one
    seed: int = 0

    def __post_init__(self) -> None:
        if self.n_rounds < 1:
            raise ConfigError(f"n_rounds is {self.n_rounds}; it must be at least 1")
        if self.selection not in SELECTIONS:
            raise ConfigError(f"selection is {self.selection!r}; it must be one of {', '.join(SELECTIONS)}")
        if self.temperature <= 0:
            raise ConfigError(f"temperature is {self.temperature}; it must be above 0")
        if not 0 <= self.mix <= 1:
            raise ConfigError(f"mix is {self.mix}; it is a share, from 0 to 1")
        if not 0 <= self.rcond < 1 or self.ridge < 0:
            raise ConfigError(
                f"rcond is {self.rcond} and ridge {self.ridge}; rcond is from 0 to below 1, ridge is 0 or more"
            )


@dataclass(frozen=True, slots=True, eq=False)
class AdaptiveCur:
    """ADACUR if `vectors` are columns of R, AXN if they are dense vectors or factors."""

    vectors: NDArray[np.floating]  # (items, dim)
    config: AdaptiveCurConfig = AdaptiveCurConfig()
    # Maps exact scores to the range of the vectors' inner products; None fits it on the first round, which needs the
    # query's dense vector.
    scale: ScoreScale | None = IDENTITY

    def search(
        self,
        calls: Calls,
        k: int,
        *,
        first: Items,
        among: Items | None = None,
        query: NDArray[np.floating] | None = None,
    ) -> TopItems:
        """The k best scored items of `among` (all items if None).

        `first` are the candidates of the first round, best first: from dense search or BM25, or random. `query` is the
        query's dense vector; it is needed if `mix` is not 0 or `scale` is None.
        """
        if self.config.mix and query is None:
            raise ConfigError(f"mix is {self.config.mix}, and there is no dense query vector to mix in; set it to 0")
        rng = np.random.default_rng(self.config.seed)
        sizes = split_evenly(calls.n_left, self.config.n_rounds)
        candidates = first if among is None else first[np.isin(first, among)]
        candidates = candidates[~np.isin(candidates, calls.items)]
        calls.score(candidates[: sizes[0]], name="round 1")
        scale = self._scale(calls, query)
        for number, size in enumerate(sizes[1:], 2):
            approximate = self.vectors @ self.fitted(calls.items, calls.scores, query, scale)
            if self.config.selection == "sample":
                approximate = gumbel_scores(approximate, temperature=self.config.temperature, rng=rng)
            calls.score(best_unscored(approximate, calls.items, size, among=among), name=f"round {number}")
        # A short first list leaves calls over; the last fit spends them.
        if calls.n_left and len(sizes) > 1:
            approximate = self.vectors @ self.fitted(calls.items, calls.scores, query, scale)
            calls.score(best_unscored(approximate, calls.items, calls.n_left, among=among), name="the rest")
        return calls.best(k, among=among)

    def _scale(self, calls: Calls, query: NDArray[np.floating] | None) -> ScoreScale:
        if self.scale is not None:
            return self.scale
        if query is None:
            raise ConfigError("fitting the scale of scores needs the query's dense vector, and none was given; give it")
        dense = self.vectors[calls.items] @ query
        # Scores that are all equal have no range; they are fitted as they are.
        if len(dense) < 2 or not np.std(dense) or not np.std(calls.scores):
            return IDENTITY
        return fit_scale(calls.scores, dense)

    def fitted(
        self,
        items: Items,
        scores: Scores,
        query: NDArray[np.floating] | None = None,
        scale: ScoreScale = IDENTITY,
    ) -> Scores:
        """The query vector (dim,) whose inner products with the items are nearest to their scores, by least squares."""
        if not len(items):
            vector = np.zeros(self.vectors.shape[1])
        else:
            inverse = pseudo_inverse(self.vectors[items], rcond=self.config.rcond, ridge=self.config.ridge)
            vector = inverse @ scale.apply(scores)
        if query is None or not self.config.mix:
            return vector
        return (1 - self.config.mix) * vector + self.config.mix * np.asarray(query, np.float64)


def retrieve_and_rerank(calls: Calls, k: int, *, first: Items, among: Items | None = None) -> TopItems:
    """The baseline: spends the whole budget on the first candidates."""
    candidates = first if among is None else first[np.isin(first, among)]
    calls.score(candidates[: calls.n_left], name="reranked")
    return calls.best(k, among=among)


def gumbel_scores(scores: Scores, *, temperature: float, rng: np.random.Generator) -> Scores:
    """Noisy scores whose n best items are a draw of n items without replacement from softmax(scores / temperature)."""
    return scores / temperature + rng.gumbel(size=len(scores))


def split_evenly(total: int, n_parts: int) -> list[int]:
    """`total` as `n_parts` sizes that differ by at most one, the larger first; sizes of 0 are left out."""
    sizes = [total // n_parts + (part < total % n_parts) for part in range(n_parts)]
    return [size for size in sizes if size]

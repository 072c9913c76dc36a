"""`Calls`: the cross-encoder calls of one query, limited by a budget. Methods never see the scorer itself, so none can
exceed the budget."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from plait.errors import ConfigError, InputError

Items = NDArray[np.int64]
Scores = NDArray[np.float64]
Scorer = Callable[[Items], NDArray[np.floating]]  # items to their scores with one query, in the same order


@dataclass(frozen=True, slots=True, eq=False)
class TopItems:
    """Items with exact scores, best first; items of equal score are in ascending order."""

    items: Items
    scores: Scores

    def __len__(self) -> int:
        return len(self.items)


@dataclass(frozen=True, slots=True, eq=False)
class Round:
    """Items that one call of the scorer scored, and the name of the step that asked for them."""

    name: str
    items: Items
    scores: Scores
    seconds: float = 0.0  # spent in the scorer


@dataclass(slots=True, eq=False)
class Calls:
    """Scores at most `budget` distinct items for one query. Scoring an item again is free."""

    scorer: Scorer
    budget: int
    rounds: list[Round] = field(default_factory=list)
    _score_by_item: dict[int, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.budget < 1:
            raise ConfigError(f"the budget is {self.budget} calls of the cross-encoder; it must be at least 1")

    @property
    def n_made(self) -> int:
        return len(self._score_by_item)

    @property
    def n_left(self) -> int:
        return self.budget - self.n_made

    @property
    def items(self) -> Items:
        """The items scored so far, in the order of scoring."""
        return np.fromiter(self._score_by_item, np.int64, len(self._score_by_item))

    @property
    def scores(self) -> Scores:
        """The scores of `items`, in the same order."""
        return np.fromiter(self._score_by_item.values(), np.float64, len(self._score_by_item))

    def score(self, items: Items, *, name: str = "scored") -> Scores:
        """The scores of the items, in their order. Items that were not scored before use up the budget."""
        numbers = [int(item) for item in items]
        new = [item for item in dict.fromkeys(numbers) if item not in self._score_by_item]
        if len(new) > self.n_left:
            raise ConfigError(
                f"the search needs {len(new)} more calls of the cross-encoder, and {self.n_left} of the budget of "
                f"{self.budget} are left; give a larger budget or use fewer anchors"
            )
        if new:
            start = time.perf_counter()
            scores = np.asarray(self.scorer(np.asarray(new, np.int64)), np.float64)
            _check_scores(scores, new)
            self._score_by_item.update(zip(new, scores.tolist(), strict=True))
            self.rounds.append(Round(name, np.asarray(new, np.int64), scores, time.perf_counter() - start))
        return np.asarray([self._score_by_item[item] for item in numbers], np.float64)

    def best(self, k: int, *, among: Items | None = None) -> TopItems:
        """The k best of the scored items that are in `among` (all scored items if None)."""
        items, scores = self.items, self.scores
        if among is not None:
            is_in = np.isin(items, among)
            items, scores = items[is_in], scores[is_in]
        order = np.lexsort((items, -scores))[:k]
        return TopItems(items[order], scores[order])


def _check_scores(scores: Scores, items: list[int]) -> None:
    if scores.shape != (len(items),):
        raise InputError(f"the scorer gave an array of shape {scores.shape} for {len(items)} items; one score each")
    wrong = np.flatnonzero(~np.isfinite(scores))
    if len(wrong):
        raise InputError(
            f"the cross-encoder gave {scores[wrong[0]]} for item {items[wrong[0]]}, and {len(wrong)} such scores in "
            f"all; scores must be finite: check the model and its precision"
        )


def best_unscored(scores: Scores, scored: Items, n: int, *, among: Items | None = None) -> Items:
    """The n items of `among` (all if None) with the best approximate scores (items,), without those in `scored`; equal
    scores in ascending order of items."""
    if n <= 0:
        return np.zeros(0, np.int64)
    keys = np.asarray(scores, np.float64).copy()
    if among is not None:
        is_outside = np.ones(len(keys), bool)
        is_outside[among] = False
        keys[is_outside] = -np.inf
    keys[scored] = -np.inf
    n = min(n, int((keys > -np.inf).sum()))
    if n == 0:
        return np.zeros(0, np.int64)
    # Every item that ties with the n-th stays until the exact sort, so that ties break by number.
    candidates = np.flatnonzero(keys >= np.partition(keys, len(keys) - n)[len(keys) - n])
    return candidates[np.lexsort((candidates, -keys[candidates]))[:n]].astype(np.int64)


def top_k_recall(top: TopItems, exact: NDArray[np.floating], k: int) -> float:
    """Top-k-Recall: the share of the k best items by `exact` (items,) among the first k of `top`. An item that ties
    with the k-th best counts as one of them."""
    if not 1 <= k <= len(exact):
        raise ConfigError(f"k is {k}, and there are {len(exact)} items; k must be from 1 to their number")
    threshold = np.partition(exact, len(exact) - k)[len(exact) - k]
    return min(k, int((np.asarray(exact)[top.items[:k]] >= threshold).sum())) / k

"""`Calls`: one query's calls of a cross-encoder, counted. No method sees the scorer itself, so none can spend more."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from plait.errors import ConfigError, InputError

Items = NDArray[np.int64]
Scores = NDArray[np.float64]
Scorer = Callable[[Items], NDArray[np.floating]]  # item numbers to the scores of one query, in their order


@dataclass(frozen=True, slots=True, eq=False)
class Found:
    """Items with exact scores, best first; equal scores stand in the order of their numbers."""

    items: Items
    scores: Scores

    def __len__(self) -> int:
        return len(self.items)


@dataclass(frozen=True, slots=True, eq=False)
class Round:
    """What was scored in one go, and why."""

    name: str
    items: Items
    scores: Scores
    seconds: float = 0.0  # that the scorer took


@dataclass(slots=True, eq=False)
class Calls:
    """At most `budget` distinct items of one query are scored. An item that was scored before costs nothing again."""

    scorer: Scorer
    budget: int
    rounds: list[Round] = field(default_factory=list)
    _known: dict[int, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.budget < 1:
            raise ConfigError(f"the budget is {self.budget} calls of the cross-encoder; it must be at least 1")

    @property
    def made(self) -> int:
        return len(self._known)

    @property
    def left(self) -> int:
        return self.budget - self.made

    @property
    def items(self) -> Items:
        """What was scored, in the order it was."""
        return np.fromiter(self._known, np.int64, len(self._known))

    @property
    def scores(self) -> Scores:
        return np.fromiter(self._known.values(), np.float64, len(self._known))

    def score(self, items: Items, *, name: str = "scored") -> Scores:
        """The scores of these items, in their order; what is not known yet is paid for."""
        wanted = [int(item) for item in items]
        new = [item for item in dict.fromkeys(wanted) if item not in self._known]
        if len(new) > self.left:
            raise ConfigError(
                f"{len(new)} more calls were asked of the cross-encoder, and {self.left} of the budget of "
                f"{self.budget} are left; give a larger budget or fewer anchors"
            )
        if new:
            began = time.perf_counter()
            scored = np.asarray(self.scorer(np.asarray(new, np.int64)), np.float64)
            _check(scored, new)
            self._known.update(zip(new, scored.tolist(), strict=True))
            self.rounds.append(Round(name, np.asarray(new, np.int64), scored, time.perf_counter() - began))
        return np.asarray([self._known[item] for item in wanted], np.float64)

    def best(self, k: int, *, among: Items | None = None) -> Found:
        """The k best of what was scored, or of those of it that are in `among`."""
        items, scores = self.items, self.scores
        if among is not None:
            kept = np.isin(items, among)
            items, scores = items[kept], scores[kept]
        order = np.lexsort((items, -scores))[:k]
        return Found(items[order], scores[order])


def _check(scored: Scores, asked: list[int]) -> None:
    if scored.shape != (len(asked),):
        raise InputError(f"the scorer gave an array of shape {scored.shape} for {len(asked)} items; one score each")
    wrong = np.flatnonzero(~np.isfinite(scored))
    if len(wrong):
        raise InputError(
            f"the cross-encoder gave {scored[wrong[0]]} for item {asked[wrong[0]]}, and {len(wrong)} such scores in "
            f"all; scores must be finite: check the model and its precision"
        )

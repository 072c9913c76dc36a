"""`ScoreMap`: cross-encoder scores brought to the range of inner products, so that one fit can serve both."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from plait.cur.calls import Scores
from plait.errors import InputError


@dataclass(frozen=True, slots=True)
class ScoreMap:
    """beta * (score - alpha)."""

    alpha: float
    beta: float

    def of(self, scores: NDArray[np.floating]) -> Scores:
        return self.beta * (np.asarray(scores, np.float64) - self.alpha)


AS_IT_IS = ScoreMap(0.0, 1.0)


def fit_scale(cross: NDArray[np.floating], dense: NDArray[np.floating]) -> ScoreMap:
    """The map that gives cross-encoder scores the mean and the spread of dense scores; both of the same pairs."""
    if cross.shape != dense.shape or cross.size < 2:
        raise InputError(f"scores of the same two or more pairs are needed; got shapes {cross.shape} and {dense.shape}")
    spread = float(np.std(cross))
    if not np.isfinite(spread) or spread == 0:
        raise InputError(f"the cross-encoder's scores have the spread {spread}, so they cannot be scaled; check them")
    beta = float(np.std(dense)) / spread
    if beta == 0:
        raise InputError("all dense scores are equal, so there is no range to bring other scores to; check them")
    return ScoreMap(float(np.mean(cross)) - float(np.mean(dense)) / beta, beta)

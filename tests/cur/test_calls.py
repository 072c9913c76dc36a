"""`Calls` never exceeds its budget."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from plait.cur.calls import Calls
from plait.errors import ConfigError, InputError

ROW = np.array([0.1, 0.9, 0.5, 0.9])


def test_scoring_an_item_again_is_free() -> None:
    calls = Calls(ROW.__getitem__, 2)
    calls.score(np.array([1, 2]))
    np.testing.assert_array_equal(calls.score(np.array([2, 1, 2])), [0.5, 0.9, 0.5])
    assert (calls.n_made, calls.n_left) == (2, 0)


def test_calls_above_the_budget_are_refused_before_they_are_made() -> None:
    scored: list[int] = []

    def scorer(items: NDArray[np.int64]) -> NDArray[np.float64]:
        scored.extend(items.tolist())
        return np.asarray(ROW[items])

    calls = Calls(scorer, 2)
    with pytest.raises(ConfigError, match="budget of 2"):
        calls.score(np.array([0, 1, 2]))
    assert scored == []


def test_equal_scores_are_ordered_by_item() -> None:
    calls = Calls(ROW.__getitem__, 4)
    calls.score(np.array([3, 0, 1]))
    np.testing.assert_array_equal(calls.best(2).items, [1, 3])
    np.testing.assert_array_equal(calls.best(2, among=np.array([0, 3])).items, [3, 0])


def test_a_score_that_is_not_finite_is_refused() -> None:
    calls = Calls(np.array([0.0, np.nan]).__getitem__, 2)
    with pytest.raises(InputError, match="item 1"):
        calls.score(np.array([0, 1]))


def test_a_scorer_that_returns_too_few_scores_is_refused() -> None:
    with pytest.raises(InputError, match="2 items"):
        Calls(lambda _: np.zeros(1), 2).score(np.array([0, 1]))


def test_a_budget_of_zero_is_refused() -> None:
    with pytest.raises(ConfigError, match="at least 1"):
        Calls(ROW.__getitem__, 0)

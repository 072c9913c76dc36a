"""The k largest scores, in a reproducible order."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import reference
from plait import _core
from plait.scoring.maxsim import top_k


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(scores=st.lists(st.floats(width=32, allow_nan=False), max_size=300), k=st.integers(0, 310))
def test_top_k_equals_its_reference(scores: list[float], k: int) -> None:
    array = np.array(scores, np.float32)
    np.testing.assert_array_equal(top_k(array, k), reference.top_k(array, k))


@pytest.mark.parametrize("k", [1, 10, 999, 5000, 6000])
def test_equal_scores_are_ordered_by_position(k: int) -> None:
    scores = np.random.default_rng(4).integers(0, 20, 5000).astype(np.float32)
    np.testing.assert_array_equal(top_k(scores, k), reference.top_k(scores, k))


def test_zero_and_minus_zero_are_equal() -> None:
    assert top_k(np.array([-0.0, 0.0, -0.0], np.float32), 3).tolist() == [0, 1, 2]


def test_a_kernel_given_nan_stays_within_its_output() -> None:
    best = np.empty(900, np.int64)
    _core.top_k(np.full(1000, np.nan, np.float32), best)
    assert best.tolist() == list(range(900))

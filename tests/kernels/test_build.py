"""Kernels that building asks for: listed rows to their nearest centroids."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import reference
from plait import _core
from plait.scoring import integer


@pytest.mark.parametrize("dim", [8, 40, 128])
@pytest.mark.parametrize("n_listed", [0, 1, 7, 96, 97, 250])
def test_listed_rows_find_what_all_rows_find(dim: int, n_listed: int) -> None:
    rng = np.random.default_rng(dim + n_listed)
    numbers = rng.integers(-127, 128, (300, dim)).astype(np.int8)
    centroids = rng.integers(0, 128, (33, dim)).astype(np.uint8)
    listed = rng.permutation(300)[:n_listed].astype(np.int32)
    best, which = np.full(300, integer.NO_SCORE, np.int32), np.full(300, -1, np.int32)
    integer.nearest_listed(numbers, listed, centroids[:20], best, which)
    integer.nearest_listed(numbers, listed, centroids[20:], best, which, first_row=20)
    expected_best, expected_which = reference.nearest_rows(numbers, centroids)
    np.testing.assert_array_equal(best[listed], expected_best[listed])
    np.testing.assert_array_equal(which[listed], expected_which[listed])
    others = np.setdiff1d(np.arange(300), listed)
    assert (which[others] == -1).all()


def bad_lists() -> list[tuple[Any, ...]]:
    numbers, listed = np.zeros((4, 16), np.int8), np.array([0, 3], np.int32)
    centroids, best = np.zeros((5, 16), np.uint8), np.zeros(4, np.int32)
    return [
        (numbers, np.array([4], np.int32), centroids, 0, best, best),
        (numbers, np.array([-1], np.int32), centroids, 0, best, best),
        (numbers[:, :12].copy(), listed, centroids[:, :12].copy(), 0, best, best),
        (numbers, listed, centroids[:, :8].copy(), 0, best, best),
        (numbers, listed, centroids, -1, best, best),
        (numbers, listed, centroids, 0, best[:3], best),
        (numbers.astype(np.int16), listed, centroids, 0, best, best),
    ]


@pytest.mark.parametrize("arguments", bad_lists())
def test_lists_that_do_not_fit_are_refused(arguments: tuple[Any, ...]) -> None:
    with pytest.raises((ValueError, TypeError)):
        _core.nearest_listed(*arguments)

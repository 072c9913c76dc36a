"""Assignment: exact with few centroids, nearly exact with grouped ones."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from plait.codec import assign
from plait.codec.assign import NearestCentroids, sums_by_cell, unit


def spread(n_rows: int, n_clusters: int, dim: int = 32) -> NDArray[np.float32]:
    """Two levels of clusters, like the token embeddings of a language."""
    rng = np.random.default_rng(5)
    coarse = rng.standard_normal((max(n_clusters // 16, 1), dim))
    middles = coarse[rng.integers(0, len(coarse), n_clusters)] + 0.6 * rng.standard_normal((n_clusters, dim))
    rows = middles[rng.integers(0, n_clusters, n_rows)] + 0.3 * rng.standard_normal((n_rows, dim))
    return unit(rows.astype(np.float32))


def test_few_centroids_are_all_compared() -> None:
    rows, centroids = spread(900, 50, dim=64), spread(64, 50, dim=64)
    scores = rows @ centroids.T
    assigned = scores[np.arange(len(rows)), NearestCentroids(centroids).assign(rows)]
    assert float(np.max(scores.max(axis=1) - assigned)) < 0.02  # rounding


def test_grouped_centroids_are_nearly_as_near_as_the_nearest() -> None:
    rows = spread(6000, 800)
    centroids = rows[: assign.MIN_GROUPED]
    scores = rows @ centroids.T
    assigned = scores[np.arange(len(rows)), NearestCentroids(centroids).assign(rows)]
    assert float(np.mean(scores.max(axis=1) - assigned)) < 0.005
    assert float(np.mean(scores.max(axis=1) - assigned < 0.01)) > 0.9


@pytest.mark.parametrize("n_centroids", [100, assign.MIN_GROUPED])
def test_threads_and_float16_change_nothing(monkeypatch: pytest.MonkeyPatch, n_centroids: int) -> None:
    monkeypatch.setattr(assign, "BLOCK", 1000)
    rows = spread(3500, 300).astype(np.float16)
    centroids = NearestCentroids(spread(n_centroids, 300))
    expected = centroids.assign(rows.astype(np.float32))
    np.testing.assert_array_equal(centroids.assign(rows, n_threads=3), expected)


def test_no_rows_have_no_cells() -> None:
    assert len(NearestCentroids(spread(10, 5)).assign(np.zeros((0, 32), np.float32))) == 0


def test_sums_by_cell_add_up_over_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(assign, "BLOCK", 64)
    rows, cells = spread(500, 20), np.random.default_rng(1).integers(0, 7, 500).astype(np.int32)
    sums, counts = sums_by_cell(rows, cells, 9)
    expected = np.stack([rows[cells == cell].sum(axis=0) for cell in range(9)])
    np.testing.assert_allclose(sums, expected, atol=1e-4)
    np.testing.assert_array_equal(counts, np.bincount(cells, minlength=9))

"""k-means finds clusters, and handles degenerate corpora."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from plait.codec.assign import NearestCentroids
from plait.codec.kmeans import train


def clustered(n_clusters: int, n_each: int, dim: int = 16) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    rng = np.random.default_rng(0)
    middles = rng.standard_normal((n_clusters, dim))
    labels = np.repeat(np.arange(n_clusters), n_each)
    rows = middles[labels] + 0.1 * rng.standard_normal((len(labels), dim))
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32), labels


def test_rows_of_one_cluster_share_a_cell() -> None:
    rows, labels = clustered(10, 40)
    means = train(rows, 10, seed=3)
    cells = NearestCentroids(means).assign(rows)
    purity = np.mean([np.bincount(cells[labels == label]).max() / 40 for label in range(10)])
    assert purity > 0.9


@pytest.mark.parametrize("n_threads", [2, 3])
def test_threads_change_nothing(n_threads: int) -> None:
    rows, _ = clustered(60, 100)
    np.testing.assert_array_equal(train(rows, 32), train(rows, 32, n_threads=n_threads))


def test_training_twice_gives_the_same_centroids() -> None:
    rows, _ = clustered(10, 40)
    np.testing.assert_array_equal(train(rows, 16, seed=5), train(rows, 16, seed=5))


def test_fewer_distinct_rows_than_cells_give_fewer_cells() -> None:
    rows, _ = clustered(3, 1)
    assert len(train(np.repeat(rows, 30, axis=0), 16)) == 3


def test_one_row_is_one_cell() -> None:
    rows, _ = clustered(1, 1)
    np.testing.assert_allclose(train(rows, 256), rows, atol=1e-6)

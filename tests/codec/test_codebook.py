"""Scores of centroids with queries in 8 bits, and the fine scores for 8-bit codes."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from plait.codec.codebook import CentroidQuery, Codebook


def unit_rows(n_rows: int, dim: int, seed: int) -> NDArray[np.float32]:
    rows = np.random.default_rng(seed).standard_normal((n_rows, dim)).astype(np.float32)
    return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True), np.float32)


@pytest.mark.parametrize("dim", [8, 64, 128, 384])
@pytest.mark.parametrize("n_query", [1, 7, 32])
def test_fine_scores_are_those_of_floats_to_a_step_or_two(dim: int, n_query: int) -> None:
    codebook = Codebook.rounded(unit_rows(300, dim, 0))
    query = unit_rows(n_query, dim, 1)
    cells = CentroidQuery.of(query, codebook)
    exact = codebook.floats() @ query.T / cells.scale
    fine = cells.table(codebook.centroids, fine=True)[:, :n_query]
    assert np.abs(fine - exact).max() < 2.6  # two scores are rounded down, and a remainder to the nearest
    if dim >= 64:
        coarse = cells.table(codebook.centroids)[:, :n_query]
        assert np.std(fine - exact) < 0.25 * np.std(coarse - exact)


def test_fine_scores_of_the_longest_query_do_not_overflow() -> None:
    codebook = Codebook.rounded(np.ones((1, 128), np.float32) / np.sqrt(np.float32(128)))
    query = np.full((2, 128), 0.999, np.float32)
    query[0, 0] = 1.0  # so that all others have a remainder
    cells = CentroidQuery.of(query, codebook)
    exact = codebook.floats() @ query.T
    for fine in (False, True):
        scores = cells.table(codebook.centroids, fine=fine)[:, :2] * cells.scale
        assert scores == pytest.approx(exact, rel=2e-3)

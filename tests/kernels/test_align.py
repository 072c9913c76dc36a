"""The alignment of one document: which of its rows each query row matched."""

from __future__ import annotations

import numpy as np
import pytest

import reference
from kernels.grids import grid
from plait.embeddings import MultiVectors
from plait.scoring.maxsim import align, maxsim


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("n_rows", grid([0, 1, 65], rest=[3]))
@pytest.mark.parametrize("n_query", grid([1, 8, 9], rest=[7, 33, 100]))
@pytest.mark.parametrize("dim", grid([1, 7, 128], rest=[8]))
def test_align_equals_its_reference(dim: int, n_query: int, n_rows: int, dtype: str) -> None:
    rng = np.random.default_rng(dim + n_query + n_rows)
    query = rng.standard_normal((n_query, dim), np.float32)
    rows = rng.standard_normal((n_rows, dim), np.float32).astype(dtype)
    found_rows, found_scores = align(query, rows)
    expected_rows, expected_scores = reference.align(query, rows)
    np.testing.assert_array_equal(found_rows, expected_rows)
    np.testing.assert_allclose(found_scores, expected_scores, rtol=1e-5, atol=1e-4)


def test_the_first_of_equal_rows_is_the_match() -> None:
    rows = np.ones((40, 5), np.float32)
    assert align(np.ones((9, 5), np.float32), rows)[0].tolist() == [0] * 9


def test_the_matches_add_up_to_the_score_of_the_document() -> None:
    rng = np.random.default_rng(3)
    query, rows = rng.standard_normal((33, 31), np.float32), rng.standard_normal((50, 31), np.float32)
    score = maxsim(query, MultiVectors(rows, np.array([0, 50])))[0]
    assert align(query, rows)[1].sum() == pytest.approx(score, rel=1e-6)
    each = [maxsim(query[row : row + 1], MultiVectors(rows, np.array([0, 50])))[0] for row in range(33)]
    assert align(query, rows)[1].tolist() == each

"""What models return becomes plait's arrays, or an error that says what was wrong."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from scipy.sparse import csr_matrix

from plait.adapters.outputs import (
    dense_vectors,
    multi_vectors,
    pair_scores,
    sparse_vectors,
    unit_dense,
    unit_multi,
    unit_sparse,
)
from plait.embeddings import MultiVectors, SparseVectors
from plait.errors import ModelError

ROWS = [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]


class OnAnotherDevice:
    """A tensor that numpy cannot read before it is moved, as on a GPU."""

    def __init__(self, tensor: torch.Tensor, *, moved: bool = False) -> None:
        self._tensor, self._moved = tensor, moved

    def detach(self) -> OnAnotherDevice:
        return self

    def float(self) -> OnAnotherDevice:
        return OnAnotherDevice(self._tensor.float(), moved=self._moved)

    def cpu(self) -> OnAnotherDevice:
        return OnAnotherDevice(self._tensor, moved=True)

    def numpy(self) -> Any:
        if not self._moved:
            raise TypeError("can't convert cuda:0 device type tensor to numpy")
        return self._tensor.numpy()


@pytest.mark.parametrize(
    "value",
    [
        ROWS,
        tuple(map(tuple, ROWS)),
        np.array(ROWS),
        np.array(ROWS, np.float16),
        np.array(ROWS, np.int64),
        torch.tensor(ROWS),
        torch.tensor(ROWS, dtype=torch.float16),
        torch.tensor(ROWS, dtype=torch.bfloat16, requires_grad=True),
        [torch.tensor(row, dtype=torch.bfloat16) for row in ROWS],
        [np.array(row) for row in ROWS],
        OnAnotherDevice(torch.tensor(ROWS)),
        [OnAnotherDevice(torch.tensor(row)) for row in ROWS],
        torch.tensor(ROWS).to_sparse(),
    ],
    ids=lambda value: type(value).__name__,
)
def test_dense_vectors_of_every_container_are_read(value: object) -> None:
    vectors = dense_vectors(value, 2, "m")
    assert vectors.dtype == np.float32
    np.testing.assert_array_equal(vectors, np.array(ROWS, np.float32))


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (ROWS[:1], r"shape \(1, 3\) for 2 texts"),
        (ROWS[0], r"shape \(3,\) for 2 texts"),
        ([[], []], r"shape \(2, 0\) for 2 texts"),
        ([[1.0], [1.0, 2.0]], "rows of one length"),
        ([["a"], ["b"]], "no array of numbers"),
        (None, "no array of numbers"),
        ({"a": 1}, "no array of numbers"),
        ([[1.0], [float("nan")]], r"1 values that are NaN or infinite, the first \(nan\) at \(1, 0\)"),
        (torch.tensor([[1.0], [float("inf")]]), "NaN or infinite"),
        (np.array([[1.0], [1e300]]), "NaN or infinite"),
    ],
)
def test_wrong_dense_vectors_are_refused(value: object, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        dense_vectors(value, 2, "m")


@pytest.mark.parametrize(
    "value",
    [
        [np.ones((2, 3)), np.zeros((0, 3))],
        [torch.ones(2, 3, dtype=torch.float16), torch.zeros(0, 3)],
        [[[1.0, 1, 1], [1, 1, 1]], []],
        [OnAnotherDevice(torch.ones(2, 3)), np.zeros((0, 3))],
    ],
)
def test_multi_vectors_may_differ_in_number(value: object) -> None:
    vectors = multi_vectors(value, 2, "m")
    assert vectors.offsets.tolist() == [0, 2, 2]
    np.testing.assert_array_equal(vectors.values, np.ones((2, 3)))


def test_multi_vectors_are_read_from_one_array_of_three_axes() -> None:
    assert multi_vectors(torch.ones(2, 4, 3), 2, "m").offsets.tolist() == [0, 4, 8]


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ([np.ones((2, 3))], "1 items for 2 texts"),
        ([np.ones((2, 3)), np.ones((2, 4))], "shapes"),
        ([np.ones(3), np.ones(3)], "shapes"),
        (7, "instead of one item"),
        ([np.ones((1, 2)), np.full((1, 2), np.nan)], "NaN"),
    ],
)
def test_wrong_multi_vectors_are_refused(value: object, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        multi_vectors(value, 2, "m")


MATRIX = [[0.0, 2.0, 0.0, 1.0], [0.0, 0.0, 0.0, 0.0]]


@pytest.mark.parametrize(
    ("value", "vocabulary"),
    [
        ([{3: 1.0, 1: 2.0}, {}], None),
        ([{"3": np.float16(1.0), "1": 2.0, "0": 0.0}, {}], None),
        (MATRIX, 4),
        (torch.tensor(MATRIX), 4),
        (torch.tensor(MATRIX, dtype=torch.bfloat16).to_sparse(), 4),
        (csr_matrix(MATRIX), 4),
    ],
)
def test_sparse_vectors_of_every_container_are_read(value: object, vocabulary: int | None) -> None:
    vectors, size = sparse_vectors(value, 2, "m")
    assert (vectors.terms.tolist(), vectors.weights.tolist()) == ([1, 3], [2.0, 1.0])
    assert vectors.offsets.tolist() == [0, 2, 2]
    assert size == vocabulary


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ([{1: 1.0}], "1 items for 2 texts"),
        ([{1: -0.5}, {}], "weights from -0.5"),
        ([{1: float("nan")}, {}], "NaN"),
        ([{-1: 1.0}, {}], "term ids from -1"),
        ([{1 << 31: 1.0}, {}], "term ids"),
        ([{"word": 1.0}, {}], "no mappings of term ids"),
        ([{1: None}, {}], "no mappings of term ids"),
        ([{"1": 1.0, 1: 2.0}, {}], "a term twice"),
        (torch.tensor(MATRIX[:1]).to_sparse(), r"shape \(1, 4\) for 2 texts"),
    ],
)
def test_wrong_sparse_vectors_are_refused(value: object, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        sparse_vectors(value, 2, "m")


@pytest.mark.parametrize("value", [[1, 2], torch.tensor([[1.0], [2.0]]), np.array([1, 2], np.float16)])
def test_one_score_for_each_pair_is_read(value: object) -> None:
    assert pair_scores(value, 2, "m").tolist() == [1.0, 2.0]


@pytest.mark.parametrize("value", [[1.0], [[1.0, 2.0], [3.0, 4.0]], [1.0, float("nan")], "ab"])
def test_wrong_scores_are_refused(value: object) -> None:
    with pytest.raises(ModelError):
        pair_scores(value, 2, "m")


def test_vectors_are_scaled_to_length_1_and_zeros_stay() -> None:
    dense = unit_dense(np.array([[3.0, 4.0], [0.0, 0.0]], np.float32))
    np.testing.assert_allclose(dense, [[0.6, 0.8], [0.0, 0.0]])
    sparse = unit_sparse(SparseVectors.from_items([{1: 3.0, 2: 4.0}, {}, {5: 2.0}]))
    np.testing.assert_allclose(sparse.weights, [0.6, 0.8, 1.0], rtol=1e-6)
    multi = unit_multi(MultiVectors.from_items([np.array([[0.0, 2.0]], np.float32)]))
    np.testing.assert_allclose(multi.values, [[0.0, 1.0]])

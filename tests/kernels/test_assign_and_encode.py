"""The kernels that build an index: assignment of listed rows, and encoding."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import reference
from plait import _core
from plait.codec.packing import unpack
from plait.scoring import residual


@pytest.mark.parametrize("dim", [8, 40, 128])
@pytest.mark.parametrize("n_listed", [0, 1, 7, 96, 97, 250])
def test_listed_rows_are_assigned_as_all_rows_are(dim: int, n_listed: int) -> None:
    rng = np.random.default_rng(dim + n_listed)
    numbers = rng.integers(-127, 128, (300, dim)).astype(np.int8)
    centroids = rng.integers(0, 128, (33, dim)).astype(np.uint8)
    listed = rng.permutation(300)[:n_listed].astype(np.int32)
    best, which = np.full(300, residual.NO_SCORE, np.int32), np.full(300, -1, np.int32)
    residual.assign_rows(numbers, listed, centroids[:20], best, which)
    residual.assign_rows(numbers, listed, centroids[20:], best, which, first_row=20)
    expected_best, expected_which = reference.nearest_centroids(numbers, centroids)
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
def test_assign_rows_refuses_wrong_arrays(arguments: tuple[Any, ...]) -> None:
    with pytest.raises((ValueError, TypeError)):
        _core.assign_rows(*arguments)


def encoded_plainly(
    row: NDArray[np.float64], centroid: NDArray[np.float64], steps: NDArray[np.float64], bits: int
) -> tuple[NDArray[np.float64], float, float]:
    """Codes, length and factor of one row, by the definition in encode.h."""
    residual, largest = row - centroid, 2**bits - 1
    unit = residual / np.linalg.norm(residual)
    codes = np.clip(np.floor(unit / steps) + 2 ** (bits - 1), 0, largest)
    for d in range(len(row) if bits < 8 else 0):
        levels = (codes - largest / 2) * steps
        along, square = levels @ residual, levels @ levels
        tried = codes.copy()
        tried[d] += 1 if residual[d] * square > levels[d] * along else -1
        if 0 <= tried[d] <= largest:
            other = (tried - largest / 2) * steps
            if (other @ residual) ** 2 * square > along**2 * (other @ other) and other @ residual > 0:
                codes = tried
    levels = (codes - largest / 2) * steps
    length = float(levels @ residual / (levels @ levels)) if bits < 8 else float(np.linalg.norm(residual))
    return codes, length, float(np.linalg.norm(row) / np.linalg.norm(centroid + length * levels))


@pytest.mark.parametrize("bits", [1, 2, 4, 8])
@pytest.mark.parametrize("dim", [8, 24, 128])
def test_encoded_rows_equal_their_reference(bits: int, dim: int) -> None:
    rng = np.random.default_rng(dim + bits)
    centroids = rng.integers(0, 128, (5, dim)).astype(np.uint8)
    rows, cells = rng.standard_normal((40, dim), np.float32), rng.integers(0, 5, 40).astype(np.int32)
    steps = rng.uniform(0.5, 1.5, dim).astype(np.float32) / np.float32(np.sqrt(dim) * 2 ** (bits - 1))
    codes, lengths, factors = residual.encode_rows(rows, cells, centroids, 0.02, steps, bits)
    spread = unpack(codes, bits)
    n_other = 0
    for number, (row, cell) in enumerate(zip(rows.astype(np.float64), cells, strict=True)):
        centroid = (centroids[cell].astype(np.float64) - 64) * np.float32(0.02)
        expected, length, factor = encoded_plainly(row, centroid, steps.astype(np.float64), bits)
        n_other += int((expected != spread[number]).any())  # a tie that float32 breaks differently
        assert lengths[number] == pytest.approx(length, rel=0.05)
        assert factors[number] == pytest.approx(factor, rel=0.05)
    assert n_other <= 2


def test_lengths_are_rounded_to_the_table() -> None:
    rng = np.random.default_rng(0)
    rows, cells = rng.standard_normal((50, 16), np.float32), np.zeros(50, np.int32)
    centroids, steps = np.full((1, 16), 64, np.uint8), np.full(16, 0.2, np.float32)
    table = np.linspace(0.5, 8, 256, dtype=np.float32)
    _, exact, _ = residual.encode_rows(rows, cells, centroids, 0.1, steps, 2)
    _, found, _ = residual.encode_rows(rows, cells, centroids, 0.1, steps, 2, table)
    np.testing.assert_array_equal(found, table[np.abs(table[:, None] - exact).argmin(axis=0)])


def test_a_row_equal_to_its_centroid_and_a_row_of_zeros_are_encoded() -> None:
    centroids, steps = np.array([[70] * 8, [64] * 8], np.uint8), np.full(8, 0.3, np.float32)
    rows = np.array([[0.6] * 8, [0.0] * 8], np.float32)
    _, lengths, factors = residual.encode_rows(rows, np.array([0, 1], np.int32), centroids, 0.1, steps, 2)
    assert np.isfinite(lengths).all()
    assert factors[0] == pytest.approx(1, abs=0.01)
    assert factors[1] == 0


def bad_rows() -> list[tuple[Any, ...]]:
    rows, cells = np.zeros((4, 16), np.float32), np.zeros(4, np.int32)
    centroids, steps = np.zeros((2, 16), np.uint8), np.ones(16, np.float32)
    codes, out = np.zeros((4, 4), np.uint8), np.zeros(4, np.float32)
    return [
        (rows, cells + 2, centroids, 1.0, steps, 2, None, codes, out, out),
        (rows, cells - 1, centroids, 1.0, steps, 2, None, codes, out, out),
        (rows, cells[:3], centroids, 1.0, steps, 2, None, codes, out, out),
        (rows, cells, centroids[:, :8].copy(), 1.0, steps, 2, None, codes, out, out),
        (rows, cells, centroids, 1.0, steps[:8], 2, None, codes, out, out),
        (rows, cells, centroids, 1.0, steps, 3, None, codes, out, out),
        (rows, cells, centroids, 1.0, steps, 4, None, codes, out, out),
        (rows, cells, centroids, 1.0, steps, 2, out, codes, out, out),
        (rows, cells, centroids, 1.0, steps, 2, None, codes, out[:3], out),
    ]


@pytest.mark.parametrize("arguments", bad_rows())
def test_encode_rows_refuses_wrong_arrays(arguments: tuple[Any, ...]) -> None:
    with pytest.raises((ValueError, TypeError)):
        _core.encode_rows(*arguments)

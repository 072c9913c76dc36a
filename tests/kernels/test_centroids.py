"""Centroids against a query: scores, nearest centroids, narrow tables, the best cells, and MaxSim by centroids."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import reference
from kernels.grids import DIMS, N_QUERY, grid
from plait import _core
from plait.errors import ConfigError, InputError
from plait.scoring import residual


def packed_int8(values: NDArray[np.int8]) -> NDArray[np.int8]:
    return residual.pack_query(values).astype(np.int8, copy=False)


def random_int8(rows: int, dim: int, seed: int = 0) -> NDArray[np.int8]:
    return np.random.default_rng(seed).integers(-127, 128, (rows, dim), np.int8)


def random_centroids(rows: int, dim: int, seed: int = 1) -> NDArray[np.uint8]:
    return np.random.default_rng(seed).integers(0, 128, (rows, dim), np.uint8)


def padded(values: NDArray[Any]) -> NDArray[Any]:
    """The last axis padded to a multiple of 8."""
    return np.pad(values, [(0, 0)] * (values.ndim - 1) + [(0, -values.shape[-1] % 8)])


def test_a_packed_query_has_the_layout_of_the_contract() -> None:
    values = random_int8(9, 16)
    packed, wide = residual.pack_query(values).ravel(), residual.pack_query(values.astype(np.int16)).ravel()
    for row in range(9):
        for d in range(16):
            assert packed[(d // 4 * 16 + row) * 4 + d % 4] == values[row, d]
            assert wide[(d // 2 * 16 + row) * 2 + d % 2] == values[row, d]
    assert packed.astype(int).sum() == values.astype(int).sum()


@pytest.mark.parametrize("n_rows", grid([1, 47], rest=[2, 5, 100]))
@pytest.mark.parametrize("n_query", N_QUERY)
@pytest.mark.parametrize("dim", DIMS)
def test_centroid_scores_equal_their_reference(dim: int, n_query: int, n_rows: int) -> None:
    query, centroids = random_int8(n_query, dim), random_centroids(n_rows, dim)
    bias = 64 * query.astype(np.int32).sum(axis=1, dtype=np.int32)
    for shift in (0, 3, 6):
        table = residual.score_centroids(packed_int8(query), centroids, padded(bias), shift)
        np.testing.assert_array_equal(table[:, :n_query], reference.score_centroids(query, centroids, bias, shift))


@pytest.mark.parametrize("n_query", grid([8, 32], rest=[24]))
@pytest.mark.parametrize("extra", grid([2, 3], rest=[0]))
@pytest.mark.parametrize("value", [32, 64, -32, -64])
def test_sums_at_the_edge_of_sixteen_bits_are_exact(value: int, extra: int, n_query: int) -> None:
    """The sum of eight products 32 * 127, or of four products 64 * 127, fits in 16 bits if one value is 2 larger, but
    not if it is 3 larger."""
    query, centroids = np.full((n_query, 128), value, np.int8), np.full((3, 128), 127, np.uint8)
    query[-1, 17] += np.sign(value) * extra
    bias = 64 * query.astype(np.int32).sum(axis=1, dtype=np.int32)
    table = residual.score_centroids(packed_int8(query), centroids, padded(bias), 6)
    np.testing.assert_array_equal(table[:, :n_query], reference.score_centroids(query, centroids, bias, 6))


@pytest.mark.parametrize("dim", [8, 128, 512])
@pytest.mark.parametrize("value", [-128, -127, 127])
def test_the_largest_values_do_not_overflow(value: int, dim: int) -> None:
    query, centroids = np.full((9, dim), value, np.int8), np.full((5, dim), 127, np.uint8)
    bias = np.zeros(9, np.int32)
    for shift in (0, 8):
        table = residual.score_centroids(packed_int8(query), centroids, padded(bias), shift)
        np.testing.assert_array_equal(table[:, :9], reference.score_centroids(query, centroids, bias, shift))


def test_queries_of_several_chunks_of_lanes_are_scored() -> None:
    query, centroids = random_int8(1600, 8), random_centroids(50, 8)
    bias = np.arange(1600, dtype=np.int32)
    table = residual.score_centroids(packed_int8(query), centroids, bias, 1)
    np.testing.assert_array_equal(table, reference.score_centroids(query, centroids, bias, 1))


@pytest.mark.parametrize("n_rows", grid([5, 100], rest=[1]))
@pytest.mark.parametrize("n_query", [*N_QUERY, 1601])
@pytest.mark.parametrize("dim", grid([8, 128], rest=[24]))
def test_nearest_centroids_equal_their_reference(dim: int, n_query: int, n_rows: int) -> None:
    query, centroids = random_int8(n_query, dim), random_centroids(n_rows, dim)
    best, which = np.full(n_query, residual.NO_SCORE, np.int32), np.full(n_query, -1, np.int32)
    cut = n_rows // 3  # two blocks of centroids
    residual.nearest_centroids(packed_int8(query), centroids[:cut], best, which)
    residual.nearest_centroids(packed_int8(query), centroids[cut:], best, which, first_row=cut)
    expected_best, expected_which = reference.nearest_centroids(query, centroids)
    np.testing.assert_array_equal(best, expected_best)
    np.testing.assert_array_equal(which, expected_which)


def test_the_first_of_equal_centroids_is_the_nearest() -> None:
    query, centroids = random_int8(20, 16), np.full((100, 16), 3, np.uint8)
    best, which = np.full(20, residual.NO_SCORE, np.int32), np.full(20, -1, np.int32)
    for first in (0, 50):
        residual.nearest_centroids(packed_int8(query), centroids[first : first + 50], best, which, first_row=first)
    assert which.tolist() == [0] * 20


@pytest.mark.parametrize("shift", [0, 2, 7, 15])
@pytest.mark.parametrize("lanes", [8, 24, 32, 40, 104])
def test_narrow_tables_equal_their_reference(lanes: int, shift: int) -> None:
    rng = np.random.default_rng(lanes)
    table = rng.integers(-32768, 32768, (37, lanes), np.int16)
    table[0], table[1] = -32768, 32767
    floor = rng.integers(-32768, 32768, lanes, np.int16)
    narrow = residual.narrow_table(table, floor, shift)
    np.testing.assert_array_equal(narrow, reference.narrow_table(table, floor, shift))


@pytest.mark.parametrize("spread", grid([3, 32768], rest=[1, 50]))
@pytest.mark.parametrize(("n_cells", "n_probe"), [(1, 1), (7, 7), (300, 1), (300, 33), (2000, 512), (5000, 4)])
@pytest.mark.parametrize("n_query", grid([1, 9], rest=[8, 33]))
def test_the_best_cells_equal_their_reference(n_query: int, n_cells: int, n_probe: int, spread: int) -> None:
    rng = np.random.default_rng(n_cells + spread)
    table = padded(rng.integers(-spread, spread, (n_cells, n_query), np.int16))
    cells, scores = residual.select_cells(table, n_query, n_probe)
    expected_cells, expected_scores = reference.select_cells(table, n_query, n_probe)
    np.testing.assert_array_equal(cells, expected_cells)
    np.testing.assert_array_equal(scores, expected_scores)


@pytest.mark.parametrize("value", [-32768, 0, 32767])
@pytest.mark.parametrize("n_probe", [1, 10, 2500])
def test_equal_cells_are_ordered_by_number(n_probe: int, value: int) -> None:
    cells, scores = residual.select_cells(np.full((3000, 8), value, np.int16), 7, n_probe)
    assert cells.tolist() == [list(range(n_probe))] * 7
    assert (scores == value).all()


def test_ascending_scores_select_the_last_cells() -> None:
    table = np.repeat(np.arange(-9000, 9000, dtype=np.int16)[:, None], 16, axis=1)
    cells, _ = residual.select_cells(table, 16, 40)
    assert cells.tolist() == [list(range(17999, 17959, -1))] * 16


@pytest.mark.parametrize("dtype", [np.uint16, np.uint32])
@pytest.mark.parametrize("stride", [32, 64, 96])
def test_centroid_maxsim_equals_its_reference(stride: int, dtype: type) -> None:
    rng = np.random.default_rng(stride)
    narrow = rng.integers(0, 256, (300, stride), np.uint8)
    narrow[7] = 255
    offsets = np.cumsum([0, *rng.integers(0, 30, 500), 0, 1, 2, 3, 4, 5, 0])
    cells = rng.integers(0, 300, offsets[-1]).astype(dtype)
    scores = residual.centroid_maxsim(narrow, cells, offsets[:-1].copy(), offsets[1:].copy())
    np.testing.assert_array_equal(scores, reference.centroid_maxsim(narrow, cells, offsets[:-1], offsets[1:]))


def test_centroid_maxsim_scores_documents_in_any_order() -> None:
    narrow, cells = np.arange(64, dtype=np.uint8).reshape(2, 32), np.array([0, 1, 0], np.uint16)
    begins, ends = np.array([2, 0, 1, 3]), np.array([3, 3, 2, 3])
    assert residual.centroid_maxsim(narrow, cells, begins, ends).tolist() == [496, 1520, 1520, 0]


@pytest.mark.parametrize("dtype", [np.uint16, np.uint32])
def test_centroid_maxsim_refuses_cells_beyond_the_table(dtype: type) -> None:
    narrow = np.zeros((10, 32), np.uint8)
    cells: NDArray[Any] = np.zeros(9000, dtype)
    cells[8000] = 10
    begins, ends = np.arange(0, 9000, 10), np.arange(10, 9001, 10)
    with pytest.raises(InputError, match="row 8000 names a cell"):
        residual.centroid_maxsim(narrow, cells, begins, ends)
    assert len(residual.centroid_maxsim(narrow, cells, begins[:800], ends[:800])) == 800


@pytest.mark.parametrize(("begin", "end"), [(-1, 3), (0, 6), (4, 3), (2**62, 2**63 - 1), (-(2**63), 0)])
def test_centroid_maxsim_refuses_rows_out_of_range(begin: int, end: int) -> None:
    with pytest.raises(InputError):
        residual.centroid_maxsim(
            np.zeros((1, 32), np.uint8), np.zeros(5, np.uint16), np.array([begin]), np.array([end])
        )


def test_arrays_of_wrong_sizes_are_refused() -> None:
    packed, rows, bias = packed_int8(random_int8(9, 16)), random_centroids(5, 16), np.zeros(16, np.int32)
    table, narrow = np.zeros((5, 16), np.int16), np.zeros((5, 32), np.uint8)
    wrong: list[tuple[Any, tuple[Any, ...]]] = [
        (_core.score_centroids, (packed, rows[:, :8].copy(), bias, 0, table)),
        (_core.score_centroids, (packed, rows, bias[:9], 0, table)),
        (_core.score_centroids, (packed, rows, bias, 32, table)),
        (_core.score_centroids, (packed, rows, bias, 0, table[:4])),
        (_core.score_centroids, (packed, rows, bias, 0, np.zeros((5, 8), np.int16))),
        (_core.score_centroids, (packed[:, :9].copy(), rows, bias[:9], 0, np.zeros((5, 9), np.int16))),
        (_core.score_centroids, (packed.reshape(2, 16, 8), rows, bias, 0, table)),
        (_core.nearest_centroids, (packed, rows, 0, bias[:8], bias[:8])),
        (_core.nearest_centroids, (packed, rows, 0, bias[:9], bias[:8])),
        (_core.nearest_centroids, (packed, rows, -1, bias[:9], bias[:9])),
        (_core.nearest_centroids, (packed, rows, 2**31 - 3, bias[:9], bias[:9])),
        (_core.narrow_table, (table, np.zeros(9, np.int16), 0, narrow)),
        (_core.narrow_table, (table, np.zeros(16, np.int16), 16, narrow)),
        (_core.narrow_table, (table, np.zeros(16, np.int16), 0, narrow[:4])),
        (_core.narrow_table, (table, np.zeros(16, np.int16), 0, np.zeros((5, 16), np.uint8))),
        (_core.select_cells, (table, np.zeros((9, 6), np.int32), np.zeros((9, 6), np.int16))),
        (_core.select_cells, (table, np.zeros((9, 0), np.int32), np.zeros((9, 0), np.int16))),
        (_core.select_cells, (table, np.zeros((8, 2), np.int32), np.zeros((8, 2), np.int16))),
        (_core.select_cells, (table, np.zeros((9, 2), np.int32), np.zeros((9, 1), np.int16))),
    ]
    for call, arguments in wrong:
        with pytest.raises(ValueError, match=r"\w"):
            call(*arguments)


def test_wrong_types_and_values_are_input_errors() -> None:
    packed, rows, bias = packed_int8(random_int8(9, 16)), random_centroids(5, 16), np.zeros(16, np.int32)
    with pytest.raises(InputError, match="do not fit"):
        residual.score_centroids(packed, rows.astype(np.int64), bias, 0)
    with pytest.raises(InputError, match="do not fit"):
        residual.score_centroids(packed, rows, bias, -1)
    with pytest.raises(InputError, match="uint16 or uint32"):
        residual.centroid_maxsim(np.zeros((1, 32), np.uint8), np.zeros(1, np.int64), np.array([0]), np.array([1]))  # type: ignore[arg-type]
    with pytest.raises(InputError, match="multiple of 8"):
        residual.pack_query(np.zeros((3, 12), np.int8))
    with pytest.raises(InputError, match="int8 or int16"):
        residual.pack_query(np.zeros((3, 16), np.float32))  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="n_probe is 6"):
        residual.select_cells(np.zeros((5, 8), np.int16), 3, 6)


@pytest.mark.parametrize("prune_margin", [0, 1, 40, 255])
@pytest.mark.parametrize("lanes", [32, 64, 96])
@pytest.mark.parametrize("cell_type", [np.uint16, np.uint32])
def test_pruned_rows_equal_their_reference(prune_margin: int, lanes: int, cell_type: type) -> None:
    rng = np.random.default_rng(prune_margin + lanes)
    narrow = rng.integers(0, 256, (50, lanes), np.uint8)
    narrow[:, ::3] = 0  # padded lanes, and rows far below the best
    narrow[7] = 0
    cells: NDArray[Any] = rng.integers(0, 50, 200).astype(cell_type)
    cells[60:64] = 7
    begins = np.array([0, 0, 1, 10, 60, 64, 64, 150], np.int64)
    ends = np.array([0, 1, 10, 60, 64, 64, 150, 200], np.int64)
    chosen, stops = residual.prune_rows(narrow, cells, begins, ends, prune_margin)
    expected = reference.prune_rows(narrow, cells, begins, ends, prune_margin)
    assert (chosen.tolist(), stops.tolist()) == expected


def test_prune_rows_refuses_wrong_arguments() -> None:
    narrow, cells = np.zeros((5, 32), np.uint8), np.array([0, 4, 5], np.uint16)
    some, all_ = np.array([0], np.int64), np.array([3], np.int64)
    with pytest.raises(InputError):
        residual.prune_rows(narrow, cells, some, all_, 3)
    with pytest.raises(InputError):
        residual.prune_rows(narrow, cells[:2], some, all_, 3)
    with pytest.raises(InputError):
        residual.prune_rows(narrow, cells[:2], all_, some, 3)
    with pytest.raises(ConfigError):
        residual.prune_rows(narrow, cells[:2], some, some, 256)

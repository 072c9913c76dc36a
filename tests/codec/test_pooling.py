"""Pooling: equal to its reference, the same for any number of threads, and without effect on MaxSim if nothing
merges."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import reference
from plait.codec.pooling import METHODS, Pooling, pool
from plait.embeddings import MultiVectors
from plait.errors import ConfigError, InputError
from plait.scoring.maxsim import maxsim

LENGTHS = [1, 2, 3, 7, 8, 9, 26]


def unit(n_rows: int, dim: int, *, seed: int = 0) -> NDArray[np.float32]:
    rows = np.random.default_rng(seed).standard_normal((n_rows, dim))
    return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True), np.float32)


def items(lengths: list[int], dim: int = 24) -> MultiVectors:
    return MultiVectors.from_items([unit(n, dim, seed=number) for number, n in enumerate(lengths)], dim=dim)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("dim", [1, 9, 128])
@pytest.mark.parametrize("fixed", [1, 3, 8])
def test_pooled_rows_equal_their_reference(method: str, dim: int, fixed: int) -> None:
    given = items(LENGTHS, dim)
    pooled = pool(given, Pooling(fixed=fixed, method=method))
    for item in range(len(given)):
        expected = reference.pooled(given[item], fixed, method)
        if dim > 1:  # rows of one dimension are equal or opposite, and ties may be broken differently
            np.testing.assert_allclose(pooled[item], expected, atol=2e-5)
        assert pooled[item].shape == expected.shape


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("factor", [2, 3, 5])
def test_a_factor_divides_the_number_of_rows_rounded_up(method: str, factor: int) -> None:
    given = items([0, *LENGTHS, 0])
    pooled = pool(given, Pooling(factor=factor, method=method))
    assert np.diff(pooled.offsets).tolist() == [-(-n // factor) for n in [0, *LENGTHS, 0]]
    for item in range(len(given)):
        n_pooled = -(-len(given[item]) // factor)
        np.testing.assert_allclose(
            pooled[item], reference.pooled(given[item], n_pooled, method).reshape(-1, 24), atol=2e-5
        )


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("n_rows", [1, 2, 31, 32, 33, 500])
def test_items_of_any_length_get_the_fixed_number_of_rows(method: str, n_rows: int) -> None:
    assert pool(items([n_rows], 128), Pooling(fixed=32, method=method)).values.shape == (32, 128)


@pytest.mark.parametrize("method", METHODS)
def test_repeating_rows_changes_no_score(method: str) -> None:
    given, query = items([1, 5, 8, 11, 12]), unit(9, 24, seed=99)
    repeated = pool(given, Pooling(fixed=12, method=method))
    assert np.diff(repeated.offsets).tolist() == [12] * 5
    np.testing.assert_array_equal(maxsim(query, repeated), maxsim(query, given))


@pytest.mark.parametrize("method", METHODS)
def test_pooled_rows_keep_the_mean_norm(method: str) -> None:
    for length in (1.0, 7.5):
        given = MultiVectors.from_items([length * unit(60, 24)])
        lengths = np.linalg.norm(pool(given, Pooling(fixed=9, method=method)).values, axis=1)
        np.testing.assert_allclose(lengths, length, rtol=1e-5)


def test_rows_of_similar_direction_are_clustered() -> None:
    groups = np.tile(np.arange(4), 10)
    given = unit(4, 64)[groups] + 0.02 * unit(40, 64, seed=1)
    pooled = pool(MultiVectors.from_items([given]), Pooling(fixed=4)).values
    expected = np.stack([given[groups == group].mean(axis=0) for group in range(4)])
    np.testing.assert_allclose(pooled, expected, atol=0.01)


@pytest.mark.parametrize("method", METHODS)
def test_rows_that_cancel_out_are_replaced_by_the_first(method: str) -> None:
    row = unit(1, 16)
    pooled = pool(MultiVectors.from_items([np.concatenate([row, -row])]), Pooling(fixed=1, method=method))
    np.testing.assert_array_equal(pooled.values, row)


@pytest.mark.parametrize("method", METHODS)
def test_threads_and_neighbours_change_nothing(method: str) -> None:
    given = items([n % 40 + 1 for n in range(700)], 16)
    pooling = Pooling(factor=3, method=method)
    alone, shared = pool(given, pooling), pool(given, pooling, n_threads=3)
    np.testing.assert_array_equal(alone.values.view(np.uint32), shared.values.view(np.uint32))
    one = pool(given.take([613]), pooling)
    np.testing.assert_array_equal(one.values, alone[613])


def test_float16_rows_are_pooled_as_float32() -> None:
    halves = MultiVectors.from_items([unit(30, 24).astype(np.float16)])
    same = MultiVectors(halves.values.astype(np.float32), halves.offsets)
    np.testing.assert_array_equal(pool(halves, Pooling(fixed=7)).values, pool(same, Pooling(fixed=7)).values)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("value", [np.nan, np.inf, 0.0])
def test_zero_and_non_finite_rows_are_pooled_without_an_error(method: str, value: float) -> None:
    rows = unit(40, 8)
    rows[5:20] = value
    assert pool(MultiVectors.from_items([rows]), Pooling(fixed=6, method=method)).values.shape == (6, 8)


@given(st.lists(st.integers(0, 30), max_size=8), st.integers(2, 9), st.sampled_from(METHODS))
@settings(max_examples=40, deadline=None)
def test_counts_predict_the_pooled_rows(lengths: list[int], factor: int, method: str) -> None:
    pooling = Pooling(factor=factor, method=method)
    pooled = pool(items(lengths, 8), pooling)
    assert np.diff(pooled.offsets).tolist() == pooling.counts(np.asarray(lengths, np.int64)).tolist()


def test_a_fixed_number_of_rows_needs_at_least_one_row() -> None:
    with pytest.raises(InputError, match="item 1 has no rows, and 4 cannot be made"):
        pool(items([3, 0]), Pooling(fixed=4))


def test_an_item_too_long_to_cluster_is_refused() -> None:
    long = MultiVectors(np.zeros((8193, 1), np.float32), np.array([0, 8193]))
    with pytest.raises(InputError, match="8193 rows; at most 8192"):
        pool(long, Pooling(fixed=4))
    assert pool(long, Pooling(fixed=4, method="sequential")).values.shape == (4, 1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "one of fixed and factor"),
        ({"fixed": 8, "factor": 2}, "one of fixed and factor"),
        ({"fixed": 0}, "fixed is 0"),
        ({"fixed": -1}, "fixed is -1"),
        ({"fixed": 1 << 20}, "from 1 to 65536"),
        ({"fixed": True}, "fixed is True"),
        ({"fixed": 2.5}, r"fixed is 2\.5"),
        ({"factor": 1}, "factor is 1"),
        ({"factor": "2"}, "factor is '2'"),
        ({"fixed": 8, "method": "random"}, "unknown pooling 'random'; choose one of hierarchical, sequential"),
    ],
)
def test_invalid_pooling_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Pooling(**options)


@pytest.mark.parametrize("pooling", [Pooling(fixed=32), Pooling(factor=2, method="sequential")])
def test_pooling_survives_json(pooling: Pooling) -> None:
    assert Pooling.from_dict(pooling.to_dict()) == pooling

"""Dot products of one query with many rows, on every instruction set of the machine."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import reference
from plait.errors import InputError
from plait.scoring.dense import ByteQuery, ByteRows, dot_rows

DIMS = [1, 7, 16, 33, 48, 384]


def unaligned(rows: NDArray[Any]) -> NDArray[Any]:
    """A read-only copy that starts one byte off."""
    raw = np.zeros(rows.nbytes + 1, np.uint8)
    raw[1:] = np.frombuffer(rows.tobytes(), np.uint8)
    return np.frombuffer(raw.tobytes(), rows.dtype, offset=1, count=rows.size).reshape(rows.shape)


@pytest.mark.parametrize("dim", DIMS)
@pytest.mark.parametrize("n_rows", [0, 1, 5])
def test_float_dot_products_equal_their_reference(dim: int, n_rows: int) -> None:
    rng = np.random.default_rng(dim)
    query, rows = rng.standard_normal(dim, np.float32), rng.standard_normal((n_rows, dim), np.float32)
    np.testing.assert_allclose(dot_rows(query, unaligned(rows)), reference.dot_rows(query, rows), rtol=1e-4, atol=1e-5)
    some = np.arange(n_rows)[::-1].copy()
    np.testing.assert_array_equal(dot_rows(query, rows, some), dot_rows(query, rows)[some])


@pytest.mark.parametrize("dim", DIMS)
def test_int8_dot_products_equal_their_reference_to_the_bit(dim: int) -> None:
    rng = np.random.default_rng(dim)
    codes = rng.integers(-128, 128, (700, dim)).astype(np.int8)
    rows = ByteRows(unaligned(codes), rng.random(700).astype(np.float32))
    query = ByteQuery(rng.integers(-2047, 2048, dim).astype(np.int16), 0.25)
    begins, ends = np.array([0, 10, 650]), np.array([600, 10, 700])
    np.testing.assert_array_equal(query.scores(rows, begins, ends), reference.dot_bytes(query, rows, begins, ends))


def test_the_largest_products_do_not_overflow() -> None:
    query = ByteQuery.of(np.ones(8000, np.float32))
    rows = ByteRows(np.full((1, 8000), -128, np.int8), np.ones(1, np.float32))
    score = query.scores(rows, np.array([0]), np.array([1]))[0]
    assert score == pytest.approx(-128 * 8000, rel=1e-6)


def test_rows_that_are_not_allowed_score_minus_infinity() -> None:
    rng = np.random.default_rng(0)
    rows = ByteRows.rounded(rng.standard_normal((20, 16)).astype(np.float32))
    query, owners = ByteQuery.of(rng.standard_normal(16).astype(np.float32)), rng.permutation(20).astype(np.uint32)
    keep = np.arange(20) % 3 == 0
    begins, ends = np.array([3]), np.array([20])
    bits = np.packbits(keep, bitorder="little")
    some = query.scores(rows, begins, ends, owners=owners, allowed=bits)
    kept = keep[owners[3:20]]
    assert np.all(some[~kept] == -np.inf)
    np.testing.assert_array_equal(some[kept], query.scores(rows, begins, ends)[kept])


def test_int8_products_are_close_to_float_products() -> None:
    rng = np.random.default_rng(0)
    floats = rng.standard_normal((50, 384)).astype(np.float32)
    floats /= np.linalg.norm(floats, axis=1, keepdims=True)
    rows, query = ByteRows.rounded(floats), ByteQuery.of(floats[0])
    scores = query.scores(rows, np.array([0]), np.array([50]))
    np.testing.assert_allclose(scores, floats @ floats[0], atol=2e-3)
    assert np.all(ByteRows.rounded(np.zeros((2, 4), np.float32)).scales == 0)


def test_wrong_arguments_are_refused() -> None:
    rows = ByteRows(np.zeros((3, 8), np.int8), np.zeros(3, np.float32))
    query = ByteQuery(np.zeros(8, np.int16), 1.0)
    zero, three = np.array([0]), np.array([3])
    with pytest.raises(InputError, match="rows from 0 to 4"):
        query.scores(rows, zero, np.array([4]))
    with pytest.raises(InputError, match="dimensions"):
        ByteQuery(np.zeros(9, np.int16), 1.0).scores(rows, zero, three)
    with pytest.raises(InputError, match="32 bits"):
        ByteQuery(np.full(8000, 32767, np.int16), 1.0).scores(
            ByteRows(np.zeros((3, 8000), np.int8), rows.scales), zero, three
        )
    owners = np.full(3, 99, np.uint32)
    with pytest.raises(InputError, match="has no bit"):
        query.scores(rows, zero, three, owners=owners, allowed=np.ones(1, np.uint8))
    with pytest.raises(InputError, match="row 3 of 3"):
        dot_rows(np.zeros(8, np.float32), np.zeros((3, 8), np.float32), three)

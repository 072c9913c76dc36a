"""Residual codes: levels, norms and errors."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from plait.codec.codebook import Codebook
from plait.codec.packing import unpack
from plait.codec.residual import ResidualCodec


def unit_rows(n_rows: int, dim: int, seed: int = 0) -> NDArray[np.float32]:
    rows = np.random.default_rng(seed).standard_normal((n_rows, dim)).astype(np.float32)
    return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True), np.float32)


def nearest(rows: NDArray[np.float32], codebook: Codebook) -> NDArray[np.int64]:
    return np.asarray(np.argmax(rows @ codebook.floats().T, axis=1), np.int64)


def fitted(bits: int, dim: int = 32) -> tuple[ResidualCodec, NDArray[np.float32], NDArray[np.int64]]:
    codebook = Codebook.rounded(unit_rows(16, dim))
    rows = unit_rows(2000, dim, seed=1)
    cells = nearest(rows, codebook)
    return ResidualCodec.fit(codebook, bits, rows, cells), rows, cells


def test_centroids_are_rounded_to_less_than_half_a_step() -> None:
    centroids = unit_rows(40, 24)
    codebook = Codebook.rounded(centroids)
    assert int(codebook.centroids.max()) <= 127
    assert np.abs(codebook.floats() - centroids).max() <= codebook.scale * 0.501


@pytest.mark.parametrize("bits", [1, 2, 4, 8])
def test_codes_are_used_as_a_normal_distribution_predicts(bits: int) -> None:
    codec, rows, cells = fitted(bits)
    codes = unpack(codec.encode(rows, cells).codes, bits)
    assert codes.max() < 2**bits
    used = np.bincount(codes.ravel(), minlength=2**bits)
    assert (used > 0).mean() > 0.8  # residuals of norm 1 have no long tails
    assert abs(used[: 2 ** (bits - 1)].sum() / used.sum() - 0.5) < 0.05


def test_the_error_falls_with_every_bit() -> None:
    errors = []
    for bits in [1, 2, 4, 8]:
        codec, rows, cells = fitted(bits)
        errors.append(float(np.square(codec.decode(codec.encode(rows, cells)) - rows).mean()))
    assert errors[0] > 1.5 * errors[1] > 3 * errors[2] > 10 * errors[3]


@pytest.mark.parametrize("bits", [1, 2, 4, 8])
def test_decoded_rows_have_the_norm_of_the_rows(bits: int) -> None:
    codec, rows, cells = fitted(bits)
    lengths = np.linalg.norm(codec.decode(codec.encode(rows, cells)), axis=1)
    assert np.quantile(np.abs(lengths - 1), 0.99) < 0.01


def test_rows_of_other_norms_keep_their_norm() -> None:
    codebook = Codebook.rounded(3 * unit_rows(16, 32))
    rows = unit_rows(500, 32, seed=1) * np.random.default_rng(2).uniform(2, 4, (500, 1)).astype(np.float32)
    cells = nearest(rows, codebook)
    codec = ResidualCodec.fit(codebook, 4, rows, cells)
    decoded = np.linalg.norm(codec.decode(codec.encode(rows, cells)), axis=1)
    assert np.quantile(np.abs(decoded / np.linalg.norm(rows, axis=1) - 1), 0.95) < 0.05


def test_a_constant_dimension_is_encoded() -> None:
    rows = unit_rows(200, 16)
    rows[:, 3] = 0
    codebook = Codebook.rounded(rows[:8])
    codec = ResidualCodec.fit(codebook, 2, rows, nearest(rows, codebook))
    assert np.isfinite(codec.decode(codec.encode(rows, nearest(rows, codebook)))).all()


def test_equal_rows_and_a_single_cell_are_coded_without_error() -> None:
    rows = np.repeat(unit_rows(1, 16), 50, axis=0)
    codebook = Codebook.rounded(rows[:1])
    cells = np.zeros(50, np.int64)
    codec = ResidualCodec.fit(codebook, 2, rows, cells)
    np.testing.assert_allclose(codec.decode(codec.encode(rows, cells)), rows, atol=0.02)

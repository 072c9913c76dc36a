"""Fitting a codec: the number of cells, and the same codec for any number of threads."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from plait.codec.assign import NearestCentroids
from plait.codec.train import cells_for, fit, sample_rows, sample_size
from plait.errors import ConfigError, InputError

SIZES = [256, 300, 1000, 4096, 10_000, 10**6, 10**8]


def rows(n_rows: int = 2000, dim: int = 16) -> NDArray[np.float32]:
    rng = np.random.default_rng(0)
    values = rng.standard_normal((20, dim))[rng.integers(0, 20, n_rows)] + 0.3 * rng.standard_normal((n_rows, dim))
    return np.asarray(values / np.linalg.norm(values, axis=1, keepdims=True), np.float32)


@pytest.mark.parametrize("n_rows", SIZES)
def test_cells_are_a_power_of_two_near_eight_roots_with_eight_rows_each(n_rows: int) -> None:
    n_cells = cells_for(n_rows)
    assert n_cells.bit_count() == 1
    assert 16 <= n_cells <= n_rows / 8
    assert n_rows < 4096 or 0.7 <= n_cells / (8 * n_rows**0.5) <= 1.42


def test_tiny_corpora_have_at_least_one_cell() -> None:
    assert [cells_for(n_rows) for n_rows in (0, 1, 7, 8, 16, 127, 128)] == [1, 1, 1, 1, 2, 8, 16]


@pytest.mark.parametrize("n_rows", SIZES)
def test_a_sample_is_never_more_than_the_corpus_nor_than_k_means_needs(n_rows: int) -> None:
    n_sample = sample_size(n_rows, cells_for(n_rows))
    assert n_sample <= min(n_rows, 68 * cells_for(n_rows), 1 << 21)


@pytest.mark.parametrize(("n_rows", "n_sample"), [(10, 10), (1000, 7), (1000, 700), (1, 1), (10**12, 100)])
def test_sampled_rows_ascend_and_are_spread_over_the_corpus(n_rows: int, n_sample: int) -> None:
    places = sample_rows(n_rows, n_sample, seed=1)
    assert np.all(np.diff(places) > 0)
    assert 0 <= places[0] <= n_rows / n_sample
    assert n_rows - 2 * n_rows / n_sample <= places[-1] < n_rows
    assert len(places) >= n_sample / 2


def test_the_codec_and_its_error_do_not_depend_on_threads() -> None:
    one, three = (fit(rows(), bits=2, n_cells=32, keep_8bit=True, n_threads=n_threads) for n_threads in (1, 3))
    np.testing.assert_array_equal(one.codec.codebook.centroids, three.codec.codebook.centroids)
    np.testing.assert_array_equal(one.codec.steps, three.codec.steps)
    assert one.error == three.error


@pytest.mark.parametrize("bits", [1, 2, 4])  # the error of 8 bits is tiny, and depends on a few outliers
def test_the_error_is_that_of_unseen_rows(bits: int) -> None:
    seen, unseen = rows(4000)[:2000], rows(4000)[2000:]
    fitted = fit(seen, bits=bits, n_cells=32)
    cells = NearestCentroids.from_codebook(fitted.codec.codebook).assign(unseen)
    decoded = fitted.codec.decode(fitted.codec.encode(unseen, cells))
    assert fitted.error == pytest.approx(float(np.square(unseen - decoded).sum(axis=1).mean()), rel=0.15)


def test_invalid_samples_and_bits_are_refused() -> None:
    with pytest.raises(InputError, match="at least 2 rows to be fitted; got 1"):
        fit(rows(1), bits=2, n_cells=1)
    with pytest.raises(ConfigError, match="bits must be 1, 2, 4 or 8; got 3"):
        fit(rows(300), bits=3, n_cells=16)

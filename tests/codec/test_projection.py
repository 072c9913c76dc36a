"""Projections: equal to their reference, the same each time, and without effect on rankings if nothing is dropped."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

import reference
from plait.codec import projection as projection_module
from plait.codec.projection import Energy, FittedProjection, Projection, fit_projection
from plait.embeddings import MultiVectors
from plait.errors import ConfigError, InputError
from plait.scoring.maxsim import maxsim

WIDTH = 24


def correlated(n_rows: int, *, width: int = WIDTH, seed: int = 0) -> NDArray[np.float32]:
    """Unit rows around a common mean, in few directions and a little of all others."""
    rng = np.random.default_rng(seed)
    mixing = np.random.default_rng(7).standard_normal((width, width)) * (0.8 ** np.arange(width))[:, None]
    rows = rng.standard_normal((n_rows, width)) @ mixing + 2.0
    return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True), np.float32)


@pytest.mark.parametrize("centred", [True, False])
@pytest.mark.parametrize("dims", [8, 16, 24])
def test_projected_rows_equal_their_reference(dims: int, centred: bool) -> None:
    sample, rows = correlated(500), correlated(20, seed=1)
    rows_of_fit = fit_projection(sample, Projection(dims=dims, centred=centred)).project(rows)
    expected = reference.projected(rows, sample, dims, centred=centred)
    signs = np.sign((rows_of_fit * expected).sum(axis=0))
    np.testing.assert_allclose(rows_of_fit * signs, expected, atol=1e-4)
    np.testing.assert_allclose(np.linalg.norm(rows_of_fit, axis=1), 1, atol=1e-5)


def test_all_dimensions_without_centring_change_no_score() -> None:
    sample = correlated(400)
    documents = MultiVectors.from_items([correlated(6, seed=seed) for seed in range(2, 12)])
    query = correlated(5, seed=99)
    fitted = fit_projection(sample, Projection(dims=WIDTH, centred=False))
    np.testing.assert_allclose(
        maxsim(fitted.project(query), fitted.project_items(documents)), maxsim(query, documents), atol=1e-5
    )


def test_a_fit_is_the_same_each_time_and_for_any_size_of_block(monkeypatch: pytest.MonkeyPatch) -> None:
    sample = correlated(1000)
    one = fit_projection(sample, Projection(dims=8))
    monkeypatch.setattr(projection_module, "BLOCK", 77)
    again = fit_projection(sample, Projection(dims=8))
    np.testing.assert_allclose(one.directions, again.directions, atol=1e-5)
    np.testing.assert_array_equal(one.directions, one.directions * np.where(_largest(one.directions) < 0, -1, 1))


def _largest(directions: NDArray[np.float32]) -> NDArray[np.float32]:
    return np.asarray(directions[np.abs(directions).argmax(axis=0), np.arange(directions.shape[1])])


def test_the_energy_of_a_fit_is_that_of_its_sample() -> None:
    sample = correlated(600)
    fitted = fit_projection(sample, Projection(dims=8))
    _, energy = fitted.measured(sample)
    assert energy.n_vectors == fitted.energy.n_vectors == 600
    assert energy.share == pytest.approx(fitted.energy.share, abs=1e-5)
    assert 0.5 < energy.share < 1


def test_vectors_of_another_kind_keep_less_energy() -> None:
    fitted = fit_projection(correlated(600), Projection(dims=8))
    other = np.random.default_rng(3).standard_normal((600, WIDTH)).astype(np.float32)
    assert fitted.measured(other)[1].share < fitted.energy.share - 0.2


def test_energies_add_up() -> None:
    both = Energy(10, 4.0, 3.0) + Energy(30, 6.0, 2.0)
    assert (both.n_vectors, both.share) == (40, 0.5)
    assert Energy().share == 1.0


def test_a_row_that_equals_the_mean_becomes_zeros_and_no_rows_stay_none() -> None:
    fitted = fit_projection(correlated(100), Projection(dims=8))
    np.testing.assert_array_equal(fitted.project(fitted.mean[None]), np.zeros((1, 8), np.float32))
    assert fitted.project(np.zeros((0, WIDTH), np.float32)).shape == (0, 8)


def test_rows_of_another_width_are_refused() -> None:
    fitted = fit_projection(correlated(100), Projection(dims=8))
    with pytest.raises(InputError, match=r"takes \(rows, 24\)"):
        fitted.project(np.zeros((3, 23), np.float32))


def test_a_fit_needs_two_vectors_and_enough_dimensions() -> None:
    with pytest.raises(InputError, match="two vectors or more"):
        fit_projection(correlated(1), Projection(dims=8))
    with pytest.raises(ConfigError, match="dims is 32, but the model gives multi vectors of 24"):
        fit_projection(correlated(100), Projection(dims=32))


@pytest.mark.parametrize("dims", [0, 7, 12, -8, 1 << 13, 8.0, True, "64"])
def test_dims_must_be_a_multiple_of_eight(dims: object) -> None:
    with pytest.raises(ConfigError, match="multiple of 8"):
        Projection(dims=dims)  # type: ignore[arg-type]


@pytest.mark.parametrize("fewest", [1, 2.5, "many"])
def test_min_vectors_is_a_count(fewest: object) -> None:
    with pytest.raises(ConfigError, match="min_vectors"):
        Projection(dims=8, min_vectors=fewest)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "projection", [Projection(dims=64), Projection(dims=8, centred=False), Projection(dims=8, min_vectors=50)]
)
def test_a_projection_survives_the_catalogue(projection: Projection) -> None:
    assert Projection.from_dict(projection.to_dict()) == projection


@pytest.mark.parametrize("stored", [{}, [], {"dims": 8, "other": 1}, {"dims": 9}, "8"])
def test_a_damaged_projection_of_the_catalogue_is_refused(stored: object) -> None:
    with pytest.raises(ConfigError):
        Projection.from_dict(stored)
    assert Projection.from_dict(None) is None


def test_arrays_that_cannot_be_a_projection_are_refused() -> None:
    mean, directions = np.zeros(4, np.float32), np.zeros((4, 2), np.float32)
    for bad_mean, bad_directions in (
        (mean[:3], directions),
        (mean, directions[:, :0]),
        (mean, np.zeros((4, 5), np.float32)),
        (mean, np.full((4, 2), np.nan, np.float32)),
        (np.full(4, np.inf, np.float32), directions),
    ):
        with pytest.raises(InputError):
            FittedProjection(bad_mean, bad_directions, Energy())

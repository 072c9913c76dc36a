"""Intervals, tests, corrections and Student's t distribution: against scipy, against enumeration, and by hand."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy import special

from plait.errors import ConfigError
from plait.evaluate.significance import (
    bootstrap_intervals,
    corrected,
    paired_t_test,
    randomisation_test,
    regularised_beta,
    two_sided,
)

RNG = np.random.default_rng(7)
SMALL = RNG.normal(0.1, 0.3, (9, 2))
LARGE = RNG.normal(0.02, 0.3, (200, 3))


def test_few_queries_are_tested_exactly() -> None:
    signs = np.array(list(itertools.product([-1, 1], repeat=len(SMALL))))
    expected = np.mean(np.abs(signs @ SMALL) >= np.abs(SMALL.sum(axis=0)) - 1e-12, axis=0)
    np.testing.assert_allclose(randomisation_test(SMALL), expected)
    np.testing.assert_allclose(randomisation_test(SMALL, seed=5), expected)


def test_queries_without_a_difference_do_not_prevent_an_exact_test() -> None:
    padded = np.vstack([SMALL, np.zeros((500, 2))])
    np.testing.assert_allclose(randomisation_test(padded), randomisation_test(SMALL))


def test_sampling_comes_close_to_the_exact_value() -> None:
    sampled = randomisation_test(SMALL, n_permutations=500)
    np.testing.assert_allclose(sampled, randomisation_test(SMALL), atol=0.08)


def test_with_many_queries_both_tests_agree() -> None:
    _, p_t = paired_t_test(LARGE)
    np.testing.assert_allclose(randomisation_test(LARGE, n_permutations=20_000), p_t, atol=0.02)


def test_a_test_does_not_depend_on_the_other_columns() -> None:
    alone = randomisation_test(LARGE[:, [1]], n_permutations=2_000)
    assert alone[0] == randomisation_test(LARGE, n_permutations=2_000)[1]
    assert bootstrap_intervals(LARGE[:, [1]], n_resamples=200)[0] == pytest.approx(
        bootstrap_intervals(LARGE, n_resamples=200)[1]
    )


def test_the_same_seed_gives_the_same_numbers_and_another_gives_others() -> None:
    first, second, other = (randomisation_test(LARGE, n_permutations=2_000, seed=seed) for seed in (3, 3, 4))
    assert first.tolist() == second.tolist()
    assert first.tolist() != other.tolist()
    assert bootstrap_intervals(LARGE, n_resamples=99).tolist() == bootstrap_intervals(LARGE, n_resamples=99).tolist()


def test_a_sampled_p_value_is_never_zero() -> None:
    assert randomisation_test(np.ones((40, 1)), n_permutations=999)[0] == pytest.approx(1 / 1000)


def test_the_t_test_is_that_of_the_textbook() -> None:
    t, p = paired_t_test(LARGE)
    means, errors = LARGE.mean(axis=0), LARGE.std(axis=0, ddof=1) / np.sqrt(len(LARGE))
    np.testing.assert_allclose(t, means / errors)
    np.testing.assert_allclose(p, 2 * special.stdtr(len(LARGE) - 1, -np.abs(means / errors)), rtol=1e-8)


def test_equal_differences_have_a_t_of_zero_or_infinity() -> None:
    t, p = paired_t_test(np.column_stack([np.zeros(10), np.full(10, 0.1)]))
    assert (t[0], p[0]) == (0.0, 1.0)
    assert (t[1], p[1]) == (np.inf, 0.0)
    assert randomisation_test(np.zeros((10, 1)))[0] == 1.0


def test_one_query_gives_nan() -> None:
    t, p = paired_t_test(np.ones((1, 2)))
    assert np.isnan(t).all()
    assert np.isnan(p).all()


def test_intervals_are_as_wide_as_the_standard_error_says() -> None:
    intervals = bootstrap_intervals(LARGE)
    half = 1.96 * LARGE.std(axis=0, ddof=1) / np.sqrt(len(LARGE))
    np.testing.assert_allclose(intervals[:, 0], LARGE.mean(axis=0) - half, atol=0.005)
    np.testing.assert_allclose(intervals[:, 1], LARGE.mean(axis=0) + half, atol=0.005)


def test_intervals_of_equal_values_have_no_width() -> None:
    np.testing.assert_allclose(bootstrap_intervals(np.full((5, 1), 0.3), n_resamples=50), [[0.3, 0.3]])


def test_corrections_by_hand() -> None:
    p = [0.01, 0.04, 0.03, 0.5]
    assert corrected(p, "holm").tolist() == pytest.approx([0.04, 0.09, 0.09, 0.5])
    assert corrected(p, "bonferroni").tolist() == pytest.approx([0.04, 0.16, 0.12, 1.0])
    assert corrected(p, "none").tolist() == p
    assert corrected([], "holm").tolist() == []


def test_nan_p_values_are_not_counted() -> None:
    assert corrected([0.01, np.nan], "bonferroni").tolist() == pytest.approx([0.01, np.nan], nan_ok=True)


def test_an_unknown_correction_is_refused() -> None:
    with pytest.raises(ConfigError, match="choose one of holm, bonferroni, none"):
        corrected([0.1], "sidak")


# -- Student's t distribution


@given(st.floats(-60, 60), st.integers(1, 20_000))
def test_the_p_value_is_that_of_scipy(t: float, df: int) -> None:
    assume(t == 0 or abs(t) > 1e-6)  # closer to 0, scipy rounds
    expected = 2 * float(special.stdtr(df, -abs(t)))
    assert two_sided(t, df) == pytest.approx(expected, rel=1e-8, abs=1e-290)


@given(st.floats(0, 1, allow_subnormal=False), st.floats(0.5, 500), st.floats(0.5, 500))
def test_the_incomplete_beta_function_is_that_of_scipy(x: float, a: float, b: float) -> None:
    assert regularised_beta(x, 1 - x, a, b) == pytest.approx(float(special.betainc(a, b, x)), rel=1e-7, abs=1e-12)


def test_p_values_of_printed_tables() -> None:
    assert two_sided(12.706, 1) == pytest.approx(0.05, abs=1e-5)
    assert two_sided(2.228, 10) == pytest.approx(0.05, abs=1e-4)
    assert two_sided(1.0, 1) == pytest.approx(0.5)


def test_near_zero_the_p_value_follows_the_density() -> None:
    assert 1 - two_sided(1e-7, 1) == pytest.approx(2 * 1e-7 / math.pi, rel=1e-6)


def test_p_values_of_zero_infinity_and_nan() -> None:
    assert two_sided(0.0, 7) == 1.0
    assert two_sided(math.inf, 7) == 0.0
    assert math.isnan(two_sided(math.nan, 7))

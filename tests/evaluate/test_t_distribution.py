"""Student's t distribution, against scipy (which comes with ir-measures) and against values that are known."""

from __future__ import annotations

import math

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy import special

from plait.evaluate.significance import regularised_beta, two_sided


@given(st.floats(-60, 60), st.integers(1, 20_000))
def test_the_p_value_is_that_of_scipy(t: float, df: int) -> None:
    assume(t == 0 or abs(t) > 1e-6)  # nearer to 0 it is scipy that rounds
    expected = 2 * float(special.stdtr(df, -abs(t)))
    assert two_sided(t, df) == pytest.approx(expected, rel=1e-8, abs=1e-290)


@given(st.floats(0, 1, allow_subnormal=False), st.floats(0.5, 500), st.floats(0.5, 500))
def test_the_incomplete_beta_function_is_that_of_scipy(x: float, a: float, b: float) -> None:
    assert regularised_beta(x, 1 - x, a, b) == pytest.approx(float(special.betainc(a, b, x)), rel=1e-7, abs=1e-12)


def test_values_of_printed_tables() -> None:
    assert two_sided(12.706, 1) == pytest.approx(0.05, abs=1e-5)
    assert two_sided(2.228, 10) == pytest.approx(0.05, abs=1e-4)
    assert two_sided(1.0, 1) == pytest.approx(0.5)


def test_a_value_near_0_is_as_far_from_1_as_the_density_says() -> None:
    assert 1 - two_sided(1e-7, 1) == pytest.approx(2 * 1e-7 / math.pi, rel=1e-6)


def test_the_ends_of_the_line() -> None:
    assert two_sided(0.0, 7) == 1.0
    assert two_sided(math.inf, 7) == 0.0
    assert math.isnan(two_sided(math.nan, 7))

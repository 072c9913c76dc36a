"""Student's t distribution. Of scipy this would be one function, and importing it takes a second."""

from __future__ import annotations

import math

_TINY = 1e-300
_PRECISION = 1e-15
_MAX_STEPS = 10_000


def two_sided(t: float, df: float) -> float:
    """The probability of a value at least as far from 0 as t, with df degrees of freedom; df must be above 0."""
    if math.isnan(t):
        return math.nan
    if math.isinf(t):
        return 0.0
    return regularised_beta(df / (df + t * t), t * t / (df + t * t), df / 2, 0.5)


def regularised_beta(x: float, y: float, a: float, b: float) -> float:
    """The incomplete beta function I_x(a, b), for 0 <= x <= 1 and a, b above 0. y is 1 - x, which the caller may know
    better than a subtraction gives it."""
    if x <= 0:
        return 0.0
    if y <= 0:
        return 1.0
    log_front = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log(y)
    # The fraction converges fast below the mean of the distribution; above it, the mirrored one does.
    if x < (a + 1) / (a + b + 2):
        return math.exp(log_front) * _fraction(x, a, b) / a
    return 1.0 - math.exp(log_front) * _fraction(y, b, a) / b


def _fraction(x: float, a: float, b: float) -> float:
    """The continued fraction of the incomplete beta function, from its front (Lentz's method)."""
    numerator = 1.0
    denominator = 1.0 / _not_zero(1.0 - (a + b) * x / (a + 1))
    value = denominator
    for step in range(1, _MAX_STEPS):
        even = step * (b - step) * x / ((a + 2 * step - 1) * (a + 2 * step))
        odd = -(a + step) * (a + b + step) * x / ((a + 2 * step) * (a + 2 * step + 1))
        change = 1.0
        for term in (even, odd):
            denominator = 1.0 / _not_zero(1.0 + term * denominator)
            numerator = _not_zero(1.0 + term / numerator)
            change = numerator * denominator
            value *= change
        if abs(change - 1.0) < _PRECISION:
            break
    return value


def _not_zero(number: float) -> float:
    return number if abs(number) > _TINY else _TINY

"""Statistical significance: bootstrap intervals, paired tests, and corrections for multiple comparisons. Arrays in,
arrays out; the same seed gives the same numbers."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from plait.errors import ConfigError

Values = NDArray[np.float64]

DEFAULT_LEVEL = 0.95
_TINY = 1e-300
_PRECISION = 1e-15
_MAX_STEPS = 10_000
_CHUNK = 2**22  # random numbers in memory at a time
_ROUNDING = 1e-10  # sums that differ by less, relative to the sum of all absolute differences, are equal


def bootstrap_intervals(
    values: Values, *, n_resamples: int = 10_000, level: float = DEFAULT_LEVEL, seed: int = 0
) -> Values:
    """Percentile bootstrap intervals (columns, 2) of the column means of (queries, columns), by resampling queries.

    All columns share the resamples, so that an interval does not depend on the other columns.
    """
    n_queries, n_columns = values.shape
    random = np.random.default_rng([seed, 1])
    means = np.empty((n_resamples, n_columns))
    for start, stop in _chunks(n_resamples, n_queries):
        indices = random.integers(0, n_queries, (stop - start, n_queries))
        indices += np.arange(stop - start)[:, None] * n_queries
        counts = np.bincount(indices.ravel(), minlength=indices.size).reshape(indices.shape)
        means[start:stop] = counts.astype(np.float64) @ values / n_queries
    tail = (1 - level) / 2
    return np.quantile(means, [tail, 1 - tail], axis=0).T


def randomisation_test(differences: Values, *, n_permutations: int = 100_000, seed: int = 0) -> Values:
    """Two-sided p-values (columns,) of paired differences (queries, columns): the share of random sign flips whose mean
    is at least as far from 0 as the observed one.

    If there are at most `n_permutations` sign patterns, all of them are tried and p is exact. Otherwise the observed
    pattern counts as one of the samples, so that p is never 0.
    """
    n_queries, n_columns = differences.shape
    observed = np.abs(differences.sum(axis=0))
    rounding = _ROUNDING * np.abs(differences).sum(axis=0)
    exact = [column for column in range(n_columns) if _can_be_exact(differences[:, column], n_permutations)]
    p = np.ones(n_columns)
    for column in exact:
        p[column] = _exact_p(differences[:, column], float(observed[column] - rounding[column]))
    sampled = np.setdiff1d(np.arange(n_columns), exact)
    if len(sampled):
        random = np.random.default_rng([seed, 2])
        n_as_far = np.zeros(len(sampled), np.int64)
        for start, stop in _chunks(n_permutations, n_queries):
            bits = np.unpackbits(random.integers(0, 256, (stop - start, -(-n_queries // 8)), np.uint8), axis=1)
            sums = _signed_sums(bits[:, :n_queries], differences[:, sampled])
            n_as_far += np.count_nonzero(np.abs(sums) >= observed[sampled] - rounding[sampled], axis=0)
        p[sampled] = (1 + n_as_far) / (1 + n_permutations)
    return p


def _can_be_exact(differences: Values, n_permutations: int) -> bool:
    n_nonzero = int(np.count_nonzero(differences))
    return n_nonzero < 64 and 1 << n_nonzero <= n_permutations


def _exact_p(differences: Values, at_least: float) -> float:
    nonzero = differences[differences != 0]  # the sign of 0 changes nothing
    patterns = np.arange(2 ** len(nonzero))
    bits = (patterns[:, None] >> np.arange(len(nonzero))) & 1
    return float(np.mean(np.abs(_signed_sums(bits, nonzero[:, None])[:, 0]) >= at_least))


def _signed_sums(bits: NDArray[np.integer], differences: Values) -> Values:
    """Sums (patterns, columns) of differences (queries, columns); bits (patterns, queries) of 1 flip the sign."""
    sums: Values = differences.sum(axis=0) - 2.0 * (bits.astype(np.float64) @ differences)
    return sums


def paired_t_test(differences: Values) -> tuple[Values, Values]:
    """t and its two-sided p-value for each column of (queries, columns). Without any difference t is 0 and p is 1; with
    a single query both are NaN."""
    n_queries = len(differences)
    if n_queries < 2:
        return np.full(differences.shape[1], np.nan), np.full(differences.shape[1], np.nan)
    means, spread = differences.mean(axis=0), differences.std(axis=0, ddof=1)
    # Equal differences have a spread of rounding errors only, which would make t large and meaningless.
    spread = np.where(spread <= _ROUNDING * np.abs(means), 0.0, spread)
    with np.errstate(divide="ignore", invalid="ignore"):
        t = np.where(means == 0, 0.0, means / (spread / np.sqrt(n_queries)))
    return t, np.array([two_sided(float(value), n_queries - 1) for value in t])


def _holm(p: Values) -> Values:
    """Holm: the smallest of m p-values is multiplied by m, the next by m - 1, ...; none is below the one before it."""
    order = np.argsort(p, kind="stable")
    stepped = np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1))
    corrected = np.empty_like(p)
    corrected[order] = stepped
    return corrected


CORRECTIONS: dict[str, Callable[[Values], Values]] = {
    "holm": _holm,
    "bonferroni": lambda p: p * len(p),
    "none": lambda p: p,
}


def corrected(p: Sequence[float] | Values, correction: str) -> Values:
    """p-values corrected for the number of comparisons; never above 1. NaN values stay NaN and are not counted."""
    if correction not in CORRECTIONS:
        raise ConfigError(f"there is no correction {correction!r}; choose one of {', '.join(CORRECTIONS)}")
    values = np.array(p, np.float64)
    known = ~np.isnan(values)
    values[known] = np.minimum(1.0, CORRECTIONS[correction](values[known]))
    return values


def _chunks(n_rows: int, width: int) -> Iterator[tuple[int, int]]:
    step = max(1, _CHUNK // max(1, width))
    return ((start, min(n_rows, start + step)) for start in range(0, n_rows, step))


# -- Student's t distribution; importing scipy for this one function would take a second


def two_sided(t: float, df: float) -> float:
    """The probability of a value at least as far from 0 as t, with df degrees of freedom; df must be above 0."""
    if math.isnan(t):
        return math.nan
    if math.isinf(t):
        return 0.0
    return regularised_beta(df / (df + t * t), t * t / (df + t * t), df / 2, 0.5)


def regularised_beta(x: float, y: float, a: float, b: float) -> float:
    """The regularised incomplete beta function I_x(a, b), for 0 <= x <= 1 and a, b above 0. y is 1 - x, which the
    caller may know more exactly than the subtraction."""
    if x <= 0:
        return 0.0
    if y <= 0:
        return 1.0
    log_front = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log(y)
    # The continued fraction converges fast below the mean of the distribution; above it, use the symmetry.
    if x < (a + 1) / (a + b + 2):
        return math.exp(log_front) * _fraction(x, a, b) / a
    return 1.0 - math.exp(log_front) * _fraction(y, b, a) / b


def _fraction(x: float, a: float, b: float) -> float:
    """The continued fraction of the incomplete beta function, by Lentz's method."""
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

"""Estimates with intervals, and verdicts by rule.

An estimate is a mean, a paired difference or a ratio over queries (and seeds, where training is judged) with a 95%
bootstrap interval; the same numbers give the same interval. A check compares an estimate with the bar of a claim.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from plait.errors import InputError
from plait.evaluate.significance import DEFAULT_LEVEL, bootstrap_intervals

HOLDS = "holds"
WEAKLY = "holds weakly"
NOT_SEEN = "not seen here"
CONTRADICTED = "contradicted"
VERDICTS = (HOLDS, WEAKLY, NOT_SEEN, CONTRADICTED)

RULE = (
    "A check *holds* if the whole 95% interval is above its bar; it *holds weakly* if the number is above the bar and "
    "the interval is not, or if all of the interval is above the lower bar that is named; it is *contradicted* if the "
    "whole interval is below the point at which the claim would be wrong; else it is *not seen here*. A claim of "
    "several checks holds if all of them do. It is contradicted if some check is and none holds. It holds weakly if "
    "none is contradicted and at least half hold, weakly or not. Else it is not seen here."
)


@dataclass(frozen=True, slots=True)
class Check:
    """One number of a claim. Larger supports the claim: change the sign where the claim says smaller."""

    what: str
    estimate: Estimate
    bar: float = 0.0
    weak: float | None = None  # above this the claim holds weakly
    wrong: float | None = None  # the claim is wrong below this; the bar, if None
    unit: str = ""  # "points" shows hundredths, "x" a factor, "%" a share

    @property
    def verdict(self) -> str:
        if self.estimate.low > self.bar:
            return HOLDS
        if self.estimate.value > self.bar or (self.weak is not None and self.estimate.low > self.weak):
            return WEAKLY
        lowest = self.wrong if self.wrong is not None else self.bar if self.weak is None else self.weak
        return CONTRADICTED if self.estimate.high < lowest else NOT_SEEN

    def as_fields(self) -> dict[str, Any]:
        estimate = self.estimate
        return {
            "what": self.what, "value": estimate.value, "low": estimate.low, "high": estimate.high, "n": estimate.n,
            "bar": self.bar, "weak": self.weak, "wrong": self.wrong, "unit": self.unit, "verdict": self.verdict,
        }  # fmt: skip


def overall(checks: Sequence[Check]) -> str:
    """The verdict of a claim from those of its checks."""
    verdicts = [check.verdict for check in checks]
    if all(verdict == HOLDS for verdict in verdicts):
        return HOLDS
    n_for = sum(verdict in (HOLDS, WEAKLY) for verdict in verdicts)
    if CONTRADICTED in verdicts:
        return NOT_SEEN if n_for else CONTRADICTED
    return WEAKLY if 2 * n_for >= len(verdicts) else NOT_SEEN


def shown(value: float, unit: str) -> str:
    """A number as the report prints it."""
    if unit == "points":
        return f"{100 * value:+.1f}"
    if unit == "%":
        return f"{100 * value:.1f}%"
    if unit == "x":
        return f"{value:,.1f}x" if abs(value) < 100 else f"{value:,.0f}x"
    return f"{value:,.3f}" if abs(value) < 10 else f"{value:,.0f}"


Each = Mapping[str, float]  # by query, or by another random unit

N_RESAMPLES = 2000


@dataclass(frozen=True, slots=True)
class Estimate:
    """A number and its interval over other queries of the same kind. A counted number has no interval: n is 0."""

    value: float
    low: float
    high: float
    n: int = 0

    @classmethod
    def counted(cls, value: float) -> Estimate:
        return cls(float(value), float(value), float(value))


def mean(each: Each) -> Estimate:
    return _mean(np.fromiter(each.values(), np.float64, len(each)))


def difference(arm: Each, base: Each) -> Estimate:
    """The mean of `arm` minus that of `base`; both must have the same queries."""
    return _mean(_paired(arm, base))


def pooled_difference(arms: Sequence[Each], bases: Sequence[Each]) -> Estimate:
    """The same over several sets, each weighted by its number of queries."""
    return _mean(np.concatenate([_paired(arm, base) for arm, base in zip(arms, bases, strict=True)]))


def ratio(arm: Each, base: Each) -> Estimate:
    """The sum of `arm` over that of `base`, with an interval over queries."""
    above, below = _values(arm, base)
    random = np.random.default_rng(0)
    resampled = random.integers(0, len(above), (N_RESAMPLES, len(above)))
    ratios = above[resampled].sum(axis=1) / np.maximum(below[resampled].sum(axis=1), 1e-300)
    low, high = np.quantile(ratios, [(1 - DEFAULT_LEVEL) / 2, (1 + DEFAULT_LEVEL) / 2])
    return Estimate(float(above.sum() / max(below.sum(), 1e-300)), float(low), float(high), len(above))


def seeds_difference(arms: Sequence[Each], bases: Sequence[Each]) -> Estimate:
    """The difference of two trainings with one run per seed each. Both seeds and queries are resampled."""
    if len(arms) != len(bases) or not arms:
        raise InputError(f"{len(arms)} runs are compared with {len(bases)}; give as many seeds of both, one at least")
    moved = np.stack([_paired(arm, base) for arm, base in zip(arms, bases, strict=True)])  # (seeds, queries)
    random = np.random.default_rng(0)
    n_seeds, n_queries = moved.shape
    seeds = random.integers(0, n_seeds, (N_RESAMPLES, n_seeds))
    queries = random.integers(0, n_queries, (N_RESAMPLES, n_queries))
    weights = (seeds[:, :, None] == np.arange(n_seeds)).mean(axis=1)  # how often each seed was drawn
    means = np.take_along_axis(weights @ moved, queries, axis=1).mean(axis=1)
    low, high = np.quantile(means, [(1 - DEFAULT_LEVEL) / 2, (1 + DEFAULT_LEVEL) / 2])
    return Estimate(float(moved.mean()), float(low), float(high), n_queries)


def _mean(values: NDArray[np.float64]) -> Estimate:
    if not len(values):
        raise InputError("no query was measured, so there is no mean")
    (low, high), *_ = bootstrap_intervals(values[:, None], n_resamples=N_RESAMPLES)
    return Estimate(float(values.mean()), float(low), float(high), len(values))


def _paired(arm: Each, base: Each) -> NDArray[np.float64]:
    above, below = _values(arm, base)
    return above - below


def _values(arm: Each, base: Each) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    if arm.keys() != base.keys():
        raise InputError(
            f"{len(arm)} queries are compared with {len(base)}, {len(arm.keys() & base.keys())} of which are the same; "
            "both arms must be measured on the same queries"
        )
    names = list(arm)
    return np.array([arm[name] for name in names]), np.array([base[name] for name in names])

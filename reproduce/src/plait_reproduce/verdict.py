"""Verdicts by rule. A check is a number with an interval and the bar that the claim sets; nobody decides by eye."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from plait_reproduce.estimates import Estimate

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
    """One number of a claim. Larger is always what the claim says: turn the sign where it says smaller."""

    what: str
    estimate: Estimate
    bar: float = 0.0
    weak: float | None = None  # the claim is half true above this
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
        own = self.estimate
        return {
            "what": self.what, "value": own.value, "low": own.low, "high": own.high, "n": own.n,
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
    """A number as the report has it."""
    if unit == "points":
        return f"{100 * value:+.1f}"
    if unit == "%":
        return f"{100 * value:.1f}%"
    if unit == "x":
        return f"{value:,.1f}x" if abs(value) < 100 else f"{value:,.0f}x"
    return f"{value:,.3f}" if abs(value) < 10 else f"{value:,.0f}"

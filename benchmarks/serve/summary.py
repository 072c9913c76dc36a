"""Arithmetic of load runs: percentiles, rates and tables."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Answers:
    """What a load run saw: for each request that was answered, its status, the seconds that it took, and when it ended.

    The seconds of an open loop are counted from the moment when the request was due, not from the moment when it could
    be sent: a server that stands still makes all requests late that were due meanwhile."""

    statuses: Sequence[int]
    seconds: Sequence[float]
    wall: float  # seconds of the run
    client_cpu: float = 0.0  # processor seconds of the load generator
    n_broken: int = 0  # connections that ended without an answer
    n_unsent: int = 0  # requests that were due and not answered when the run ended

    @property
    def accepted(self) -> list[float]:
        """The times of requests that succeeded."""
        return [taken for status, taken in zip(self.statuses, self.seconds, strict=True) if 200 <= status < 300]

    def counts(self) -> dict[int, int]:
        return dict(sorted(Counter(self.statuses).items()))

    def as_fields(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Summary:
    """Requests a second that succeeded, and their times in milliseconds."""

    rate: float
    p50: float
    p95: float
    p99: float
    n_accepted: int
    n_refused: int  # 429
    n_failed: int  # any other status, and broken connections
    client_share: float  # of one processor, that the load generator used


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least this share of the values does not exceed; NaN of none."""
    if not 0 < share <= 1:
        raise ValueError(f"share is {share}; it must be above 0 and at most 1")
    if not values:
        return math.nan
    return sorted(values)[math.ceil(share * len(values)) - 1]


def summarize(answers: Answers) -> Summary:
    accepted, counts = answers.accepted, answers.counts()
    n_refused = counts.get(429, 0)
    return Summary(
        rate=len(accepted) / answers.wall,
        p50=1000 * percentile(accepted, 0.50),
        p95=1000 * percentile(accepted, 0.95),
        p99=1000 * percentile(accepted, 0.99),
        n_accepted=len(accepted),
        n_refused=n_refused,
        n_failed=len(answers.statuses) - len(accepted) - n_refused + answers.n_broken,
        client_share=answers.client_cpu / answers.wall,
    )


def merged(parts: Sequence[Answers]) -> Answers:
    """Several runs as one."""
    return Answers(
        statuses=[status for part in parts for status in part.statuses],
        seconds=[taken for part in parts for taken in part.seconds],
        wall=sum(part.wall for part in parts),
        client_cpu=sum(part.client_cpu for part in parts),
        n_broken=sum(part.n_broken for part in parts),
        n_unsent=sum(part.n_unsent for part in parts),
    )


def table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A Markdown table; numbers get a fitting number of digits."""
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    lines += ["| " + " | ".join(_cell(value) for value in row) + " |" for row in rows]
    return "\n".join(lines)


def _cell(value: object) -> str:
    if not isinstance(value, float):
        return f"{value:,}" if isinstance(value, int) else str(value)
    if math.isnan(value):
        return "-"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"

"""Recall against latency: fronts, and the latency of an engine at a recall that it may not have been measured at."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

LEVELS = (0.80, 0.875, 0.90, 0.91, 0.95, 0.99)

Front = list[tuple[float, float]]  # (recall, milliseconds), both rising


def front(points: Sequence[dict[str, Any]]) -> Front:
    """The points that no other beats in both."""
    kept: Front = []
    for point in sorted(points, key=lambda point: (point["p50"], -point["recall"])):
        if not kept or point["recall"] > kept[-1][0]:
            kept.append((point["recall"], point["p50"]))
    return kept


def latency_at(curve: Front, level: float) -> float | None:
    """Milliseconds for a recall of at least `level`; None if the front never gets there.

    Between two measured points the logarithm of the time is taken to be linear. Below the first point it is that
    point's: nothing faster was measured.
    """
    before: tuple[float, float] | None = None
    for recall, milliseconds in curve:
        if recall >= level:
            if before is None or recall == level:
                return milliseconds
            share = (level - before[0]) / (recall - before[0])
            return math.exp((1 - share) * math.log(before[1]) + share * math.log(milliseconds))
        before = (recall, milliseconds)
    return None

"""Recall against latency: fronts, and the latency of an engine at a recall that it may not have been measured at."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

LEVELS = (0.80, 0.875, 0.90, 0.91, 0.95, 0.99)

Front = list[tuple[float, float]]  # (recall, milliseconds), both rising


def front(points: Sequence[dict[str, Any]], by: str = "p50") -> Front:
    """The points that no other beats in both recall and time; `by` is p50, or processor."""
    kept: Front = []
    for point in sorted(points, key=lambda point: (point[by], -point["recall"])):
        if not kept or point["recall"] > kept[-1][0]:
            kept.append((point["recall"], point[by]))
    return kept


def measure_of(run: dict[str, Any]) -> str:
    """What a run is judged by: p50, or processor time where other work disturbed a run of one thread.

    A short query fits between two turns of a busy processor and a long one does not, so that the clock would flatter
    the faster engine. One engine works at a time: a load well above its threads is others' work.
    """
    return "processor" if run["threads"] == 1 and is_busy(run) else "p50"


def is_busy(run: dict[str, Any]) -> bool:
    return bool(max(run["load"]) > run["threads"] + 1)


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

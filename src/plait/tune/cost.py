"""What a probed search costs: seconds for each setting of a ladder, from a few timed searches on this machine.

Cells are timed for each number of probes. The later stages cost so much at the start and so much an item; two sizes
each give both. Medians over queries: other programs make some searches slow, and none fast.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from plait.codec.coded_items import CodedItems
from plait.search.multivector.query import MultiVectorQuery, ProbeConfig
from plait.search.trace import Trace
from plait.tune.stage_recall import Ladder

N_TIMED = 12  # queries


def seconds_of(
    queries: Sequence[NDArray[np.float32]], items: CodedItems, ladder: Ladder, k: int
) -> NDArray[np.float64]:
    """The expected seconds of a search, for every setting of the ladder."""
    queries = queries[:N_TIMED]
    few, many = (int(ladder.gathers[0]), int(ladder.gathers[len(ladder.gathers) // 2]))
    half = max(k, min(many // 2, int(ladder.floods[-1])))
    probing = np.asarray([_stages(queries, items, int(p), few, k, k, k)["gather"] for p in ladder.probes])
    middle = int(ladder.probes[len(ladder.probes) // 2])
    small = _stages(queries, items, middle, few, k, k, k)
    large = _stages(queries, items, middle, many, half, half, k)
    per = {
        name: _line(small.get(name, 0.0), large.get(name, 0.0), n_small, n_large, steps)
        for name, n_small, n_large, steps in (
            ("flood", few, many, ladder.gathers),
            ("codes", k, half, ladder.floods),
            ("fine codes", k, half, ladder.fines),
        )
    }
    if items.codes_8bit is None:
        per["fine codes"] = np.zeros(len(ladder.fines))
    total = (
        small["centroids"]
        + probing[:, None, None, None]
        + per["flood"][None, :, None, None]
        + per["codes"][None, None, :, None]
        + per["fine codes"][None, None, None, :]
    )
    return np.asarray(np.broadcast_to(total, ladder.shape))


def _stages(
    queries: Sequence[NDArray[np.float32]],
    items: CodedItems,
    n_probe: int,
    n_candidates: int,
    n_code_scored: int,
    n_rescored: int,
    k: int,
) -> dict[str, float]:
    """The median seconds of each stage."""
    config = ProbeConfig(n_probe=n_probe, n_candidates=n_candidates, n_code_scored=n_code_scored, n_rescored=n_rescored)
    seconds: dict[str, list[float]] = {}
    for query in queries:
        trace = Trace()
        MultiVectorQuery(query, items, trace).search(k, config)
        for stage in trace.stages:
            seconds.setdefault(stage.name, []).append(stage.seconds)
    return {name: float(np.median(values)) for name, values in seconds.items()}


def _line(small: float, large: float, n_small: int, n_large: int, at: NDArray[np.int64]) -> NDArray[np.float64]:
    """The straight line through two timings, never falling."""
    slope = max(large - small, 0.0) / max(n_large - n_small, 1)
    return np.asarray(np.maximum(small + slope * (at - n_small), 0.0))

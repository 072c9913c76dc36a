"""The recall and the time of every combination of probing parameters, from a few searches.

Recall: a search keeps the best of each stage, so a true answer is found if its rank is below what every stage keeps.
One pass for each number of cells gives these ranks, and with them the recall of every combination.

Time: reading cells is timed for each number of cells. The later stages cost a constant plus an amount for each passage;
two sizes give both. Medians over queries are used: other programs make some searches slow, and none fast.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from plait.codec.coded_items import CodedItems
from plait.search.multivector.plait import PlaitSearch
from plait.search.multivector.probe import BASE_RESCORED, ResolvedProbe
from plait.search.multivector.query import MultiVectorQuery
from plait.search.multivector.segment_group import SegmentGroup
from plait.search.trace import Trace

PROBES = (1, 2, 4, 8, 16, 32, 64)
STEP = 2**0.5  # between neighbouring values of the other parameters
MAX_CANDIDATES = 16_384
MAX_CODE_SCORED = 4096
NOT_FOUND = np.iinfo(np.int64).max  # the rank of an item that a stage never saw
N_TIMED_QUERIES = 12


@dataclass(frozen=True, slots=True, eq=False)
class ProbeGrid:
    """The values of each parameter that are compared. Without 8-bit codes n_rescored has one value, and no effect."""

    n_probe: NDArray[np.int64]
    n_candidates: NDArray[np.int64]
    n_code_scored: NDArray[np.int64]
    n_rescored: NDArray[np.int64]

    @classmethod
    def of(cls, items: CodedItems, n_first: int) -> ProbeGrid:
        """For a search that asks for `n_first` passages: no stage keeps fewer."""
        most = max(min(MAX_CANDIDATES, len(items)), 4 * n_first)
        n_code_scored = _geometric(n_first, max(min(MAX_CODE_SCORED, most), n_first))
        return cls(
            np.asarray([n_probe for n_probe in PROBES if n_probe <= len(items.codec.codebook)], np.int64),
            _geometric(4 * n_first, most),
            n_code_scored,
            n_code_scored if items.codes_8bit is not None else np.asarray([BASE_RESCORED], np.int64),
        )

    @property
    def shape(self) -> tuple[int, int, int, int]:
        return len(self.n_probe), len(self.n_candidates), len(self.n_code_scored), len(self.n_rescored)

    def at(self, position: Sequence[int | np.intp]) -> ResolvedProbe:
        """The parameters at a position of the grid."""
        probe, candidates, code_scored, rescored = position
        return ResolvedProbe(
            n_probe=int(self.n_probe[probe]),
            n_candidates=int(self.n_candidates[candidates]),
            n_code_scored=int(self.n_code_scored[code_scored]),
            n_rescored=int(self.n_rescored[rescored]),
        )


def _geometric(least: int, most: int) -> NDArray[np.int64]:
    n_steps = int(np.ceil(np.log(most / least) / np.log(STEP))) + 1 if most > least else 1
    return np.unique(np.rint(np.geomspace(least, most, n_steps)).astype(np.int64))


# -- recall


def count_found(search: PlaitSearch, truth: NDArray[np.int64], grid: ProbeGrid) -> NDArray[np.int64]:
    """How many of the true items a search of one compressed segment finds, for every position of the grid."""
    (query,) = search.queries
    counts = np.zeros(grid.shape, np.int64)
    scores = _StageScores(query, has_8bit=query.items.codes_8bit is not None)
    for position, n_probe in enumerate(grid.n_probe):
        (items,), (sums,) = search.read_cells(int(n_probe), int(grid.n_candidates[-1]))
        candidates = items[np.lexsort((items, -sums.astype(np.int64)))]
        if np.all(_ranks(truth, candidates) == NOT_FOUND):
            continue
        by_centroids = scores.by_centroids(candidates)
        for step, n_candidates in enumerate(grid.n_candidates):
            if step and grid.n_candidates[step - 1] >= len(candidates):
                counts[position, step] = counts[position, step - 1]  # there are no more candidates
                continue
            first = candidates[:n_candidates]
            ordered = first[np.lexsort((first, -by_centroids[:n_candidates]))]
            counts[position, step] = _count_after_centroids(truth, ordered, grid, scores)
    return counts


def _count_after_centroids(
    truth: NDArray[np.int64], ordered: NDArray[np.int64], grid: ProbeGrid, scores: _StageScores
) -> NDArray[np.int64]:
    """(n_code_scored, n_rescored) how many are found among items in the order of their centroid scores."""
    ranks = _ranks(truth, ordered)
    survives = ranks[None, :] < grid.n_code_scored[:, None]
    if not scores.has_8bit:
        return np.repeat(survives.sum(axis=1)[:, None], len(grid.n_rescored), axis=1)
    first = ordered[: grid.n_code_scored[-1]]
    true_scores, others = scores.by_codes(truth), scores.by_codes(first)
    ties = (others[:, None] == true_scores[None, :]) & (first[:, None] < truth[None, :])
    better = (others[:, None] > true_scores[None, :]) | ties
    n_better = np.cumsum(better, axis=0)[np.minimum(grid.n_code_scored, len(first)) - 1]  # (n_code_scored, truth)
    survives_all = survives[:, None, :] & (n_better[:, None, :] < grid.n_rescored[None, :, None])
    return np.asarray(survives_all.sum(axis=2))


def _ranks(wanted: NDArray[np.int64], ordered: NDArray[np.int64]) -> NDArray[np.int64]:
    """The rank of each wanted item, from 0; NOT_FOUND if it is not there."""
    if not len(ordered):
        return np.full(len(wanted), NOT_FOUND)
    order = np.argsort(ordered)
    position = np.minimum(np.searchsorted(ordered, wanted, sorter=order), len(ordered) - 1)
    return np.where(ordered[order[position]] == wanted, order[position], NOT_FOUND)


class _StageScores:
    """Scores of items for one query, each computed once for all positions of the grid."""

    def __init__(self, query: MultiVectorQuery, *, has_8bit: bool) -> None:
        n_items = len(query.items)
        self._query, self.has_8bit = query, has_8bit
        self._by_centroids = np.full(n_items, -1, np.int64)
        self._by_codes = np.full(n_items if has_8bit else 0, np.nan, np.float32)

    def by_centroids(self, items: NDArray[np.int64]) -> NDArray[np.int64]:
        missing = items[self._by_centroids[items] < 0]
        if len(missing):
            self._by_centroids[missing] = self._query.centroid_scores(missing)
        return self._by_centroids[items]

    def by_codes(self, items: NDArray[np.int64]) -> NDArray[np.float32]:
        missing = items[np.isnan(self._by_codes[items])]
        if len(missing):
            self._by_codes[missing] = self._query.code_scores(missing)
        return self._by_codes[items]


# -- time


def expected_seconds(
    queries: Sequence[NDArray[np.float32]], group: SegmentGroup, grid: ProbeGrid, k: int
) -> NDArray[np.float64]:
    """The expected seconds of a search of the group for k passages, for every position of the grid."""
    queries = queries[:N_TIMED_QUERIES]
    few, many = int(grid.n_candidates[0]), int(grid.n_candidates[len(grid.n_candidates) // 2])
    half = max(k, min(many // 2, int(grid.n_code_scored[-1])))
    cells = np.asarray([_stage_seconds(queries, group, int(n), few, k, k)["cells"] for n in grid.n_probe])
    middle = int(grid.n_probe[len(grid.n_probe) // 2])
    small = _stage_seconds(queries, group, middle, few, k, k)
    large = _stage_seconds(queries, group, middle, many, half, half, k)

    def line(stage: str, n_small: int, n_large: int, values: NDArray[np.int64]) -> NDArray[np.float64]:
        return _line(small.get(stage, 0.0), large.get(stage, 0.0), n_small, n_large, values)

    by_centroids = line("by centroids", few, many, grid.n_candidates)
    by_codes = line("codes", k, half, grid.n_code_scored)
    has_8bit = group.coded[0].items.codes_8bit is not None
    by_8bit = line("8-bit codes", k, half, grid.n_rescored) if has_8bit else np.zeros(len(grid.n_rescored))
    total = (
        small["centroids"]
        + cells[:, None, None, None]
        + by_centroids[None, :, None, None]
        + by_codes[None, None, :, None]
        + by_8bit[None, None, None, :]
    )
    return np.asarray(np.broadcast_to(total, grid.shape))


def _stage_seconds(
    queries: Sequence[NDArray[np.float32]],
    group: SegmentGroup,
    n_probe: int,
    n_candidates: int,
    n_code_scored: int,
    n_rescored: int,
    k: int | None = None,
) -> dict[str, float]:
    """The median seconds of each stage of searches for k passages; by default as many as are rescored."""
    probe = ResolvedProbe(
        n_probe=n_probe, n_candidates=n_candidates, n_code_scored=n_code_scored, n_rescored=n_rescored
    )
    seconds: dict[str, list[float]] = {}
    for query in queries:
        trace = Trace()
        PlaitSearch(query, group.coded, group.uncompressed, trace).passages(probe, k or n_rescored)
        for stage in trace.stages:
            seconds.setdefault(stage.name, []).append(stage.seconds)
    return {name: float(np.median(values)) for name, values in seconds.items()}


def _line(small: float, large: float, n_small: int, n_large: int, at: NDArray[np.int64]) -> NDArray[np.float64]:
    """The straight line through two timings, never falling."""
    slope = max(large - small, 0.0) / max(n_large - n_small, 1)
    return np.asarray(np.maximum(small + slope * (at - n_small), 0.0))

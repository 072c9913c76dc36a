"""Runs side by side: means with intervals, differences to a baseline with tests, and the queries that moved most."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from plait.errors import ConfigError
from plait.evaluate.dataset_files import Qrels
from plait.evaluate.measures import measure_each
from plait.evaluate.runs import Run
from plait.evaluate.significance import bootstrap_intervals, corrected, paired_t_test, randomisation_test

TIE = 1e-9  # a query moves if a measure differs by more


@dataclass(frozen=True, slots=True)
class Mean:
    """A mean over the queries, and where it would lie for other queries of their kind in 95 of 100 cases."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Difference:
    """A run against the baseline by one measure; `mean` is the run's minus the baseline's."""

    run: str
    measure: str
    mean: Mean
    p_randomisation: float  # as tested, and below corrected for the number of runs that are compared
    p_randomisation_corrected: float
    t: float
    p_t: float
    p_t_corrected: float
    wins: int  # queries that the run does better on
    ties: int
    losses: int


@dataclass(frozen=True, slots=True)
class Moved:
    """A query that two runs do differently on."""

    query: str
    baseline: float
    run: float


@dataclass(frozen=True, slots=True)
class CompareConfig:
    """How to test; what is printed with the numbers, so that they can be had again."""

    correction: str = "holm"
    n_permutations: int = 100_000
    n_resamples: int = 10_000
    seed: int = 0

    def __post_init__(self) -> None:
        corrected([], self.correction)  # refuses a name that is not known
        for name in ("n_permutations", "n_resamples"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} is {getattr(self, name)}; it must be at least 1")


@dataclass(frozen=True, slots=True)
class Comparison:
    """What `compare` found; `values` are by measure, run and query."""

    baseline: str
    queries: tuple[str, ...]
    values: Mapping[str, Mapping[str, Mapping[str, float]]]
    means: Mapping[str, Mapping[str, Mean]]  # by measure and run
    differences: tuple[Difference, ...]  # by measure, and within it in the order of the runs
    config: CompareConfig

    def moved(self, run: str, measure: str, n: int) -> list[Moved]:
        """The n queries that the run and the baseline differ on most, the largest difference first."""
        before, after = self.values[measure][self.baseline], self.values[measure][run]
        moved = [Moved(query, before[query], after[query]) for query in self.queries]
        moved = [one for one in moved if abs(one.run - one.baseline) > TIE]
        return sorted(moved, key=lambda one: (-abs(one.run - one.baseline), one.query))[:n]


def compare(
    runs: Mapping[str, Run],
    qrels: Qrels,
    measures: Sequence[str] = ("nDCG@10",),
    *,
    baseline: str | None = None,
    config: CompareConfig | None = None,
) -> Comparison:
    """Compares runs by name over all judged queries, of which one without results counts as 0.

    The baseline is the first run unless another is named. p values are corrected for the number of runs that are
    compared with it, for each measure apart.
    """
    config = config or CompareConfig()
    if not runs:
        raise ConfigError("there are no runs to compare")
    baseline = next(iter(runs)) if baseline is None else baseline
    if baseline not in runs:
        raise ConfigError(f"the baseline {baseline!r} is not one of the runs: {', '.join(runs)}")
    queries, names = tuple(qrels), list(dict.fromkeys(measures))
    each = {run: measure_each(found, qrels, names) for run, found in runs.items()}
    values = {name: {run: each[run][name] for run in runs} for name in names}
    means: dict[str, dict[str, Mean]] = {}
    differences: list[Difference] = []
    for name in names:
        table = np.array([[values[name][run][query] for run in runs] for query in queries])
        means[name] = dict(zip(runs, _means(table, config), strict=True))
        differences += _differences(name, list(runs), table, baseline, config)
    return Comparison(baseline, queries, values, means, tuple(differences), config)


def _means(table: NDArray[np.float64], config: CompareConfig) -> list[Mean]:
    intervals = bootstrap_intervals(table, n_resamples=config.n_resamples, seed=config.seed)
    return [
        Mean(float(value), float(low), float(high))
        for value, (low, high) in zip(table.mean(axis=0), intervals, strict=True)
    ]


def _differences(
    measure: str, runs: list[str], table: NDArray[np.float64], baseline: str, config: CompareConfig
) -> list[Difference]:
    others = [place for place, run in enumerate(runs) if run != baseline]
    if not others:
        return []
    moved = table[:, others] - table[:, [runs.index(baseline)]]
    p = randomisation_test(moved, n_permutations=config.n_permutations, seed=config.seed)
    t, p_t = paired_t_test(moved)
    p_corrected, p_t_corrected = corrected(p, config.correction), corrected(p_t, config.correction)
    return [
        Difference(
            runs[place],
            measure,
            mean,
            float(p[column]),
            float(p_corrected[column]),
            float(t[column]),
            float(p_t[column]),
            float(p_t_corrected[column]),
            wins=int(np.sum(moved[:, column] > TIE)),
            ties=int(np.sum(np.abs(moved[:, column]) <= TIE)),
            losses=int(np.sum(moved[:, column] < -TIE)),
        )
        for column, (place, mean) in enumerate(zip(others, _means(moved, config), strict=True))
    ]

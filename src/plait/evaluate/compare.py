"""Comparing runs: means with intervals, tested differences to a baseline, and the queries that changed most."""

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

TIE = 1e-9  # values of a query that differ by less are equal


@dataclass(frozen=True, slots=True)
class Mean:
    """A mean over the queries, with its 95% bootstrap interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Difference:
    """A run against the baseline by one measure; `mean` is the run's minus the baseline's."""

    run: str
    measure: str
    mean: Mean
    p_randomisation: float
    p_randomisation_corrected: float  # for the number of compared runs
    t: float
    p_t: float
    p_t_corrected: float
    wins: int  # queries on which the run is better
    ties: int
    losses: int


@dataclass(frozen=True, slots=True)
class Moved:
    """A query with different values for two runs."""

    query: str
    baseline: float
    run: float


@dataclass(frozen=True, slots=True)
class CompareConfig:
    """How to test. Printed with the results, so that they can be reproduced."""

    correction: str = "holm"
    n_permutations: int = 100_000
    n_resamples: int = 10_000
    seed: int = 0

    def __post_init__(self) -> None:
        corrected([], self.correction)  # raises ConfigError for an unknown name
        for name in ("n_permutations", "n_resamples"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} is {getattr(self, name)}; it must be at least 1")


@dataclass(frozen=True, slots=True)
class Comparison:
    """The result of `compare`."""

    baseline: str
    queries: tuple[str, ...]
    values: Mapping[str, Mapping[str, Mapping[str, float]]]  # by measure, run and query
    means: Mapping[str, Mapping[str, Mean]]  # by measure and run
    differences: tuple[Difference, ...]  # ordered by measure, then by run
    config: CompareConfig

    def moved(self, run: str, measure: str, n: int) -> list[Moved]:
        """The n queries with the largest differences between the run and the baseline, largest first."""
        before, after = self.values[measure][self.baseline], self.values[measure][run]
        moved = [Moved(query, before[query], after[query]) for query in self.queries]
        moved = [query for query in moved if abs(query.run - query.baseline) > TIE]
        return sorted(moved, key=lambda query: (-abs(query.run - query.baseline), query.query))[:n]


def compare(
    runs: Mapping[str, Run],
    qrels: Qrels,
    measures: Sequence[str] = ("nDCG@10",),
    *,
    baseline: str | None = None,
    config: CompareConfig | None = None,
) -> Comparison:
    """Compares runs, given by name, over all judged queries; a query without results counts as 0.

    The baseline is the first run by default. p-values are corrected for the number of runs that are compared with it,
    separately for each measure.
    """
    config = config or CompareConfig()
    if not runs:
        raise ConfigError("there are no runs to compare")
    baseline = next(iter(runs)) if baseline is None else baseline
    if baseline not in runs:
        raise ConfigError(f"the baseline {baseline!r} is not one of the runs: {', '.join(runs)}")
    queries, names = tuple(qrels), list(dict.fromkeys(measures))
    each = {name: measure_each(run, qrels, names) for name, run in runs.items()}
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
    others = [column for column, run in enumerate(runs) if run != baseline]
    if not others:
        return []
    changes = table[:, others] - table[:, [runs.index(baseline)]]
    p = randomisation_test(changes, n_permutations=config.n_permutations, seed=config.seed)
    t, p_t = paired_t_test(changes)
    p_corrected, p_t_corrected = corrected(p, config.correction), corrected(p_t, config.correction)
    return [
        Difference(
            runs[other],
            measure,
            mean,
            float(p[column]),
            float(p_corrected[column]),
            float(t[column]),
            float(p_t[column]),
            float(p_t_corrected[column]),
            wins=int(np.sum(changes[:, column] > TIE)),
            ties=int(np.sum(np.abs(changes[:, column]) <= TIE)),
            losses=int(np.sum(changes[:, column] < -TIE)),
        )
        for column, (other, mean) in enumerate(zip(others, _means(changes, config), strict=True))
    ]

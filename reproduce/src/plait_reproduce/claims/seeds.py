"""Reading the outcomes of trained arms, which are named `arm/seed`."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from plait_reproduce.claims.reading import Outcomes
from plait_reproduce.estimates import Each, Estimate, seeds_difference
from plait_reproduce.experiment import Arm, Line, Outcome, Settings, Table
from plait_reproduce.workbench import Workbench

SEEDS = (0, 1, 2)
DIFFERS = (
    "The tower that is trained is one small layer over the states of half of a frozen general encoder, not a whole "
    "BERT or T5. It learns from 1,000 questions of SQuAD in 160 steps of 16, with in-batch negatives and one of "
    "BM25's for each. Passages are sentences. The rate is chosen on dev queries for each recipe, by the scoring that "
    "it is meant for. "
)

Run = Callable[[Workbench, Settings], Outcome]


def arms(run: Run, recipes: Mapping[str, Mapping[str, Any]], sets: Sequence[str], **settings: Any) -> list[Arm]:
    """An arm for each recipe and seed, named `recipe/seed`."""
    return [
        Arm(f"{name}/{seed}", run, {"recipe": dict(recipe), "seed": seed, **settings}, tuple(sets))
        for name, recipe in recipes.items()
        for seed in SEEDS
    ]


class Trainings:
    """The outcomes of several seeds."""

    def __init__(self, outcomes: Outcomes) -> None:
        self._outcomes = outcomes
        self._means: dict[tuple[str, str], Estimate] = {}

    def each(self, arm: str, measure: str) -> list[Each]:
        return [self._outcomes[f"{arm}/{seed}"].each[measure] for seed in SEEDS]

    def mean(self, arm: str, measure: str) -> Estimate:
        """Over seeds and queries; tables and figures ask for the same ones."""
        if (arm, measure) not in self._means:
            found = self.each(arm, measure)
            self._means[arm, measure] = seeds_difference(found, [dict.fromkeys(own, 0.0) for own in found])
        return self._means[arm, measure]

    def less(self, arm: tuple[str, str], base: tuple[str, str]) -> Estimate:
        """(arm, measure) minus (arm, measure), paired by seed and query."""
        return seeds_difference(self.each(*arm), self.each(*base))

    def less_of_differences(self, arms: Sequence[tuple[str, str]], bases: Sequence[tuple[str, str]]) -> Estimate:
        """(first - second) of `arms` minus the same of `bases`, paired by seed and query."""
        gaps = [
            [{query: own[query] - other[query] for query in own} for own, other in
             zip(self.each(*pair[0]), self.each(*pair[1]), strict=True)]
            for pair in (arms, bases)
        ]  # fmt: skip
        return seeds_difference(*gaps)

    def line(self, label: str, arm: str, measures: Sequence[str], x: Sequence[float]) -> Line:
        return curve(label, [self.mean(arm, measure) for measure in measures], x)

    def table(self, title: str, arms: Mapping[str, str], measures: Mapping[str, str]) -> Table:
        """A row for each arm, a column for each measure; means over seeds and queries."""
        rows = [
            [label, *(f"{self.mean(arm, measure).value:.3f}" for measure in measures)] for arm, label in arms.items()
        ]
        return Table(title, ["", *measures.values()], rows)


def curve(label: str, found: Sequence[Estimate], x: Sequence[float]) -> Line:
    """Numbers over x, with a band."""
    return Line(label, list(x), [own.value for own in found], [own.low for own in found], [own.high for own in found])


def apart(first: Estimate, second: Estimate) -> Estimate:
    """first - second, of numbers that were found on different queries: their intervals add as independent ones do."""
    value = first.value - second.value
    low = math.hypot(first.value - first.low, second.high - second.value)
    high = math.hypot(first.high - first.value, second.value - second.low)
    return Estimate(value, value - low, value + high, min(first.n, second.n))

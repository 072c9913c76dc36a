"""Reading outcomes: of arms named `arm/set` over all sets of a claim, and of trainings named `recipe/seed`."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from plait.evaluate.compare import Mean
from plait_reproduce.datasets import in_hash_order
from plait_reproduce.experiment import Arm, Line, Outcome, Settings, Table, as_mean
from plait_reproduce.verdict import Each, Estimate, mean, pooled_difference, ratio, seeds_difference
from plait_reproduce.workbench import Workbench

Outcomes = Mapping[str, Outcome]
QUALITY = "nDCG@10"


class Across:
    """The outcomes of several sets. An estimate over all of them weighs queries equally."""

    def __init__(self, outcomes: Outcomes, sets: Sequence[str]) -> None:
        self._outcomes, self._sets = outcomes, tuple(sets)

    def each(self, arm: str, measure: str = QUALITY) -> list[Each]:
        """The values of each set's queries."""
        return [self._outcomes[f"{arm}/{name}"].each[measure] for name in self._sets]

    def fact(self, arm: str, name: str) -> float:
        """The sum of a fact over the sets; 0 where a set lacks it."""
        return sum(self._outcomes[f"{arm}/{set_name}"].facts.get(name, 0.0) for set_name in self._sets)

    def facts(self, arm: str, name: str) -> list[float]:
        return [self._outcomes[f"{arm}/{set_name}"].facts[name] for set_name in self._sets]

    def mean(self, arm: str, measure: str = QUALITY) -> Estimate:
        return mean(_together(self.each(arm, measure)))

    def means(self, arm: str, measure: str = QUALITY) -> list[Mean]:
        """One mean per set, for bars."""
        return [as_mean(mean(values)) for values in self.each(arm, measure)]

    def less(self, arm: str, base: str, measure: str = QUALITY) -> Estimate:
        """`arm` minus `base`, paired by query."""
        return pooled_difference(self.each(arm, measure), self.each(base, measure))

    def between(self, arm: tuple[str, str], base: tuple[str, str]) -> Estimate:
        """(arm, measure) minus (arm, measure)."""
        return pooled_difference(self.each(*arm), self.each(*base))

    def less_within(self, arm: str, measure: str, base: str) -> Estimate:
        """One measure of an arm minus another."""
        return self.between((arm, measure), (arm, base))

    def less_of_differences(self, arms: tuple[str, str], bases: tuple[str, str], measure: str = QUALITY) -> Estimate:
        """(arm - arm) minus (base - base): how much more the first pair differs."""
        first, second = (_gaps(self.each(pair[0], measure), self.each(pair[1], measure)) for pair in (arms, bases))
        return pooled_difference(first, second)

    def times_within(self, arm: str, measure: str, base: str) -> Estimate:
        """The sum of one measure of an arm over that of another."""
        return ratio(_together(self.each(arm, measure)), _together(self.each(arm, base)))

    def table_of(self, title: str, arm: str, measures: Mapping[str, str]) -> Table:
        """A row for each named measure of one arm, a column for each set."""
        rows = [
            [label, *(f"{mean(values).value:.3f}" for values in self.each(arm, name))]
            for name, label in measures.items()
        ]
        return Table(title, ["", *self._sets], rows)

    def table(self, title: str, arms: Mapping[str, str], measure: str = QUALITY) -> Table:
        """A row for each named arm, a column for each set."""
        rows = [
            [label, *(f"{mean(values).value:.3f}" for values in self.each(arm, measure))] for arm, label in arms.items()
        ]
        return Table(title, ["", *self._sets], rows)

    def line(self, label: str, arms: Sequence[str], x: Sequence[float], measure: str = QUALITY) -> Line:
        """A curve through arms, with a band."""
        points = [self.mean(arm, measure) for arm in arms]
        return Line(label, list(x), [point.value for point in points], [point.low for point in points],
                    [point.high for point in points])  # fmt: skip

    def line_of(self, label: str, arm: str, measures: Sequence[str], x: Sequence[float], *, only: str) -> Line:
        """A curve through measures of one arm on one set, with a band."""
        estimates = [mean(self._outcomes[f"{arm}/{only}"].each[name]) for name in measures]
        return Line(
            label,
            list(x),
            [estimate.value for estimate in estimates],
            [estimate.low for estimate in estimates],
            [estimate.high for estimate in estimates],
        )

    def lines(self, arms: Sequence[str], x: Sequence[float], measure: str = QUALITY) -> list[Line]:
        """A curve for each set."""
        return [Across(self._outcomes, [name]).line(name, arms, x, measure) for name in self._sets]


def halves(outcomes: Outcomes, sets: Sequence[str]) -> tuple[Across, Across]:
    """The outcomes on half of each set's queries and on the other half: one to choose settings, one to measure."""

    def half(outcome: Outcome, start: int) -> Outcome:
        return Outcome(
            {
                name: {query: each[query] for query in in_hash_order(each)[start::2]}
                for name, each in outcome.each.items()
            },
            outcome.facts,
        )

    first, second = ({name: half(outcome, start) for name, outcome in outcomes.items()} for start in (0, 1))
    return Across(first, sets), Across(second, sets)


def points(estimate: Estimate) -> str:
    """A difference in points: hundredths."""
    return f"{100 * estimate.value:+.1f}"


def _together(parts: Sequence[Each]) -> dict[str, float]:
    return {f"{position}/{query}": value for position, part in enumerate(parts) for query, value in part.items()}


def _gaps(above: Sequence[Each], below: Sequence[Each]) -> list[Each]:
    return [{query: first[query] - other[query] for query in first} for first, other in zip(above, below, strict=True)]


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
        """The mean over seeds and queries; cached, because tables and figures share it."""
        if (arm, measure) not in self._means:
            values = self.each(arm, measure)
            self._means[arm, measure] = seeds_difference(values, [dict.fromkeys(estimate, 0.0) for estimate in values])
        return self._means[arm, measure]

    def less(self, arm: tuple[str, str], base: tuple[str, str]) -> Estimate:
        """(arm, measure) minus (arm, measure), paired by seed and query."""
        return seeds_difference(self.each(*arm), self.each(*base))

    def less_of_differences(self, arms: Sequence[tuple[str, str]], bases: Sequence[tuple[str, str]]) -> Estimate:
        """(first - second) of `arms` minus the same of `bases`, paired by seed and query."""
        gaps = [
            [{query: first[query] - other[query] for query in first} for first, other in
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


def curve(label: str, estimates: Sequence[Estimate], x: Sequence[float]) -> Line:
    """Estimates over x, with a band."""
    return Line(
        label,
        list(x),
        [estimate.value for estimate in estimates],
        [estimate.low for estimate in estimates],
        [estimate.high for estimate in estimates],
    )


def difference_of_independent(first: Estimate, second: Estimate) -> Estimate:
    """first - second, of estimates on different queries: their intervals combine as independent ones."""
    value = first.value - second.value
    low = math.hypot(first.value - first.low, second.high - second.value)
    high = math.hypot(first.high - first.value, second.value - second.low)
    return Estimate(value, value - low, value + high, min(first.n, second.n))

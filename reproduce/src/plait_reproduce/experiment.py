"""The types of an experiment: arms, their outcomes, and the judgement of a claim."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from plait.evaluate.compare import Mean
from plait_reproduce.datasets import TIERS
from plait_reproduce.verdict import Check, Estimate
from plait_reproduce.workbench import Workbench

Settings = Mapping[str, Any]  # values of JSON types


@dataclass(frozen=True, slots=True)
class Outcome:
    """The numbers of an arm; stored as JSON."""

    each: Mapping[str, Mapping[str, float]] = field(default_factory=dict)  # measure -> query (or seed) -> value
    facts: Mapping[str, float] = field(default_factory=dict)  # numbers of the whole arm: bytes, counts
    series: Mapping[str, Sequence[float]] = field(default_factory=dict)  # for plots


@dataclass(frozen=True, slots=True)
class Arm:
    """One piece of work, saved when it is finished. `run` may depend only on the settings and on the sets named here;
    raise `version` when its code changes the numbers."""

    name: str  # the key of its outcome in `Experiment.judge`
    run: Callable[[Workbench, Settings], Outcome]
    settings: Settings = field(default_factory=dict)
    sets: tuple[str, ...] = ()
    version: int = 1

    def key(self, workbench: Workbench) -> dict[str, Any]:
        """Everything that decides the outcome. Arms with the same key share one outcome."""
        return {
            "run": f"{self.run.__module__}.{self.run.__qualname__}",
            "version": self.version,
            "settings": dict(self.settings),
            "tier": workbench.tier,
            "sets": {name: workbench.key(name) for name in self.sets},
        }


@dataclass(frozen=True, slots=True)
class Table:
    """Numbers as text, one row for each arm or setting."""

    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True, slots=True)
class Line:
    """A curve of a figure, with a band if low and high are given."""

    label: str
    x: Sequence[float]
    y: Sequence[float]
    low: Sequence[float] | None = None
    high: Sequence[float] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A plot as data: lines over x, or bars in groups."""

    title: str
    y_label: str
    x_label: str = ""
    log_x: bool = False
    log_y: bool = False
    lines: Sequence[Line] = ()
    groups: Sequence[str] = ()
    bars: Mapping[str, Sequence[Mean]] = field(default_factory=dict)  # series -> one bar for each group


@dataclass(frozen=True, slots=True)
class Judgement:
    """What the arms showed."""

    ours: str  # our numbers in one line, beside the paper's
    checks: Sequence[Check]
    tables: Sequence[Table] = ()
    figures: Sequence[Figure] = ()
    notes: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Experiment:
    """A claim and how it is tested."""

    id: str
    family: str  # one of FAMILIES
    claim: str  # one sentence
    paper: str  # the paper's number
    sets: tuple[str, ...]
    measure: str
    expects: str  # the expected direction, in words
    differs: str  # what differs from the paper
    minutes: tuple[float, float | None]  # quick and full, on two idle cores, sets encoded; None: no such tier
    arms: Callable[[str], Sequence[Arm]]  # the arms of a tier
    judge: Callable[[Mapping[str, Outcome]], Judgement]  # takes the outcomes by arm name
    extra: str = ""  # the extra of plait that its arms need; "" for none

    @property
    def tiers(self) -> tuple[str, ...]:
        return tuple(tier for tier, minutes in zip(TIERS, self.minutes, strict=True) if minutes is not None)


FAMILIES: Mapping[str, str] = {
    "colbert": "ColBERTv2 and PLAID",
    "constbert": "ConstBERT",
    "xtr": "XTR",
    "colxtr-warp": "ColXTR and WARP",
    "m3": "BGE-M3",
    "anncur": "ANNCUR, ADACUR and AXN",
}


def as_mean(estimate: Estimate) -> Mean:
    """An estimate as the plots take it."""
    return Mean(estimate.value, estimate.low, estimate.high)

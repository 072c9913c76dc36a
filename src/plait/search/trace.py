"""`Trace`: the stages of a search with their times and counts. A plan writes it, `--timings` shows it. Each stage
checks the deadline of the search before it begins."""

from __future__ import annotations

import textwrap
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from plait.deadline import enter_stage

WITHIN = ": "  # between the name of a stage and the name of an inner stage


@dataclass(slots=True)
class Stage:
    name: str
    seconds: float
    counts: dict[str, int] = field(default_factory=dict)


class Timing:
    """A timed block. A class, because a generator-based context manager would cost as much as some of the blocks."""

    __slots__ = ("_stage", "_stages", "_start")

    def __init__(self, stages: list[Stage], stage: Stage) -> None:
        self._stages, self._stage = stages, stage

    def __enter__(self) -> Stage:
        enter_stage(self._stage.name)
        self._start = time.perf_counter()
        return self._stage

    def __exit__(self, *_: object) -> None:
        self._stage.seconds = time.perf_counter() - self._start
        self._stages.append(self._stage)


@dataclass(slots=True)
class Trace:
    """Stages in the order in which they ended. `str` gives the table."""

    stages: list[Stage] = field(default_factory=list)

    def stage(self, name: str) -> Timing:
        """Times the block as one stage, which the block may add counts to."""
        return Timing(self.stages, Stage(name, 0.0))

    def add(self, within: Trace, *, under: str) -> None:
        """Adds the stages of many small searches as inner stages of `under`: one for each name, with sums."""
        for stage in _summed(within.stages):
            self.stages.append(Stage(under + WITHIN + stage.name, stage.seconds, stage.counts))

    @property
    def total(self) -> float:
        """Seconds of all stages; an inner stage counts only with its outer one."""
        return sum(stage.seconds for stage in self._outer())

    def as_fields(self) -> dict[str, Any]:
        """Plain data for JSON."""
        stages = [{"stage": stage.name, "seconds": stage.seconds, **stage.counts} for stage in self.stages]
        return {"seconds": self.total, "stages": stages}

    def table(self, width: int = 80) -> str:
        """One line for each name: milliseconds, share of the total and counts. Inner stages are below their outer
        one."""
        lines = []
        for outer in _summed(self._outer()):
            lines.append(self._line(outer, outer.name, width))
            within = [stage for stage in self.stages if stage.name.startswith(outer.name + WITHIN)]
            lines += [self._line(stage, "  " + stage.name.partition(WITHIN)[2], width) for stage in _summed(within)]
        total = Stage("total", self.total)
        return "\n".join([f"{'stage':<14} {'ms':>9} {'share':>6}", *lines, self._line(total, "total", width)])

    def __str__(self) -> str:
        return self.table()

    def _outer(self) -> list[Stage]:
        names = {stage.name for stage in self.stages}
        return [stage for stage in self.stages if stage.name.partition(WITHIN)[0] not in names - {stage.name}]

    def _line(self, stage: Stage, name: str, width: int) -> str:
        share = f"{stage.seconds / self.total:.0%}" if self.total else ""
        start = f"{name:<14} {1000 * stage.seconds:>9.2f} {share:>6}  "
        counts = ", ".join(_counted(*item) for item in stage.counts.items())
        lines = textwrap.wrap(counts, max(20, width - len(start)), break_long_words=False) or [""]
        return ("\n" + " " * len(start)).join([start + lines[0], *lines[1:]]).rstrip()


def _summed(stages: Iterable[Stage]) -> list[Stage]:
    """One stage for each name, with sums, in the order in which the names first occur."""
    sums: dict[str, Stage] = {}
    for stage in stages:
        total = sums.setdefault(stage.name, Stage(stage.name, 0.0))
        total.seconds += stage.seconds
        for name, count in stage.counts.items():
            total.counts[name] = total.counts.get(name, 0) + count
    return list(sums.values())


def _counted(name: str, count: int) -> str:
    if name == "bytes":
        return f"{count / 1e6:,.1f} MB" if count >= 100_000 else f"{count:,} bytes"
    return f"{count:,} {name}"

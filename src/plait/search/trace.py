"""What a search did and how long each stage took; a plan writes it, `--timings` shows it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field


@dataclass(slots=True)
class Stage:
    name: str
    seconds: float
    counts: dict[str, int] = field(default_factory=dict)


@dataclass(slots=True)
class Trace:
    """Stages in the order they ended."""

    stages: list[Stage] = field(default_factory=list)

    @contextmanager
    def stage(self, name: str) -> Iterator[Stage]:
        """Times the block as one stage; the block may add counts to what it is given."""
        stage = Stage(name, 0.0)
        start = time.perf_counter()
        try:
            yield stage
        finally:
            stage.seconds = time.perf_counter() - start
            self.stages.append(stage)

    def add(self, within: Trace, *, under: str) -> None:
        """The stages of many small searches as one for each name: `under` and the name, with sums of all they have."""
        sums: dict[str, Stage] = {}
        for stage in within.stages:
            total = sums.setdefault(stage.name, Stage(f"{under}: {stage.name}", 0.0))
            total.seconds += stage.seconds
            for name, count in stage.counts.items():
                total.counts[name] = total.counts.get(name, 0) + count
        self.stages += sums.values()

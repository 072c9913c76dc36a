"""Progress bars, on stderr and only if it is a terminal."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from plait.cli.time_left import TimeLeft, written


class Update(Protocol):
    def __call__(self, completed: float, done: int, left: float | None = None) -> None:
        """`completed` is the work that is done, `done` the number of things, `left` the work that is left: by default
        what the total leaves."""


@contextmanager
def progress(label: str, things: str, *, total: float | None, estimated: bool = False) -> Iterator[Update]:
    """Yields a function to call with the work that is done and the number of `things`.

    Shows count, rate and elapsed time; with a `total`, or with `estimated` work left, also a bar and the time left.
    """
    if not sys.stderr.isatty():
        yield _nothing
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, ProgressColumn, SpinnerColumn, Task, TextColumn, TimeElapsedColumn
    from rich.text import Text

    time_left = TimeLeft()

    class TimeLeftColumn(ProgressColumn):
        def render(self, task: Task) -> Text:
            del task
            return Text(f"{written(time_left.seconds)} left", style="cyan")

    columns = [SpinnerColumn(), TextColumn("{task.description}"), BarColumn(bar_width=None)]
    columns += [TextColumn("{task.fields[count]}"), TimeElapsedColumn()]
    if total is not None or estimated:
        columns += [TimeLeftColumn()]
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(label, total=None if total is None and not estimated else 1.0, count=f"0 {things}")
        share = 0.0

        def update(completed: float, done: int, left: float | None = None) -> None:
            nonlocal share
            seconds = bar.tasks[0].elapsed or 0.0
            rate = f", {done / seconds:,.0f}/s" if seconds > 0 and done else ""
            if left is None and total is not None:
                left = max(0.0, total - completed)
            if left is not None:
                time_left.update(completed, left)
                # Estimates of the work change; the bar does not go back.
                share = max(share, completed / (completed + left) if completed + left > 0 else 1.0)
            bar.update(task, completed=share, count=f"{done:,} {things}{rate}")

        yield update


def _nothing(completed: float, done: int, left: float | None = None) -> None:
    del completed, done, left

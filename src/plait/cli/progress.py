"""Progress bars, on stderr and only if it is a terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Update = Callable[[int, int], None]  # (progress towards `total`, number of things done)


@contextmanager
def progress(label: str, things: str, *, total: int | None) -> Iterator[Update]:
    """Yields a function to call with the progress towards `total` and the number of `things` done.

    Shows count, rate and elapsed time; with a `total` also a bar and the time left.
    """
    if not sys.stderr.isatty():
        yield lambda _completed, _done: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    columns = [SpinnerColumn(), TextColumn("{task.description}"), BarColumn(bar_width=None)]
    columns += [TextColumn("{task.fields[count]}"), TimeElapsedColumn()]
    if total is not None:
        columns += [TextColumn("left"), TimeRemainingColumn()]
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(label, total=total, count=f"0 {things}")

        def update(completed: int, done: int) -> None:
            seconds = bar.tasks[0].elapsed or 0.0
            rate = f", {done / seconds:,.0f}/s" if seconds > 0 and done else ""
            bar.update(task, completed=completed, count=f"{done:,} {things}{rate}")

        yield update

"""Progress bars: on stderr, and only where it is a terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Update = Callable[[int, int], None]  # (how far, of `total`), (how many are done)


@contextmanager
def progress(what: str, things: str, *, total: int | None) -> Iterator[Update]:
    """Gives a function to call with how far the work is and how many `things` are done.

    Shows a bar if `total` is known, and count, rate, time gone and time left.
    """
    if not sys.stderr.isatty():
        yield lambda _far, _done: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    columns = [SpinnerColumn(), TextColumn("{task.description}"), BarColumn(bar_width=None)]
    columns += [TextColumn("{task.fields[count]}"), TimeElapsedColumn()]
    if total is not None:
        columns += [TextColumn("left"), TimeRemainingColumn()]
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=total, count=f"0 {things}")

        def update(far: int, done: int) -> None:
            seconds = bar.tasks[0].elapsed or 0.0
            rate = f", {done / seconds:,.0f}/s" if seconds > 0 and done else ""
            bar.update(task, completed=far, count=f"{done:,} {things}{rate}")

        yield update

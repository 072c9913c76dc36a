"""`plait check`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from plait.cli.ending import NOTHING_FOUND
from plait.cli.options import IndexPath


def check(
    index: IndexPath,
    repair: Annotated[
        bool, typer.Option("--repair", help="Drop what cannot be read, keep the rest, and say what was lost.")
    ] = False,
) -> None:
    """Read all of an index and verify it.

    Compares every file with its checksum, and the parts of the index with each other. Changes nothing, unless --repair
    is given and there is a problem.

    \b
    Examples:
      plait check my-index
      plait check my-index --repair
    """
    from plait.index.check import check as verify

    if repair:
        _repair(index)
    report = verify(index)
    for note in report.notes:
        print(f"note: {note}")
    for problem in report.problems:
        print(f"problem: {problem}")
    if report.problems:
        raise typer.Exit(NOTHING_FOUND)
    print(
        f"{index} is sound: {report.n_documents:,} documents in {report.n_segments:,} segments, all read and compared"
    )


def _repair(index: Path) -> None:
    from plait.index.repair import repair

    done = repair(index)
    for problem in done.found:
        print(f"problem: {problem}")
    for number in done.segments:
        print(f"dropped: segment {number}")
    for id in done.lost:
        print(f"lost: {id}")
    if done.damaged_plan:
        print("dropped: the plan that plait tune had saved")
    if done.found:
        print(f"{index} is repaired: {done.n_kept:,} documents are kept, {len(done.lost):,} are lost")

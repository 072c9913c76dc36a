"""`plait check`."""

from __future__ import annotations

import typer

from plait.cli.ending import NOTHING_FOUND
from plait.cli.options import IndexPath


def check(index: IndexPath) -> None:
    """Read all of an index and verify it.

    Compares every file with its checksum, and the parts of the index with each other. Changes nothing.

    \b
    Example:
      plait check my-index
    """
    from plait.index.check import check as verify

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

"""`plait check`."""

from __future__ import annotations

from pathlib import Path
from shlex import quote
from typing import Annotated

import typer

from plait.cli.errors import NOTHING_FOUND
from plait.cli.options import IndexPath
from plait.errors import ConfigError

REBUILT = {"cur": "the CUR index; plait cur build makes it again"}  # attachments
MAX_LOST_SHOWN = 100  # lost documents that are printed; the texts of all are in the rescue file


def check(
    index: IndexPath,
    repair: Annotated[
        bool, typer.Option("--repair", help="Drop what cannot be read, keep the rest, and list what was lost.")
    ] = False,
    rescue: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="With --repair: write the texts of dropped documents here; by default beside the index.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Read all of an index and verify it.

    Compares every file with its checksum, and the parts of the index with each other. Changes nothing without --repair.

    \b
    Examples:
      plait check my-index
      plait check my-index --repair
      plait check my-index --repair --rescue lost.jsonl
    """
    from plait.storage.check import check as verify

    if repair:
        _repair(index, rescue)
    elif rescue is not None:
        raise ConfigError("--rescue needs --repair; without it nothing is dropped")
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


def _repair(index: Path, rescue: Path | None) -> None:
    from plait.storage.repair import free_rescue_path, repair

    rescue_file = rescue or free_rescue_path(index)
    done = repair(index, rescue=rescue_file)
    for problem in done.problems:
        print(f"problem: {problem}")
    for number in done.removed_segments:
        print(f"dropped: segment {number}")
    for record in done.slower_segments:
        print(
            f"dropped: files of segment {record.number} that only make searches faster; plait compact makes them again"
        )
    for id in done.removed_ids[:MAX_LOST_SHOWN]:
        print(f"lost: {id}")
    if len(done.removed_ids) > MAX_LOST_SHOWN:
        print(f"lost: and {len(done.removed_ids) - MAX_LOST_SHOWN:,} more")
    if done.removed_params:
        print("dropped: the parameters that plait tune had saved")
    for name in done.removed_attachments:
        print(f"dropped: {REBUILT.get(name, f'attachment {name}; build it again')}")
    if done.problems:
        print(f"{index} is repaired: {done.n_kept:,} documents are kept, {len(done.removed_ids):,} are lost")
    if done.intact_docs:
        print(
            f"the texts of {len(done.intact_docs):,} of the lost documents are in {rescue_file}; to encode them again:"
        )
        print(f"    plait index {quote(str(rescue_file))} --to {quote(str(index))}")

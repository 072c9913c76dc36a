"""`plait backup`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from plait.cli.info import describe_size
from plait.cli.options import IndexPath


def backup(
    index: IndexPath,
    to: Annotated[Path, typer.Argument(metavar="DEST", help="A new folder for the copy.", show_default=False)],
    link: Annotated[
        bool, typer.Option("--link", help="Share segment files with the index by hard links, if the disk allows it.")
    ] = False,
) -> None:
    """Copy an index, also while it is read and written.

    The copy holds one commit and is checked after copying. It is an index like any other.

    \b
    Examples:
      plait backup my-index /backups/monday
      plait backup my-index ../before-the-change --link
    """
    from plait.storage.backup import backup as copy

    done = copy(index, to, link=link)
    shared = f", {done.n_linked:,} files shared with it" if done.n_linked else ""
    print(f"{to}: {done.n_documents:,} documents of {index}, {describe_size(done.n_bytes)}{shared}, checked")

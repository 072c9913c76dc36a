"""`plait delete`."""

from __future__ import annotations

from typing import Annotated

import typer

from plait.cli.errors import NOTHING_FOUND
from plait.cli.options import IndexPath, Timeout, Wait


def delete(
    index: IndexPath,
    ids: Annotated[list[str] | None, typer.Argument(metavar="ID", help="Ids of documents.", show_default=False)] = None,
    filter: Annotated[
        str | None,
        typer.Option(metavar="CONDITION", help="Delete all documents that this filter accepts.", show_default=False),
    ] = None,
    wait: Wait = 30.0,
    timeout: Timeout = None,
) -> None:
    """Delete documents by id, or all documents that a filter accepts.

    \b
    Examples:
      plait delete my-index doc-17 doc-18
      plait delete my-index --filter 'year < 2000'
    """
    import plait

    wanted = list(dict.fromkeys(ids or []))
    with plait.open(index, write_timeout=wait) as opened:
        n_deleted = opened.delete(wanted if ids else None, filter=filter, timeout=timeout)
    missing = f"; {len(wanted) - n_deleted} of {len(wanted)} were not in the index" if n_deleted < len(wanted) else ""
    print(f"deleted {n_deleted:,} {'document' if n_deleted == 1 else 'documents'}{missing}")
    if not n_deleted:
        raise typer.Exit(NOTHING_FOUND)

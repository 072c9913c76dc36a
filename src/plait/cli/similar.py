"""`plait similar`."""

from __future__ import annotations

from typing import Annotated

import typer

from plait.cli.errors import NOTHING_FOUND, say
from plait.cli.options import AsJson, IndexPath, Timeout
from plait.cli.search import print_json


def similar(
    index: IndexPath,
    id: Annotated[str, typer.Argument(metavar="ID", help="The id of a document.", show_default=False)],
    k: Annotated[int, typer.Option("-k", min=1, help="Documents to return.")] = 10,
    offset: Annotated[int, typer.Option(min=0, help="Documents to skip: those of the pages before.")] = 0,
    filter: Annotated[
        str | None, typer.Option(help="A condition on metadata, such as 'year >= 2020 and not draft'.")
    ] = None,
    as_json: AsJson = False,
    full: Annotated[bool, typer.Option("--full", help="Print whole texts rather than snippets.")] = False,
    timeout: Timeout = None,
) -> None:
    """Find documents similar to a document of the index.

    They are compared by their stored vectors: no model is loaded.

    \b
    Examples:
      plait similar my-index intro.md -k 5
    """
    import plait
    from plait.cli.render import print_hits

    with plait.open(index, read_only=True) as opened:
        hits = opened.similar(id, k, offset=offset, filter=filter, timeout=timeout)
    if as_json:
        print_json(hits, full=full, first_rank=offset + 1)
    elif hits:
        print_hits(hits, "", full=full, first_rank=offset + 1)
    if not hits:
        say("plait: nothing found")
        raise typer.Exit(NOTHING_FOUND)

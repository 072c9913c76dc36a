"""`plait get`."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from plait.cli.errors import NOTHING_FOUND, say
from plait.cli.options import AsJson, IndexPath


def get(
    index: IndexPath,
    ids: Annotated[list[str], typer.Argument(metavar="ID...", help="Ids of documents.", show_default=False)],
    as_json: AsJson = False,
) -> None:
    """Print documents by id.

    Prints the text of each document. With --json, one object on each line: id, title, text and metadata. Exits with 1
    if an id is not in the index.

    \b
    Examples:
      plait get my-index intro.md
      plait get my-index a b c --json | jq .title
    """
    import plait

    with plait.open(index, read_only=True) as opened:
        documents = opened.get(ids)
    for document in documents:
        if document is not None:
            fields = {"id": document.id, "title": document.title, "text": document.text}
            metadata = dict(document.metadata)
            print(json.dumps({**fields, "metadata": metadata}) if as_json else document.text)
    missing = [id for id, document in zip(ids, documents, strict=True) if document is None]
    if missing:
        say(f"plait: not in the index: {', '.join(missing)}")
        raise typer.Exit(NOTHING_FOUND)

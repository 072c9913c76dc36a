"""`plait count`."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from plait.cli.options import AsJson, IndexPath, Timeout


def count(
    index: IndexPath,
    filter: Annotated[
        str | None, typer.Option(help="Count the documents where this holds, such as 'year >= 2020'.")
    ] = None,
    by: Annotated[
        str | None, typer.Option(metavar="FIELD", help="Count the documents of each value of a field.")
    ] = None,
    k: Annotated[int, typer.Option("-k", min=1, help="With --by: values to print, most frequent first.")] = 10,
    as_json: AsJson = False,
    timeout: Timeout = None,
) -> None:
    """Count documents.

    \b
    Examples:
      plait count my-index
      plait count my-index --filter 'year >= 2020' --by lang
    """
    import plait
    from plait.cli.facets import print_facets

    with plait.open(index, read_only=True) as opened:
        if by is not None:
            print_facets(opened.facets(by, k=k, filter=filter, timeout=timeout), as_json=as_json)
            return
        n_documents = opened.count(filter, timeout=timeout)
    print(json.dumps({"documents": n_documents}) if as_json else n_documents)

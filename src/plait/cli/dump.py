"""`plait dump`."""

from __future__ import annotations

import dataclasses
import json
from typing import Annotated

import typer

from plait.cli.options import AsJson, IndexPath, Model


def dump(
    index: IndexPath,
    to: Annotated[str, typer.Option(metavar="TARGET", help="A file, a folder, or the URL of a Qdrant server.")],
    form: Annotated[
        str | None,
        typer.Option(
            "--format",
            metavar="FORMAT",
            help="parquet, arrow, numpy, sparse-jsonl, qdrant, lancedb, beir, trec or tsv; by default by the ending of "
            "TARGET.",
            show_default=False,
        ),
    ] = None,
    filter: Annotated[
        str | None, typer.Option(metavar="FILTER", help="Only documents that it accepts.", show_default=False)
    ] = None,
    vectors: Annotated[bool, typer.Option(help="Write the vectors, too.")] = True,
    collection: Annotated[
        str | None, typer.Option(metavar="NAME", help="The new collection or table; by default the name of INDEX.")
    ] = None,
    model: Model = None,
    api_key_env: Annotated[
        str | None, typer.Option(metavar="NAME", help="The environment variable with the key of the server.")
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Replace a file, or a folder that an earlier dump wrote.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Write documents and vectors in a format of other programs.

    Tables have a row for each passage: id, span, title, text, metadata as JSON, and a column for each kind of vector.
    Compressed vectors are decoded. plait import reads parquet, arrow, numpy, qdrant and lancedb back without loss;
    beir, trec and tsv have texts alone. --model names the tokens of sparse-jsonl if INDEX does not know its model. A
    copy of an index for plait itself is plait backup; plait export is for models.

    \b
    Examples:
      plait dump my-index --to passages.parquet
      plait dump my-index --to recent.arrow --filter 'year >= 2020' --no-vectors
      plait dump my-index --to http://127.0.0.1:6333 --collection docs
      plait dump my-index --to lance-folder --format lancedb
      plait dump my-index --to vectors.jsonl --format sparse-jsonl
    """
    import plait
    from plait.cli.progress import progress
    from plait.transfer import export_index

    with (
        plait.open(index, model=model, read_only=True) as opened,
        progress("writing", "passages", total=None, estimated=True) as update,
    ):

        def on_progress(done: int, total: int | None) -> None:
            update(done, done, None if total is None else max(0, total - done))

        done = export_index(
            opened,
            to,
            form=form,
            filter=filter,
            vectors=vectors,
            collection=collection,
            api_key_env=api_key_env,
            force=force,
            on_progress=on_progress,
        )
    if as_json:
        print(json.dumps(dataclasses.asdict(done)))
        return
    print(f"{done.to}: {done.n_rows:,} {done.what} as {done.form}, {done.seconds:.1f} s")

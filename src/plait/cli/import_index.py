"""`plait import`."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from plait.cli.compact import Bits
from plait.cli.errors import StoppedError
from plait.cli.options import AsJson, Language, Threads

if TYPE_CHECKING:
    from plait.transfer import ImportReport


def import_index(
    source: Annotated[
        str, typer.Argument(metavar="SOURCE", help="A file, a folder, or the URL of a server.", show_default=False)
    ],
    to: Annotated[Path, typer.Option(metavar="INDEX", help="The folder of the new index.")],
    form: Annotated[
        str | None,
        typer.Option("--from", metavar="FORMAT", help="The format of SOURCE; detected by default.", show_default=False),
    ] = None,
    texts: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Documents for a SOURCE without texts: by id, or in the order of SOURCE if it has no ids.",
            show_default=False,
        ),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            metavar="NAME|FOLDER",
            help="The plait model that made the vectors; it is compared with them.",
            show_default=False,
        ),
    ] = None,
    collection: Annotated[
        str | None, typer.Option(metavar="NAME", help="The collection or table, if SOURCE has several.")
    ] = None,
    id_field: Annotated[str | None, typer.Option(metavar="NAME", help="The field of the id.")] = None,
    text_field: Annotated[str | None, typer.Option(metavar="NAME", help="The field of the text.")] = None,
    title_field: Annotated[str | None, typer.Option(metavar="NAME", help="The field of the title.")] = None,
    vector_field: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="A field of vectors, at most one of each kind; may be repeated."),
    ] = None,
    vocabulary: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="For sparse vectors by token: tokenizer.json, or a token in each line."),
    ] = None,
    compress: Annotated[
        bool | None,
        typer.Option(
            "--compress/--no-compress",
            help="Code the multi vectors; by default if SOURCE did, with its bits and centroids.",
            show_default=False,
        ),
    ] = None,
    bits: Annotated[
        Bits | None, typer.Option(help="Bits for each dimension of multi vectors; by default those of SOURCE.")
    ] = None,
    keep_8bit: Annotated[
        bool | None,
        typer.Option(
            "--keep-8bit/--no-keep-8bit",
            help="Store 8-bit codes as well, for the last stage of a search; by default if SOURCE has codes.",
            show_default=False,
        ),
    ] = None,
    api_key_env: Annotated[
        str | None, typer.Option(metavar="NAME", help="The environment variable with the key of the server.")
    ] = None,
    language: Language = None,
    threads: Threads = None,
    as_json: AsJson = False,
) -> None:
    """Make an index from one of another library.

    Reads PLAID (.pt), fast-plaid, PyLate, RAGatouille, WARP, faiss, LanceDB, Qdrant (a server or a local folder),
    Chroma, Parquet and Arrow with vectors, learned-sparse JSON lines and folders of plait dump. Vectors, texts and
    metadata come along; no model is needed. Nothing of SOURCE is run: pickles are read by a reader of their own. INDEX
    appears only if all of SOURCE was read. plait index makes an index from texts.

    \b
    Examples:
      plait import .ragatouille/colbert/indexes/wiki --to wiki
      plait import pylate-index/index --to papers --texts corpus.jsonl
      plait import vectors.parquet --to my-index --vector-field embedding
      plait import http://127.0.0.1:6333 --to my-index --collection docs
      plait import chroma-folder --to my-index --collection docs
    """
    from plait.cli.progress import progress
    from plait.transfer import ImportOptions
    from plait.transfer import import_index as run_import

    options = ImportOptions(
        collection=collection,
        id_field=id_field,
        text_field=text_field,
        title_field=title_field,
        vector_fields=tuple(vector_field or ()),
        vocabulary=vocabulary,
        api_key_env=api_key_env,
    )
    with progress("importing", "passages", total=None, estimated=True) as update:

        def on_progress(done: int, total: int | None) -> None:
            update(done, done, None if total is None else max(0, total - done))

        try:
            report = run_import(
                source,
                to,
                form=form,
                options=options,
                texts=texts,
                model=model,
                compress=compress,
                bits=None if bits is None else int(bits),
                keep_8bit=keep_8bit,
                language=language,
                n_threads=threads,
                on_progress=on_progress,
            )
        except KeyboardInterrupt:
            raise StoppedError(f"stopped; {to} was not made") from None
    if as_json:
        print(json.dumps(dataclasses.asdict(report), default=str))
    else:
        _print_report(report)


def _print_report(report: ImportReport) -> None:
    passages = f", {report.n_passages:,} passages" if report.n_passages != report.n_documents else ""
    print(f"{report.path}: {report.n_documents:,} documents{passages} from {report.form}, {report.seconds:.1f} s")
    if report.model:
        print(f"  model: {report.model}")
    if report.model_cosine is not None:
        print(f"  the model's vectors of the texts and the stored ones: mean cosine {report.model_cosine:.4f}")
    if report.bits is not None:
        codes = f"{report.bits} bits, and of 8 bits for the last stage" if report.has_8bit else f"{report.bits} bits"
        print(f"  codes of {codes}: mean cosine {report.mean_cosine:.5f} with the vectors of the source")
        if report.top10_agreement is not None:
            print(f"  of the best 10 by the vectors of the source, the codes keep {report.top10_agreement:.1%}")
    for note in report.notes:
        print(f"  {note}")

"""`plait index`."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from plait.cli.errors import StoppedError, say
from plait.cli.options import Language, Model, PoolFactor, PoolFixed, PoolMethod, Threads, Wait, pooling_from
from plait.errors import ConfigError, SourceError

if TYPE_CHECKING:
    from plait.ingest import AddProgress, AddReport
    from plait.records import Document


class OnError(StrEnum):
    stop = "stop"
    skip = "skip"


def index(
    sources: Annotated[
        list[str], typer.Argument(metavar="SOURCE", help="Files and folders; - reads JSON lines from standard input.")
    ],
    to: Annotated[Path, typer.Option(metavar="INDEX", help="The index folder; created if it does not exist.")],
    model: Model = None,
    threads: Threads = None,
    pool_fixed: PoolFixed = None,
    pool_factor: PoolFactor = None,
    pool_method: PoolMethod = None,
    language: Language = None,
    on_error: Annotated[OnError, typer.Option(help="Stop at a record that cannot be read, or skip it.")] = OnError.stop,
    commit_every: Annotated[int, typer.Option(min=1, help="Documents in one commit.")] = 2000,
    resume: Annotated[bool, typer.Option("--resume", help="Continue an interrupted run.")] = False,
    field: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Create an index of this metadata field, for fast filters; may be repeated."),
    ] = None,
    merge: Annotated[bool, typer.Option(help="Merge small segments after commits.")] = True,
    wait: Wait = 30.0,
) -> None:
    """Create an index, or add documents to one.

    A document with an id that exists is replaced. Reads JSON lines (.jsonl, .ndjson: id or _id, text, optionally
    title; other fields are metadata), tab-separated id and text (.tsv), both also with .gz; plain text (.txt) and
    Markdown (.md), one document for each file; BEIR folders; and folders of all these.

    \b
    Examples:
      plait index corpus.jsonl --to my-index
      plait index notes/ papers/ --to my-index --on-error skip
      zcat dump.gz | plait index - --to my-index
      plait index corpus.jsonl --to small-index --pool-fixed 32
      plait index notizen/ --to notizen-index --language de
      plait index corpus.jsonl --to my-index --resume
    """
    import plait
    from plait.cli.progress import progress
    from plait.readers import SourceReport, documents_from
    from plait.readers.sources import total_bytes

    if resume and not to.exists():
        raise ConfigError(f"there is nothing to resume: {to} does not exist; leave out --resume to create it")
    read = SourceReport()
    documents = _not_empty(documents_from(sources, on_error=on_error.value, report=read), sources)
    n_committed = 0
    pooling = pooling_from(pool_fixed, pool_factor, pool_method)
    with (
        plait.open(
            to,
            create=not resume,
            model=model,
            language=language,
            pooling=pooling,
            n_threads=threads,
            write_timeout=wait,
        ) as opened,
        progress("indexing", "documents", total=total_bytes(sources)) as update,
    ):

        def on_progress(done: AddProgress) -> None:
            nonlocal n_committed
            n_committed = done.committed
            # A batch is read before it is encoded: only the encoded part of the bytes read counts as progress.
            update(read.bytes_read * done.documents // max(1, read.documents), done.documents)

        try:
            added = opened.add(documents, commit_every=commit_every, merge=merge, on_progress=on_progress)
        except KeyboardInterrupt:
            raise StoppedError(_how_to_resume(n_committed, to)) from None
        except SourceError as error:
            raise SourceError(
                f"{error}\n{n_committed:,} documents before it are in {to}; correct the record, or skip such "
                f"records with --on-error skip"
            ) from None
        for name in field or []:
            opened.create_field_index(name)
    if resume:
        say(f"{added.unchanged:,} documents were in the index and were not encoded again")
    _print_report(added, to)
    for note in read.notes():
        say(note)


def _not_empty(documents: Iterator[Document], sources: list[str]) -> Iterator[Document]:
    """The documents; SourceError if there are none, so that no empty index is created."""
    first = next(documents, None)
    if first is None:
        raise SourceError(f"there is nothing to index in {', '.join(sources)}")
    return itertools.chain([first], documents)


def _how_to_resume(n_committed: int, to: Path) -> str:
    return (
        f"stopped; {n_committed:,} documents are saved in {to}. Run the same command with --resume to continue; "
        f"unchanged documents are not encoded again"
    )


def _print_report(added: AddReport, to: Path) -> None:
    n_documents = added.added + added.updated + added.unchanged
    rate = f", {n_documents / added.seconds:,.0f} documents/s" if added.seconds > 0 else ""
    print(
        f"{to}: {added.added:,} documents added, {added.updated:,} updated, {added.unchanged:,} unchanged; "
        f"{added.passages:,} passages in {added.seconds:.1f} s{rate}"
    )
    if added.repeated:
        examples = ", ".join(added.repeated[:3]) + (", ..." if len(added.repeated) > 3 else "")
        say(f"{len(added.repeated):,} ids came more than once, and the last document of each was used: {examples}")
    if added.truncated:
        say(f"{added.truncated:,} passages were longer than the model accepts, and were truncated")

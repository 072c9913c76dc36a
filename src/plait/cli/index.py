"""`plait index`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from plait.cli.errors import NOTHING_FOUND, StoppedError, say
from plait.cli.file_options import (
    DEFAULT_MAX_BYTES,
    Exclude,
    FollowLinks,
    Hidden,
    IdField,
    Include,
    MaxBytes,
    NoIgnore,
    TextField,
    TitleField,
    read_options,
)
from plait.cli.options import (
    ChunkEnd,
    ChunkLate,
    ChunkOverlap,
    ChunkSize,
    Dims,
    Language,
    Model,
    PoolFactor,
    PoolFixed,
    PoolMethod,
    Threads,
    Wait,
    chunking_from,
    pooling_from,
    projection_from,
)
from plait.errors import ConfigError, SourceError

if TYPE_CHECKING:
    from plait.folder_sync import FileProgress
    from plait.ingest import AddProgress, AddReport
    from plait.readers import SourceReport
    from plait.records import Document


class OnError(StrEnum):
    stop = "stop"
    skip = "skip"


def index(
    sources: Annotated[
        list[str],
        typer.Argument(
            metavar="SOURCE", help="Files and folders; - reads JSON lines from standard input. Or irds:NAME."
        ),
    ],
    to: Annotated[Path, typer.Option(metavar="INDEX", help="The index folder; created if it does not exist.")],
    model: Model = None,
    threads: Threads = None,
    chunk_size: ChunkSize = None,
    chunk_overlap: ChunkOverlap = None,
    chunk_by: ChunkEnd = None,
    chunk_late: ChunkLate = False,
    pool_fixed: PoolFixed = None,
    pool_factor: PoolFactor = None,
    pool_method: PoolMethod = None,
    dims: Dims = None,
    language: Language = None,
    text_field: TextField = None,
    id_field: IdField = None,
    title_field: TitleField = None,
    include: Include = None,
    exclude: Exclude = None,
    hidden: Hidden = False,
    no_ignore: NoIgnore = False,
    follow_links: FollowLinks = False,
    max_bytes: MaxBytes = DEFAULT_MAX_BYTES,
    on_error: Annotated[
        OnError, typer.Option(help="Skip a file or record that cannot be read, or stop at it.")
    ] = OnError.skip,
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

    A document with an id that exists is replaced. Reads text, Markdown, reStructuredText, HTML, source code, notebooks,
    e-mail, DOCX, EPUB, CSV, JSON and JSON lines, also with .gz; and with plait[files] PDF, Parquet and Arrow. The id
    of a file is its path below the folder. JSON lines (id or _id, text, optionally title; other fields are metadata),
    BEIR folders and tables with a column text have a document for each record.

    What cannot be read is named at the end, and the exit code is 1. To follow changes of a folder, use plait sync.

    \b
    Examples:
      plait index corpus.jsonl --to my-index
      plait index notes/ papers/ --to my-index --exclude drafts/
      plait index products.csv --to my-index --id-field sku --text-field about
      zcat dump.gz | plait index - --to my-index
      plait index corpus.jsonl --to small-index --pool-fixed 32
      plait index corpus.jsonl --to narrow-index --model gte-states --dims 128
      plait index notizen/ --to notizen-index --language de
      plait index irds:beir/scifact --to my-index
      plait index corpus.jsonl --to my-index --resume
    """
    import plait
    from plait.cli.progress import progress
    from plait.readers import SourceReport, Sources

    if resume and not to.exists():
        raise ConfigError(f"there is nothing to resume: {to} does not exist; leave out --resume to create it")
    options = read_options(
        text_field=text_field,
        id_field=id_field,
        title_field=title_field,
        include=include,
        exclude=exclude,
        hidden=hidden,
        no_ignore=no_ignore,
        follow_links=follow_links,
        max_bytes=max_bytes,
    )
    read = SourceReport()
    corpus = _corpus_of(sources, read)
    has_end = corpus is None and not Sources(sources, options).has_stdin
    n_committed = 0
    pooling = pooling_from(pool_fixed, pool_factor, pool_method)
    with (
        no_empty_index(to),
        plait.open(
            to,
            create=not resume,
            model=model,
            language=language,
            pooling=pooling,
            projection=projection_from(dims) or None,
            chunking=chunking_from(chunk_size, chunk_overlap, chunk_by, chunk_late),
            n_threads=threads,
            write_timeout=wait,
        ) as opened,
        progress("indexing", "documents", total=None, estimated=has_end) as update,
    ):

        def on_progress(done: FileProgress) -> None:
            nonlocal n_committed
            n_committed = done.committed
            update(done.work_done, done.documents, done.work_left)

        def on_document(done: AddProgress) -> None:
            nonlocal n_committed
            n_committed = done.committed
            update(done.documents, done.documents)

        try:
            if corpus is not None:
                added = opened.add(corpus, commit_every=commit_every, merge=merge, on_progress=on_document)
            else:
                added = opened.add_files(
                    sources,
                    options=options,
                    on_error=on_error.value,
                    report=read,
                    commit_every=commit_every,
                    merge=merge,
                    on_progress=on_progress,
                )
        except KeyboardInterrupt:
            raise StoppedError(_how_to_resume(n_committed, to)) from None
        except SourceError as error:
            raise SourceError(f"{error}{_what_was_saved(n_committed, to, on_error)}") from None
        for name in field or []:
            opened.create_field_index(name)
    if resume:
        say(f"{added.unchanged:,} documents were in the index and were not encoded again")
    _print_report(added, to)
    end_with_notes(read)


@contextmanager
def no_empty_index(path: Path) -> Iterator[None]:
    """Removes an index that the block has created if the block fails before a document was added."""
    from plait.storage.discard import discard_if_empty, is_absent

    was_absent = is_absent(path)
    try:
        yield
    except BaseException:
        if was_absent:
            discard_if_empty(path)
        raise


def _corpus_of(sources: list[str], read: SourceReport) -> Iterator[Document] | None:
    """The documents of an ir_datasets id; None if the sources are files."""
    if not any(source.startswith("irds:") for source in sources):
        return None
    if len(sources) > 1:
        raise ConfigError(f"index irds:NAME in a run of its own; got {len(sources)} sources")
    from plait.evaluate.datasets import irds_documents  # files do not need it

    return irds_documents(sources[0], read)


def end_with_notes(read: SourceReport) -> None:
    """Names what was not read; the exit code is 1 if that includes errors."""
    for note in read.notes():
        say(note)
    if read.n_errors:
        raise typer.Exit(NOTHING_FOUND)


def _what_was_saved(n_committed: int, to: Path, on_error: OnError) -> str:
    if on_error == OnError.skip:
        return ""
    saved = f"{n_committed:,} documents before it are in {to}; " if n_committed else ""
    return f"\n{saved}correct the record, or skip such records with --on-error skip"


def _how_to_resume(n_committed: int, to: Path) -> str:
    if not n_committed:
        return "stopped; nothing was saved"
    return (
        f"stopped; {n_committed:,} documents are saved in {to}. Run the same command with --resume to continue; "
        f"unchanged documents are not encoded again"
    )


def _print_report(added: AddReport, to: Path) -> None:
    n_documents = added.added + added.updated + added.unchanged
    rate = n_documents / added.seconds if added.seconds > 0 else 0.0
    speed = f", {rate:,.{0 if rate >= 9.5 else 1}f} documents/s" if rate else ""
    print(
        f"{to}: {added.added:,} documents added, {added.updated:,} updated, {added.unchanged:,} unchanged; "
        f"{added.passages:,} passages in {added.seconds:.1f} s{speed}"
    )
    if added.repeated:
        examples = ", ".join(added.repeated[:3]) + (", ..." if len(added.repeated) > 3 else "")
        say(f"{len(added.repeated):,} ids came more than once, and the last document of each was used: {examples}")
    if added.truncated:
        say(f"{added.truncated:,} passages were longer than the model accepts, and were truncated")

"""`plait sync`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from plait.cli.errors import say
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
from plait.cli.index import end_with_notes, no_empty_index
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
from plait.errors import ConfigError, LockedError, SourceError

if TYPE_CHECKING:
    from plait.folder_sync import FileProgress, SyncReport
    from plait.index import Index
    from plait.readers import ReadOptions

MAX_LISTED = 1000  # files of a dry run


def sync(
    folders: Annotated[list[Path], typer.Argument(metavar="FOLDER", help="Folders and files.", show_default=False)],
    to: Annotated[Path, typer.Option(metavar="INDEX", help="The index folder; created if it does not exist.")],
    watch: Annotated[bool, typer.Option("--watch", help="Go on: follow changes until Ctrl-C.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be done, and do nothing.")] = False,
    name: Annotated[
        str | None, typer.Option(metavar="NAME", help="The name of the folder in the index, if it was moved.")
    ] = None,
    allow_empty: Annotated[
        bool, typer.Option("--allow-empty", help="Remove all documents of a folder that has no files.")
    ] = False,
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
    wait: Wait = 30.0,
) -> None:
    """Make an index equal to folders: add, change and remove.

    Only files that changed are read, and a file that was renamed is not encoded again. Documents that did not come from
    these folders are not touched. Formats are those of plait index. What cannot be read is named at the end, and the
    exit code is 1.

    \b
    Examples:
      plait sync notes/ --to my-index
      plait sync notes/ papers/ --to my-index --watch
      plait sync code/ --to my-index --include '*.py' --exclude tests/ --dry-run
    """
    import plait

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
    if watch and dry_run:
        raise ConfigError("--watch and --dry-run exclude each other; give one of them")
    if dry_run and not to.exists():
        raise ConfigError(
            f"--dry-run compares with an index, and {to} does not exist; leave it out to create the index"
        )
    with (
        no_empty_index(to),
        plait.open(
            to,
            create=not dry_run,
            model=model,
            language=language,
            pooling=pooling_from(pool_fixed, pool_factor, pool_method),
            projection=projection_from(dims) or None,
            chunking=chunking_from(chunk_size, chunk_overlap, chunk_by, chunk_late),
            n_threads=threads,
            write_timeout=wait,
            read_only=dry_run,
        ) as opened,
    ):
        if dry_run:
            report = opened.sync(folders, options=options, name=name, allow_empty=allow_empty, dry_run=True)
            _print_plan(report)
        else:
            report = _sync_once(opened, folders, options, name=name, allow_empty=allow_empty)
            if not report.unchanged and not len(opened):
                raise SourceError(
                    "\n".join([f"there is nothing to index in {_shown(folders)}", *report.sources.notes()])
                )
            _print_report(report, to)
        if watch:
            for note in report.sources.notes():
                say(note)
            _watch(opened, folders, options, allow_empty=allow_empty)
            return
    end_with_notes(report.sources)


def _shown(folders: list[Path]) -> str:
    return ", ".join(map(str, folders))


def _sync_once(
    opened: Index, folders: list[Path], options: ReadOptions, *, name: str | None = None, allow_empty: bool
) -> SyncReport:
    from plait.cli.progress import progress

    with progress("syncing", "documents", total=None, estimated=True) as update:

        def on_progress(done: FileProgress) -> None:
            update(done.work_done, done.documents, done.work_left)

        return opened.sync(folders, options=options, name=name, allow_empty=allow_empty, on_progress=on_progress)


def _watch(opened: Index, folders: list[Path], options: ReadOptions, *, allow_empty: bool) -> None:
    """Syncs after each burst of changes, until Ctrl-C. A sync that fails is named, and the next one tries again."""
    from plait.folder_sync.watch import watch_folders

    say(f"watching {_shown(folders)}; Ctrl-C ends")
    try:
        for _ in watch_folders(folders, ignore=opened.path):
            try:
                report = _sync_once(opened, folders, options, allow_empty=allow_empty)
            except (SourceError, LockedError) as error:
                say(f"plait: {error}")
                continue
            if not report.is_empty:
                _print_report(report, opened.path)
                for note in report.sources.notes():
                    say(note)
    except KeyboardInterrupt:
        say("stopped watching")


def _print_report(report: SyncReport, to: Path) -> None:
    print(f"{to}: {_counts(report)}; {report.passages:,} passages encoded in {report.seconds:.1f} s", flush=True)


def _counts(report: SyncReport) -> str:
    return (
        f"{len(report.added):,} files added, {len(report.changed):,} changed, {len(report.moved):,} moved, "
        f"{len(report.removed):,} removed, {report.unchanged:,} unchanged"
    )


def _print_plan(report: SyncReport) -> None:
    lines = [f"add     {path}" for path in report.added]
    lines += [f"change  {path}" for path in report.changed]
    lines += [f"move    {before} -> {after}" for before, after in report.moved]
    lines += [f"remove  {path}" for path in report.removed]
    for line in lines[:MAX_LISTED]:
        print(line)
    if len(lines) > MAX_LISTED:
        print(f"and {len(lines) - MAX_LISTED:,} more")
    print(f"would be: {_counts(report)}")

"""Adds the documents of files and folders, as `plait index` does: nothing is removed."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from plait.encode.chunking import Chunker
from plait.encode.protocol import Encoder
from plait.errors import SourceError
from plait.folder_sync.run import FileProgress, file_progress, known_roots
from plait.ingest import AddProgress, AddReport, add_documents, is_other_file
from plait.readers.given import ReadOptions
from plait.readers.sources import SourceReport, Sources, read_sources
from plait.readers.work import WorkLeft
from plait.records import Document, FileOrigin
from plait.storage.origins import StoredRoot
from plait.storage.writer import Writer


def add_files(
    writer: Writer,
    get_encoder: Callable[[], Encoder],
    paths: str | Path | Sequence[str | Path],
    *,
    options: ReadOptions | None = None,
    on_error: str = "skip",
    report: SourceReport | None = None,
    commit_every: int = 2000,
    chunker: Chunker | None = None,
    merge: bool = True,
    on_progress: Callable[[FileProgress], None] | None = None,
) -> AddReport:
    """Adds or replaces the documents of files. A document of another file that still exists is not replaced: that is a
    conflict, which the report counts as an error."""
    report = SourceReport() if report is None else report
    stored = writer.read_roots()
    sources = Sources([paths] if isinstance(paths, str | Path) else list(paths), options, known=known_roots(stored))
    files = list(sources.files(report))
    work = WorkLeft(files)
    documents = read_sources(sources, on_error=on_error, report=report, with_origin=True, files=files, work=work)
    first = next(documents, None)
    if first is None:
        raise nothing_to_index(sources, report)
    before = {root.name: root for root in stored}
    writer.save_roots(
        [
            StoredRoot(root.name, root.path, root.prefix, before[root.name].unread if root.name in before else {})
            for root in sources.roots
        ]
    )
    paths_of = {root.name: root.path for root in sources.roots}

    def is_other(stored: FileOrigin | None, new: FileOrigin) -> bool:
        """A file that is gone was renamed, or its documents are stale."""
        if stored is None or not is_other_file(stored, new):
            return False
        return stored.root in paths_of and os.path.lexists(f"{paths_of[stored.root]}/{stored.path}")

    def report_progress(progress: AddProgress) -> None:
        if on_progress is not None:
            on_progress(file_progress(progress, None if sources.has_stdin else work))

    added = add_documents(
        writer,
        get_encoder(),
        _chained(first, documents),
        commit_every=commit_every,
        chunker=chunker,
        merge=merge,
        on_progress=report_progress,
        is_other_file=is_other,
    )
    for conflict in added.conflicts:
        report.add_error(conflict)
    return added


def nothing_to_index(sources: Sources, report: SourceReport) -> SourceError:
    """The error for sources without a document, with the reasons."""
    given = ", ".join([start.given for start in sources.starts] + ["standard input"] * sources.has_stdin)
    notes = "".join(f"\n{note}" for note in report.notes())
    return SourceError(f"there is nothing to index in {given}{notes}")


def _chained(first: Document, rest: Iterator[Document]) -> Iterator[Document]:
    yield first
    yield from rest

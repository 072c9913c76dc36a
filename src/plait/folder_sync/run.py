"""Runs a plan: moves first, then new and changed files, then deletions. Each step is a commit, and a sync that stops
between two is continued by the next one."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from plait.encode.chunking import Chunker
from plait.encode.protocol import Encoder
from plait.errors import SourceError, StoreError
from plait.folder_sync.plan import FileKey, Move, SyncPlan, key_of, make_plan, unread_by_root
from plait.ingest import AddProgress, AddReport, add_documents, merge_after
from plait.readers.given import ReadOptions, UnreadableError
from plait.readers.roots import Root
from plait.readers.sources import SourceReport, Sources, content_hash, read_file
from plait.readers.walk import STDIN, SourceFile
from plait.readers.work import WorkLeft
from plait.records import Document, FileOrigin
from plait.storage.origins import Rows, StoredRoot, UnreadFile
from plait.storage.writer import Writer

MOVES_AT_ONCE = 500  # files in one commit


@dataclass(frozen=True, slots=True)
class FileProgress:
    """How far a load of files or a sync has come. Work is counted in characters to encode."""

    documents: int  # read, and encoded or unchanged
    committed: int  # of those, the durable ones
    work_done: float
    work_left: float | None  # expected of the files that were not read yet; None if the source has no known end


@dataclass(slots=True)
class SyncReport:
    """What a sync did, or with `dry_run` would do. Files are named by their path below the root, with the name of the
    root before it if there are several."""

    added: list[str] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)
    moved: list[tuple[str, str]] = field(default_factory=list)  # from, to
    removed: list[str] = field(default_factory=list)
    unchanged: int = 0
    touched: int = 0  # of the unchanged: with another time
    unread: int = 0  # files that have no document: empty, binary or damaged
    errors: list[str] = field(default_factory=list)  # files that cannot be read, with the reason
    n_errors: int = 0
    passages: int = 0  # encoded
    documents: AddReport = field(default_factory=AddReport)
    sources: SourceReport = field(default_factory=SourceReport)
    seconds: float = 0.0
    dry_run: bool = False

    @property
    def is_empty(self) -> bool:
        """Whether the index was equal to the folders already."""
        return not (self.added or self.changed or self.moved or self.removed or self.touched)

    def __repr__(self) -> str:
        counts = (
            f"{len(self.added)} added, {len(self.changed)} changed, {len(self.moved)} moved, "
            f"{len(self.removed)} removed, {self.unchanged} unchanged"
        )
        errors = f"; {self.n_errors} errors" if self.n_errors else ""
        return f"SyncReport({'would be ' if self.dry_run else ''}{counts}{errors}; {self.seconds:.1f} s)"


def file_progress(progress: AddProgress, work: WorkLeft | None) -> FileProgress:
    left = None if work is None else work.left(progress.characters)
    return FileProgress(progress.documents, progress.committed, float(progress.characters), left)


def known_roots(stored: Sequence[StoredRoot]) -> list[Root]:
    return [Root(root.name, root.path, root.prefix) for root in stored]


def folder_sources(
    folders: str | Path | Sequence[str | Path],
    options: ReadOptions | None,
    stored: Sequence[StoredRoot],
    name: str | None,
) -> Sources:
    """The sources of a sync; SourceError for standard input, which has no files."""
    paths = [folders] if isinstance(folders, str | Path) else list(folders)
    if any(str(path) == STDIN for path in paths):
        raise SourceError("standard input cannot be synced; name files and folders")
    return Sources(paths, options, known=known_roots(stored), name=name)


def plan_only(
    rows: Rows,
    stored: Sequence[StoredRoot],
    folders: str | Path | Sequence[str | Path],
    options: ReadOptions | None,
    name: str | None,
) -> SyncReport:
    """What a sync would do; nothing is written."""
    start = time.perf_counter()
    report = SyncReport(dry_run=True)
    sources = folder_sources(folders, options, stored, name)
    plan = make_plan(rows, sources, stored, report.sources)
    _describe(report, plan, sources)
    report.seconds = time.perf_counter() - start
    return report


def sync_folders(
    writer: Writer,
    get_encoder: Callable[[], Encoder],
    folders: str | Path | Sequence[str | Path],
    *,
    options: ReadOptions | None = None,
    name: str | None = None,
    allow_empty: bool = False,
    commit_every: int = 2000,
    chunker: Chunker | None = None,
    merge: bool = True,
    on_progress: Callable[[FileProgress], None] | None = None,
) -> SyncReport:
    """Makes the documents of the folders equal to their files. The encoder is loaded only if a text must be encoded."""
    start = time.perf_counter()
    report = SyncReport()
    stored = writer.read_roots()
    sources = folder_sources(folders, options, stored, name)
    plan = make_plan(writer.connection.execute, sources, stored, report.sources)
    _check_not_emptied(plan, sources, allow_empty=allow_empty)
    _describe(report, plan, sources)
    writer.save_roots(list(unread_by_root(stored, sources.roots, plan, {})))
    run = _Run(writer, sources, plan, report)
    run.rewrite([*plan.touched, *plan.moved])
    run.add(get_encoder, chunker, commit_every, merge, on_progress)
    run.delete(merge=merge)
    writer.save_roots(list(unread_by_root(stored, sources.roots, plan, run.unread)))
    unread = {file.id for file in plan.to_read if key_of(file) in run.without_documents}
    report.added = [id for id in report.added if id not in unread]
    report.changed = [id for id in report.changed if id not in unread]
    report.seconds = time.perf_counter() - start
    return report


def _check_not_emptied(plan: SyncPlan, sources: Sources, *, allow_empty: bool) -> None:
    """An empty folder is most often a disk that is not mounted."""
    if plan.removed and not plan.n_files and not allow_empty:
        raise SourceError(
            f"{', '.join(start.given for start in sources.starts)} has no files, and the index has documents of "
            f"{len(plan.removed):,} files from there; if they are to be removed, give --allow-empty (allow_empty=True)"
        )


def _describe(report: SyncReport, plan: SyncPlan, sources: Sources) -> None:
    by_name = {root.name: root for root in sources.roots}

    def shown(key: FileKey) -> str:
        return by_name[key[0]].id_of(key[1])

    report.added = [file.id for file in plan.added]
    report.changed = [file.id for file in plan.changed]
    report.moved = [(shown(move.key), move.file.id) for move in plan.moved]
    report.removed = [shown(key) for key in plan.removed]
    report.touched = len(plan.touched)
    report.unchanged = plan.n_unchanged + len(plan.touched)
    report.unread = len(plan.unread)
    for key, unread in plan.unread.items():
        if unread.is_error:
            report.sources.add_error(unread.reason, plan.unread_names[key])
        else:
            report.sources.skipped[unread.reason] += 1
    report.n_errors, report.errors = report.sources.n_errors, report.sources.first_errors


class _Run:
    """One run of a plan."""

    def __init__(self, writer: Writer, sources: Sources, plan: SyncPlan, report: SyncReport) -> None:
        self._writer, self._sources, self._plan, self._report = writer, sources, plan, report
        self._written: set[str] = set()  # ids of this run
        self._failed: set[FileKey] = set()  # changed files without a readable version: their documents stay
        self.unread: dict[FileKey, UnreadFile] = {}  # to be remembered
        self.without_documents: set[FileKey] = set()
        self.work = WorkLeft(plan.to_read)

    def rewrite(self, moves: Sequence[Move]) -> None:
        """Gives the documents of moved and touched files their new ids and metadata, without encoding them."""
        for first in range(0, len(moves), MOVES_AT_ONCE):
            self._rewrite(moves[first : first + MOVES_AT_ONCE])

    def _rewrite(self, moves: Sequence[Move]) -> None:
        changes: list[tuple[str, Document]] = []
        for move in moves:
            documents = self._documents_of(move)
            if documents is None or len(documents) != len(move.ids):
                self._read_instead(move)
            else:
                changes += zip(move.ids, documents, strict=True)
        leaving = {id for id, _ in changes}
        taken = self._writer.origins_of([document.id for id, document in changes if document.id not in leaving])
        mine = [id for id, (_, origin) in taken.items() if origin is not None and self._is_replaced(origin)]
        try:
            if mine:  # a file was moved over another
                self._writer.delete(mine)
            if changes:
                self._writer.rewrite_records(changes)
                self._written.update(document.id for _, document in changes)
        except StoreError:
            if len(moves) == 1:
                self._read_instead(moves[0])
                return
            for move in moves:
                self._rewrite([move])

    def _is_replaced(self, origin: FileOrigin) -> bool:
        """Whether the content of a file of the index is not at its path any more."""
        key = (origin.root, origin.path)
        return key in self._plan.removed or any(key == key_of(move.file) for move in self._plan.moved)

    def _documents_of(self, move: Move) -> list[Document] | None:
        results = list(self._results(move.file, move.digest))
        documents = [result for result in results if isinstance(result, Document)]
        return documents if len(documents) == len(results) else None

    def _read_instead(self, move: Move) -> None:
        """Reads the file as a new one: another version of the reader gives other documents."""
        self._plan.changed.append(move.file)
        self.work.add(move.file)
        if move.key != key_of(move.file):
            self._plan.removed[move.key] = self._plan.before[move.key]

    def _results(self, file: SourceFile, digest: str) -> Iterator[Document | SourceError]:
        assert file.root is not None
        origin = FileOrigin(file.root.name, file.relative, file.size, file.mtime_ns, digest)
        return read_file(file, self._sources.options, self._report.sources, origin)

    def add(
        self,
        get_encoder: Callable[[], Encoder],
        chunker: Chunker | None,
        commit_every: int,
        merge: bool,
        on_progress: Callable[[FileProgress], None] | None,
    ) -> None:
        """Reads, encodes and writes the new and changed files."""
        if not self._plan.to_read:
            return

        def report_progress(progress: AddProgress) -> None:
            if on_progress is not None:
                on_progress(file_progress(progress, self.work))

        documents = self._new_documents()
        first = next(documents, None)
        if first is None:
            return
        self._report.documents = add_documents(
            self._writer,
            get_encoder(),
            _chained(first, documents),
            commit_every=commit_every,
            chunker=chunker,
            merge=merge,
            on_progress=report_progress,
            is_other_file=self._is_other_file,
        )
        self._report.passages = self._report.documents.passages
        for conflict in self._report.documents.conflicts:
            self._add_error(conflict)

    def _is_other_file(self, stored: FileOrigin | None, new: FileOrigin) -> bool:
        if stored is None:
            return True
        key = (stored.root, stored.path)
        return key != (new.root, new.path) and key not in self._plan.removed

    def _new_documents(self) -> Iterator[Document]:
        for file in self._plan.to_read:
            yield from self._documents_of_file(file)
            self.work.finish(file)

    def _documents_of_file(self, file: SourceFile) -> Iterator[Document]:
        n_documents, error = 0, None
        skipped_before = self._report.sources.skipped.copy()
        try:
            for result in self._results(file, content_hash(file)):
                if isinstance(result, Document):
                    n_documents += 1
                    self._written.add(result.id)
                    self.work.read(result)
                    yield result
                else:
                    error = result
                    self._add_error(result, file.name)
        except SourceError as problem:  # the file has gone or changed its rights since it was found
            error = problem
            self._add_error(problem, file.name)
        if n_documents:
            return
        self.without_documents.add(key_of(file))
        if error is not None:
            self._failed.add(key_of(file))
        if not isinstance(error, UnreadableError):  # a library may be installed before the next sync
            new = self._report.sources.skipped - skipped_before
            reason = str(error) if error is not None else next(iter(new), "empty")
            self.unread[key_of(file)] = UnreadFile(file.size, file.mtime_ns, reason, error is not None)
        self._report.unread += 1

    def _add_error(self, error: SourceError | str, file: str | None = None) -> None:
        self._report.sources.add_error(error, file)
        self._report.n_errors = self._report.sources.n_errors

    def delete(self, *, merge: bool) -> None:
        """Deletes what the folders do not have any more."""
        stale = [id for state in self._plan.removed.values() for id in state.ids]
        for file in self._plan.changed:
            state = self._plan.before.get(key_of(file))
            if state is not None and key_of(file) not in self._failed:
                stale += state.ids
        stale = [id for id in stale if id not in self._written]
        if stale and self._writer.delete(stale) and merge:
            merge_after("the documents were deleted", self._writer)


def _chained(first: Document, rest: Iterator[Document]) -> Iterator[Document]:
    yield first
    yield from rest

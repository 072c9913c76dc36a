"""Sources to documents: finds the files of files and folders that were given, and reads each."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

from plait.errors import ConfigError, PlaitError, SourceError
from plait.readers.formats import BINARY_SUFFIXES, DAMAGED_ARCHIVE, BinaryFileError, is_streamed, reader_of, suffix_of
from plait.readers.given import Given, ReadOptions
from plait.readers.lines import open_source
from plait.readers.roots import Root, Start, starts_for
from plait.readers.walk import STDIN, SourceFile, Walk
from plait.readers.work import WorkLeft
from plait.records import Document, FileOrigin

ON_ERROR = ("stop", "skip")
MAX_SHOWN_ERRORS = 5  # of one file
MAX_ALL_ERRORS = 200
HASH_BLOCK = 1 << 20


@dataclass(slots=True)
class SourceReport:
    """What was read and what was not. It is filled while documents are read, so it can also show progress."""

    files: int = 0
    documents: int = 0
    bytes_read: int = 0  # as on disk: compressed bytes of a compressed file
    skipped: Counter[str] = field(default_factory=Counter)  # files of folders that were not read, by reason
    n_errors: int = 0
    first_errors: list[str] = field(default_factory=list)
    _last_file: str | None = field(default=None, repr=False)
    _n_shown: int = field(default=0, repr=False)

    def add_error(self, error: PlaitError | str, file: str | None = None) -> None:
        """Counts an error and keeps its message, unless the file has had many."""
        self.n_errors += 1
        if file is None or file != self._last_file:
            self._last_file, self._n_shown = file, 0
        if (file is None or self._n_shown < MAX_SHOWN_ERRORS) and len(self.first_errors) < MAX_ALL_ERRORS:
            self._n_shown += 1
            self.first_errors.append(str(error))

    def notes(self) -> list[str]:
        """Lines for the user about what was not read; empty if everything was."""
        notes = []
        if self.skipped:
            reasons = ", ".join(f"{count:,} {reason}" for reason, count in self.skipped.most_common())
            notes.append(f"skipped {self.skipped.total():,} files: {reasons}")
        if self.n_errors:
            notes.append(f"{self.n_errors:,} files or records could not be read:")
            notes += [f"  {error}" for error in self.first_errors]
            if self.n_errors > len(self.first_errors):
                notes.append(f"  and {self.n_errors - len(self.first_errors):,} more")
        return notes


class Sources:
    """Files and folders that were given; "-" is standard input."""

    def __init__(
        self,
        paths: Sequence[str | Path],
        options: ReadOptions | None = None,
        *,
        known: Sequence[Root] = (),
        name: str | None = None,
    ) -> None:
        """`known` are the roots of the index; `name` is as in `starts_for`."""
        if isinstance(paths, str | Path):
            paths = [paths]
        if not paths:
            raise SourceError("no source was given; name files or folders, or - for JSON lines on standard input")
        self.options = ReadOptions() if options is None else options
        self.unreadable: list[str] = []  # paths that the last walk could not read
        self.has_stdin = any(str(path) == STDIN for path in paths)
        self.starts: list[Start] = starts_for([path for path in paths if str(path) != STDIN], known, name)
        mine = {start.root.name: start.root for start in self.starts}
        self.roots: list[Root] = list({**{root.name: root for root in known}, **mine}.values())

    def files(self, report: SourceReport) -> Iterator[SourceFile]:
        """The files; the report counts those of folders that are left out, and its errors name unreadable folders."""
        if self.has_stdin:
            yield SourceFile(None, "standard input", None, STDIN)
        walk = Walk(self.starts, self.roots, self.options)
        yield from walk.files()
        self.unreadable = walk.unreadable
        report.skipped.update(walk.skipped)
        for problem in walk.problems:
            report.add_error(problem)

    def total_bytes(self) -> int | None:
        """The size of all files, for a progress bar; None with standard input."""
        return None if self.has_stdin else sum(file.size for file in self.files(SourceReport()))


def documents_from(
    paths: Sequence[str | Path],
    *,
    on_error: str = "stop",
    report: SourceReport | None = None,
    options: ReadOptions | None = None,
) -> Iterator[Document]:
    """The documents of files and folders, one at a time; "-" is JSON lines on standard input.

    A file that is one document has its path below the folder that was given as id; see plait.readers.roots. Ids that
    are whole numbers become strings. With on_error="stop" a file or record that cannot be read raises SourceError; with
    "skip" it is counted in `report` and left out.
    """
    sources = Sources(paths, options)
    return read_sources(sources, on_error=on_error, report=SourceReport() if report is None else report)


def read_sources(
    sources: Sources,
    *,
    on_error: str,
    report: SourceReport,
    with_origin: bool = False,
    files: Iterable[SourceFile] | None = None,
    work: WorkLeft | None = None,
) -> Iterator[Document]:
    """The documents of sources. `with_origin` also records the file of each document, for later syncs. `files` are
    those of the sources, if they were found already; `work` is updated while they are read."""
    if on_error not in ON_ERROR:
        raise ConfigError(f"on_error is {on_error!r}; it must be one of {', '.join(ON_ERROR)}")
    return _documents(sources, on_error, report, files, WorkLeft() if work is None else work, with_origin=with_origin)


def _documents(
    sources: Sources,
    on_error: str,
    report: SourceReport,
    files: Iterable[SourceFile] | None,
    work: WorkLeft,
    *,
    with_origin: bool,
) -> Iterator[Document]:
    for file in sources.files(report) if files is None else files:
        for result in (
            _with_origin(file, sources.options, report) if with_origin else read_file(file, sources.options, report)
        ):
            if isinstance(result, Document):
                work.read(result)
                yield result
            elif on_error == "stop":
                raise result
            else:
                report.add_error(result, file.name)
        work.finish(file)


def _with_origin(file: SourceFile, options: ReadOptions, report: SourceReport) -> Iterator[Document | SourceError]:
    try:
        origin = origin_of(file)
    except SourceError as error:
        yield error
    else:
        yield from read_file(file, options, report, origin)


def origin_of(file: SourceFile) -> FileOrigin | None:
    """The origin of the documents of a file, with the digest of its content; None for standard input."""
    if file.path is None or file.root is None:
        return None
    return FileOrigin(file.root.name, file.relative, file.size, file.mtime_ns, content_hash(file))


def content_hash(file: SourceFile) -> str:
    """A digest of the bytes of a file. Files of different formats with the same bytes have different ones."""
    assert file.path is not None
    digest = hashlib.blake2b(suffix_of(file.path).encode(), digest_size=16)
    try:
        with Path(file.path).open("rb") as stream:
            while block := stream.read(HASH_BLOCK):
                digest.update(block)
    except OSError as error:
        raise SourceError(f"cannot read {file.name}: {error.strerror or error}") from None
    return digest.hexdigest()


def read_file(
    file: SourceFile, options: ReadOptions, report: SourceReport, origin: FileOrigin | None = None
) -> Iterator[Document | SourceError]:
    """The documents and errors of a file; an error that ends the file comes last. The report counts what is read, and
    files that are skipped: binary ones, unless they were named, and empty ones."""
    report.files += 1
    n_results, bytes_before = 0, report.bytes_read
    try:
        for result in _results(file, options, report):
            n_results += 1
            if isinstance(result, Document):
                report.documents += 1
                yield _completed(result, file, origin)
            else:
                yield result
    except BinaryFileError as error:
        n_results += 1
        if file.is_named:
            yield error
        else:
            report.skipped[skip_reason(file)] += 1
    except SourceError as error:
        n_results += 1
        yield error
    if file.path is not None:  # readers need not read to the end
        report.bytes_read = max(report.bytes_read, bytes_before + file.size)
    if not n_results:
        report.skipped["empty"] += 1


def skip_reason(file: SourceFile) -> str:
    """Why a binary file is not read: its suffix, or that it is binary although its suffix does not say so."""
    suffix = suffix_of(file.relative)
    return suffix if suffix in BINARY_SUFFIXES else f"binary ({suffix or 'no suffix'})"


def _results(file: SourceFile, options: ReadOptions, report: SourceReport) -> Iterator[Document | SourceError]:
    reader = reader_of(file.path)
    if reader is None:
        raise BinaryFileError(f"{file.name} is a {suffix_of(file.relative)} file, a format that plait does not read")
    if file.size > options.max_bytes and not is_streamed(file.path):
        raise SourceError(
            f"{file.name} has {file.size:,} bytes, more than {options.max_bytes:,}; split it, or raise --max-bytes"
        )
    path = None if file.path is None else Path(file.path)
    try:
        with open_source(path, report) as stream:
            yield from reader(Given(stream, file.name, file.id, options))
    except SourceError:
        raise
    except DAMAGED_ARCHIVE as error:
        raise SourceError(f"{file.name} is damaged or cut short: {error}") from None
    except OSError as error:
        raise SourceError(f"cannot read {file.name}: {error.strerror or error}") from None
    except (MemoryError, RecursionError) as error:
        raise SourceError(
            f"{file.name} is too large or nested too deeply to be read ({type(error).__name__})"
        ) from None
    except PlaitError as error:
        raise SourceError(f"{file.name}: {error}") from None
    except Exception as error:  # a library may raise anything for a damaged file, and one file must not stop a folder
        raise SourceError(f"{file.name} cannot be read: {type(error).__name__}: {error!s:.200}") from error


def _completed(document: Document, file: SourceFile, origin: FileOrigin | None) -> Document:
    """The document with its origin; with path, mtime and size in its metadata if its id comes from the file."""
    metadata = document.metadata
    if document.id.startswith(file.id) and document.id[len(file.id) :][:1] in ("", "#") and file.path is not None:
        metadata = {**metadata, "path": file.path, "mtime": written_time(file.mtime_ns), "size": file.size}
    return replace(document, metadata=metadata, origin=origin)


def written_time(mtime_ns: int) -> str:
    """A time in UTC whose text sorts by time: 2026-11-18T05:25:16Z."""
    try:
        return datetime.fromtimestamp(mtime_ns // 1_000_000_000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (OverflowError, ValueError, OSError):  # a clock that is far off
        return "1970-01-01T00:00:00Z"

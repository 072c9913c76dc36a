"""Sources to documents: finds the files of a source and reads each with the reader of its suffix."""

from __future__ import annotations

import os
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from plait.errors import ConfigError, SourceError
from plait.readers.line_records import read_jsonl, read_tsv
from plait.readers.lines import open_source
from plait.readers.text_files import read_markdown, read_text
from plait.records import Document

# A reader yields the documents of an open file, and a SourceError instead of a document that it cannot read. It is
# given the name of the file for messages, and the id for a document that is a whole file.
Reader = Callable[[BinaryIO, str, str], Iterator[Document | SourceError]]

# A new format is a function in a new file, and its suffixes here.
LINE_READERS: Mapping[str, Reader] = {".jsonl": read_jsonl, ".ndjson": read_jsonl, ".tsv": read_tsv}  # .gz allowed
FILE_READERS: Mapping[str, Reader] = {".txt": read_text, ".md": read_markdown, ".markdown": read_markdown}
READERS = {**LINE_READERS, **FILE_READERS}
SUFFIXES = (*LINE_READERS, *(f"{suffix}.gz" for suffix in LINE_READERS), *FILE_READERS)

STDIN = "-"
ON_ERROR = ("stop", "skip")
MAX_SHOWN_ERRORS = 5
_CORPUS = ("corpus.jsonl", "corpus.jsonl.gz")
_QUERIES = ("queries.jsonl", "queries.jsonl.gz", "qrels")


@dataclass(slots=True)
class SourceReport:
    """What was read and what was not. It is filled while documents are read, so it can also show progress."""

    files: int = 0
    documents: int = 0
    bytes_read: int = 0  # as on disk: compressed bytes of a compressed file
    skipped: Counter[str] = field(default_factory=Counter)  # files of folders that were not read, by reason
    n_errors: int = 0
    first_errors: list[str] = field(default_factory=list)

    def add_error(self, error: SourceError) -> None:
        self.n_errors += 1
        if len(self.first_errors) < MAX_SHOWN_ERRORS:
            self.first_errors.append(str(error))

    def notes(self) -> list[str]:
        """Lines for the user about what was not read; empty if everything was."""
        notes = []
        if self.skipped:
            reasons = ", ".join(f"{count:,} {reason}" for reason, count in self.skipped.most_common())
            notes.append(f"skipped {self.skipped.total():,} files: {reasons}")
        if self.n_errors:
            notes.append(f"skipped {self.n_errors:,} documents with errors:")
            notes += [f"  {error}" for error in self.first_errors]
            if self.n_errors > len(self.first_errors):
                notes.append(f"  and {self.n_errors - len(self.first_errors):,} more")
        return notes


def documents_from(
    paths: Sequence[str | Path], *, on_error: str = "stop", report: SourceReport | None = None
) -> Iterator[Document]:
    """The documents of files and folders, one at a time; "-" is JSON lines on standard input.

    A file that is one document has its path as id: relative to the folder that was given, or as the file was given.
    Ids that are whole numbers become strings. With on_error="stop" an unreadable document raises SourceError; with
    "skip" it is counted in `report` and left out.
    """
    if on_error not in ON_ERROR:
        raise ConfigError(f"on_error is {on_error!r}; it must be one of {', '.join(ON_ERROR)}")
    check_sources(paths)
    return _documents(paths, on_error, SourceReport() if report is None else report)


def check_sources(paths: Sequence[str | Path]) -> None:
    """Raises SourceError for a source that is missing or has an unknown suffix, before anything is read."""
    if not paths:
        raise SourceError("no source was given; name files or folders, or - for JSON lines on standard input")
    for given in paths:
        path = Path(given)
        if str(given) == STDIN or path.is_dir():
            continue
        if not path.exists():
            raise SourceError(f"there is no file or folder {str(given)!r}")
        if suffix_of(path) not in SUFFIXES:
            seen = f"the suffix {suffix_of(path)}" if suffix_of(path) else "no suffix"
            hint = "; if it has one JSON object on each line, rename it to .jsonl" if suffix_of(path) == ".json" else ""
            raise SourceError(f"{path} has {seen}; plait reads {', '.join(SUFFIXES)}{hint}")


def total_bytes(paths: Sequence[str | Path]) -> int | None:
    """The size of all sources, for a progress bar; None with standard input."""
    if any(str(given) == STDIN for given in paths):
        return None
    files = find_files(paths, SourceReport())
    return sum(file.path.stat().st_size for file in files if file.path is not None and file.path.exists())


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A file to read."""

    path: Path | None  # None is standard input
    id: str  # of the document, if the file is one document

    @property
    def name(self) -> str:
        return "standard input" if self.path is None else str(self.path)

    @property
    def reader(self) -> Reader:
        """Chosen by the suffix, without .gz; standard input is JSON lines."""
        return READERS[".jsonl" if self.path is None else suffix_of(self.path).removesuffix(".gz")]


def suffix_of(path: Path) -> str:
    """.txt, .jsonl.gz and the like, in lower case."""
    suffixes = [suffix.lower() for suffix in path.suffixes[-2:]]
    return "".join(suffixes) if suffixes[-1:] == [".gz"] else "".join(suffixes[-1:])


def find_files(paths: Sequence[str | Path], report: SourceReport) -> Iterator[SourceFile]:
    """The files in the order given; those of a folder sorted by name, without hidden ones."""
    for given in paths:
        path = Path(given)
        if str(given) == STDIN:
            yield SourceFile(None, STDIN)
        elif path.is_dir():
            yield from _files_in(path, report)
        else:
            yield SourceFile(path, path.as_posix())


def _files_in(root: Path, report: SourceReport) -> Iterator[SourceFile]:
    def refuse(error: OSError) -> None:
        raise SourceError(f"cannot read the folder {error.filename}: {error.strerror}") from error

    for folder, subfolders, names in os.walk(root, onerror=refuse):
        subfolders[:] = sorted(name for name in subfolders if not name.startswith("."))
        visible = sorted(name for name in names if not name.startswith("."))
        if corpus := _beir_corpus(visible, subfolders):
            visible, subfolders[:] = [corpus], []
        report.skipped.update("links to folders" for name in subfolders if Path(folder, name).is_symlink())
        for name in visible:
            path = Path(folder, name)
            if suffix_of(path) in SUFFIXES:
                yield SourceFile(path, path.relative_to(root).as_posix())
            else:
                report.skipped[suffix_of(path) or "without a suffix"] += 1


def _beir_corpus(files: Sequence[str], folders: Sequence[str]) -> str | None:
    """The corpus file of a BEIR folder, the only one to index; None for other folders."""
    has_queries = any(name in files or name in folders for name in _QUERIES)
    return next((name for name in _CORPUS if name in files and has_queries), None)


def _documents(paths: Sequence[str | Path], on_error: str, report: SourceReport) -> Iterator[Document]:
    for file in find_files(paths, report):
        report.files += 1
        is_empty = True
        for result in _read(file, report):
            is_empty = False
            if isinstance(result, Document):
                report.documents += 1
                yield result
            elif on_error == "stop":
                raise result
            else:
                report.add_error(result)
        if is_empty:
            report.skipped["empty"] += 1


def _read(file: SourceFile, report: SourceReport) -> Iterator[Document | SourceError]:
    """The documents and errors of a file; an error that ends the file comes last."""
    try:
        with open_source(file.path, report) as stream:
            yield from file.reader(stream, file.name, file.id)
    except SourceError as error:
        yield error
    except (EOFError, zlib.error) as error:
        yield SourceError(f"{file.name} is damaged or cut short: {error}")
    except OSError as error:
        yield SourceError(f"cannot read {file.name}: {error.strerror or error}")

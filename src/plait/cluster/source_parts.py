"""A source in parts that workers read on their own: groups of small files, and ranges of lines of large ones."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from plait.errors import SourceError
from plait.readers.given import ReadOptions
from plait.readers.sources import SourceReport, Sources, read_file
from plait.readers.walk import SourceFile
from plait.records import Document

PART_BYTES = 4 << 20  # of a range of lines, and of the files of a group together
MAX_FILES = 500  # of a group
LINES = (".jsonl", ".ndjson")


@dataclass(frozen=True, slots=True)
class SourcePart:
    """Files, or the lines of one file that begin in a range of bytes. Every node must see the files."""

    files: Sequence[SourceFile]
    start: int = 0
    stop: int | None = None  # None: the whole files


def source_parts(sources: Sources, *, part_bytes: int = PART_BYTES) -> Iterator[SourcePart]:
    """The parts of files and folders, in their order."""
    if sources.has_stdin:
        raise SourceError("workers cannot read standard input; write it to a file that every node sees")
    report = SourceReport()
    group: list[SourceFile] = []
    for file in sources.files(report):
        if file.path is not None and file.path.lower().endswith(LINES) and file.size > part_bytes:
            if group:
                yield SourcePart(group)
                group = []
            for start in range(0, file.size, part_bytes):
                yield SourcePart([file], start, min(start + part_bytes, file.size))
            continue
        group.append(file)
        if len(group) == MAX_FILES or sum(one.size for one in group) >= part_bytes:
            yield SourcePart(group)
            group = []
    if group:
        yield SourcePart(group)


def read_part(part: SourcePart, options: ReadOptions | None = None) -> Iterator[Document]:
    """The documents of a part; SourceError for a file or record that cannot be read."""
    options = ReadOptions() if options is None else options
    if part.stop is None:
        yield from _documents(part.files, options)
        return
    (file,) = part.files
    assert file.path is not None
    with tempfile.TemporaryDirectory(prefix="plait-part-") as folder:
        copy = Path(folder) / Path(file.path).name
        _copy_lines(Path(file.path), part.start, part.stop, copy)
        if size := copy.stat().st_size:
            yield from _documents([replace(file, path=str(copy), size=size)], options)


def _documents(files: Iterable[SourceFile], options: ReadOptions) -> Iterator[Document]:
    for file in files:
        for result in read_file(file, options, SourceReport()):
            if not isinstance(result, Document):
                raise result
            yield result


def _copy_lines(path: Path, start: int, stop: int, to: Path) -> None:
    """Copies the lines whose first byte is in the range."""
    with path.open("rb") as source, to.open("wb") as target:
        source.seek(max(start - 1, 0))
        if start > 0:
            source.readline()  # of the range before, if it does not end just there
        while source.tell() < stop and (line := source.readline()):
            target.write(line)

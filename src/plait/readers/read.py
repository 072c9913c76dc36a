"""Sources to documents, one at a time."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path

from plait.errors import ConfigError, SourceError
from plait.readers.find import SourceFile, check_sources, find_files
from plait.readers.lines import opened
from plait.readers.records import Found, read_jsonl, read_tsv
from plait.readers.report import SourceReport
from plait.readers.texts import read_markdown, read_text
from plait.records import Document

LINE_READERS = {".jsonl": read_jsonl, ".ndjson": read_jsonl, ".tsv": read_tsv}
TEXT_READERS = {".txt": read_text, ".md": read_markdown, ".markdown": read_markdown}
ON_ERROR = ("stop", "skip")


def documents_from(
    paths: Sequence[str | Path], *, on_error: str = "stop", report: SourceReport | None = None
) -> Iterator[Document]:
    """The documents of files and folders, read as they are asked for; "-" is JSON lines on standard input.

    A file of one document is called by its path: within the folder that was given, or as it was given itself.
    Whole numbers are taken for ids, as their digits. With on_error="skip" what cannot be read is counted in `report`
    and passed over; with "stop" it raises SourceError.
    """
    if on_error not in ON_ERROR:
        raise ConfigError(f"on_error is {on_error!r}; it must be one of {', '.join(ON_ERROR)}")
    check_sources(paths)
    return _documents(paths, on_error, SourceReport() if report is None else report)


def _documents(paths: Sequence[str | Path], on_error: str, report: SourceReport) -> Iterator[Document]:
    for file in find_files(paths, report):
        report.files += 1
        n_found = 0
        for found in _read(file, report):
            n_found += 1
            if isinstance(found, Document):
                report.documents += 1
                yield found
            elif on_error == "stop":
                raise found
            else:
                report.note(found)
        if n_found == 0:
            report.skipped["empty"] += 1


def _read(file: SourceFile, report: SourceReport) -> Iterator[Found]:
    """What the file holds; an error that ends the file comes last."""
    try:
        with opened(file.path, report) as stream:
            if file.kind in LINE_READERS:
                yield from LINE_READERS[file.kind](stream, file.name)
            elif document := TEXT_READERS[file.kind](stream, file.name, file.id):
                yield document
    except SourceError as error:
        yield error
    except (EOFError, zlib.error) as error:
        yield SourceError(f"{file.name} is damaged or cut short: {error}")
    except OSError as error:
        yield SourceError(f"cannot read {file.name}: {error.strerror or error}")

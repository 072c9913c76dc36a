"""Readers for files with one document on each line: JSON lines, and tab-separated id and text."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import BinaryIO

from plait.checks import parse_json
from plait.errors import DocumentError, SourceError
from plait.readers.lines import Line, read_lines
from plait.records import Document
from plait.storage.validate import check_document, document_from


def read_jsonl(stream: BinaryIO, name: str, id: str = "") -> Iterator[Document | SourceError]:
    """One JSON object on each line: `id` or `_id`, `text`, optionally `title`; other fields are metadata."""
    del id
    return _documents(stream, name, _from_json)


def read_tsv(stream: BinaryIO, name: str, id: str = "") -> Iterator[Document | SourceError]:
    """`id<TAB>text` on each line, as in MS MARCO; a header line of these two words is skipped."""
    del id
    return _documents(stream, name, _from_columns)


def _documents(
    stream: BinaryIO, name: str, make: Callable[[Line, str], Document | None]
) -> Iterator[Document | SourceError]:
    for line in read_lines(stream, name):
        if isinstance(line, SourceError):
            yield line
            continue
        try:
            document = make(line, f"{name}, line {line.number}")
        except DocumentError as error:
            yield SourceError(f"{name}, line {line.number}: {error}")
        except SourceError as error:
            yield error
        else:
            if document is not None:
                yield document


def _from_json(line: Line, where: str) -> Document:
    try:
        fields = parse_json(line.text)
    except json.JSONDecodeError as error:
        if line.number == 1 and line.text.lstrip() in ("[", "{"):
            raise SourceError(
                f"{where}: this looks like one JSON value over many lines; plait reads one object on each line "
                f"(jq -c '.[]' converts an array)"
            ) from None
        raise SourceError(f"{where}, column {error.colno}: this is not JSON: {error.msg}") from None
    except (ValueError, RecursionError) as error:  # a number with thousands of digits; brackets thousands deep
        raise SourceError(f"{where}: this JSON cannot be read: {error}") from None
    if not isinstance(fields, dict):
        raise SourceError(f'{where}: expected an object such as {{"id": ..., "text": ...}}, got {line.text:.40}')
    # Many collections number their documents; in plait an id is a string.
    for key in ("id", "_id"):
        if isinstance(fields.get(key), int) and not isinstance(fields[key], bool):
            fields[key] = str(fields[key])
    return document_from(fields)


def _from_columns(line: Line, where: str) -> Document | None:
    columns = line.text.split("\t")
    if line.number == 1 and [column.strip().lower() for column in columns] == ["id", "text"]:
        return None
    if len(columns) != 2:
        raise SourceError(f"{where}: expected two columns, id and text, with a tab between; got {len(columns)}")
    document = Document(columns[0], columns[1])
    check_document(document)
    return document

"""Readers for files with one document on each line: JSON lines, and tab-separated id and text."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

from plait.checks import parse_json
from plait.errors import DocumentError, SourceError
from plait.readers.fields import document_of
from plait.readers.given import Given
from plait.readers.lines import Line, read_lines
from plait.records import Document
from plait.storage.validate import check_document


def read_jsonl(given: Given) -> Iterator[Document | SourceError]:
    """One JSON object on each line: `id` or `_id`, `text`, optionally `title`; other fields are metadata."""

    def make(line: Line, where: str) -> Document:
        return document_of(_fields(line, where), given)

    return _documents(given, make)


def read_id_and_text(given: Given) -> Iterator[Document | SourceError]:
    """`id<TAB>text` on each line, as in MS MARCO; a header line of these two words is skipped."""
    return _documents(given, _from_columns)


def _documents(given: Given, make: Callable[[Line, str], Document | None]) -> Iterator[Document | SourceError]:
    for line in read_lines(given.stream, given.name):
        if isinstance(line, SourceError):
            yield line
            continue
        try:
            document = make(line, f"{given.name}, line {line.number}")
        except DocumentError as error:
            yield SourceError(f"{given.name}, line {line.number}: {error}")
        except SourceError as error:
            yield error
        else:
            if document is not None:
                yield document


def _fields(line: Line, where: str) -> dict[str, object]:
    try:
        fields = parse_json(line.text)
    except json.JSONDecodeError as error:
        if line.number == 1 and line.text.lstrip() in ("[", "{"):
            raise SourceError(
                f"{where}: this looks like one JSON value over many lines; rename the file to .json, or convert it "
                f"(jq -c '.[]' converts an array)"
            ) from None
        raise SourceError(f"{where}, column {error.colno}: this is not JSON: {error.msg}") from None
    except (ValueError, RecursionError) as error:  # a number with thousands of digits; brackets thousands deep
        raise SourceError(f"{where}: this JSON cannot be read: {error}") from None
    if not isinstance(fields, dict):
        raise SourceError(f'{where}: expected an object such as {{"id": ..., "text": ...}}, got {line.text:.40}')
    return fields


def _from_columns(line: Line, where: str) -> Document | None:
    columns = line.text.split("\t")
    if line.number == 1 and [column.strip().lower() for column in columns] == ["id", "text"]:
        return None
    if len(columns) != 2:
        raise SourceError(f"{where}: expected two columns, id and text, with a tab between; got {len(columns)}")
    document = Document(columns[0], columns[1])
    check_document(document)
    return document

"""Files of one document a line: JSON lines, and tab-separated id and text."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import BinaryIO

from plait.errors import DocumentError, SourceError
from plait.readers.lines import Line, read_lines
from plait.records import Document
from plait.storage.documents import check_document, document_from

Found = Document | SourceError  # an error stands where its document would; the caller stops there or goes on


def read_jsonl(stream: BinaryIO, name: str) -> Iterator[Found]:
    """One JSON object a line: `id` or `_id`, `text`, perhaps `title`; other fields are metadata."""
    return _each(stream, name, _from_json)


def read_tsv(stream: BinaryIO, name: str) -> Iterator[Found]:
    """`id<TAB>text` on each line, as MS MARCO has it; a first line that says just this is passed over."""
    return _each(stream, name, _from_columns)


def _each(stream: BinaryIO, name: str, make: Callable[[Line, str], Document | None]) -> Iterator[Found]:
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
        fields = json.loads(line.text)
    except json.JSONDecodeError as error:
        if line.number == 1 and line.text.lstrip() in ("[", "{"):
            raise SourceError(
                f"{where}: this looks like one JSON value over many lines; plait reads one object a line "
                f"(jq -c '.[]' converts an array)"
            ) from None
        raise SourceError(f"{where}, column {error.colno}: this is not JSON: {error.msg}") from None
    except (ValueError, RecursionError) as error:  # a number with thousands of digits; brackets thousands deep
        raise SourceError(f"{where}: this JSON cannot be read: {error}") from None
    if not isinstance(fields, dict):
        raise SourceError(f'{where}: expected an object such as {{"id": ..., "text": ...}}, got {line.text:.40}')
    # Collections number their documents; within plait an id is text.
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

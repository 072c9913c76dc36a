"""Readers for JSON: arrays of objects, other values, and Jupyter notebooks."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from plait.checks import parse_json
from plait.errors import SourceError
from plait.readers.fields import documents_of_records, has_text
from plait.readers.given import Given, SectionedText, one_document
from plait.readers.text_files import markdown_headings
from plait.records import Document

MAX_OUTPUT = 2000  # characters of the printed output of a notebook's cell
MAX_DEPTH = 100  # of values that are written as lines


def read_json(given: Given) -> Iterator[Document | SourceError]:
    """An array of objects with a text gives one document for each, and so does an object that has one such array. Any
    other value is one document, with a line `path: value` for each value in it."""
    value = _parsed(given)
    for items in _arrays(value):
        if items and all(isinstance(item, dict) and has_text(item, given.options) for item in items):
            return documents_of_records(enumerate(items, 1), given, "item")
    if isinstance(value, dict) and has_text(value, given.options) and isinstance(value.get("text"), str):
        return documents_of_records([(1, value)], given, "item")
    return _as_lines(value, given)


def _parsed(given: Given) -> Any:
    text = given.read_text()
    if not text.strip():
        return []
    try:
        return parse_json(text)
    except json.JSONDecodeError as error:
        raise SourceError(f"{given.name}, line {error.lineno}: this is not JSON: {error.msg}") from None
    except ValueError as error:
        raise SourceError(f"{given.name}: this JSON cannot be read: {error}") from None


def _arrays(value: Any) -> Iterator[list[Any]]:
    if isinstance(value, list):
        yield value
    elif isinstance(value, dict):
        arrays = [inner for inner in value.values() if isinstance(inner, list)]
        if len(arrays) == 1:
            yield arrays[0]


def _as_lines(value: Any, given: Given) -> Iterator[Document]:
    text = SectionedText()
    parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else [("", value)]
    for key, part in parts:
        path = str(key) if isinstance(value, dict) else f"[{key}]"
        text.begin(f"${'.' if isinstance(value, dict) else ''}{path}"[:200], 1, path[:200], separator="\n")
        text.add("\n".join(_lines(part, path, 0)), separator="\n")
    yield from one_document(given, text.text.replace("\0", " "), sections=text.finished())


def _lines(value: Any, path: str, depth: int) -> Iterator[str]:
    if depth > MAX_DEPTH:
        yield f"{path}: ..."
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield from _lines(inner, f"{path}.{key}", depth + 1)
    elif isinstance(value, list):
        if all(not isinstance(inner, dict | list) for inner in value):
            yield f"{path}: {', '.join(map(_scalar, value))}"
        else:
            for number, inner in enumerate(value):
                yield from _lines(inner, f"{path}[{number}]", depth + 1)
    elif value is not None:
        yield f"{path}: {_scalar(value)}"


def _scalar(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def read_notebook(given: Given) -> Iterator[Document]:
    """A Jupyter notebook: one document; each cell is a section, and the headings of its text are those of the path."""
    notebook = _parsed(given)
    cells = _cells(notebook)
    if cells is None:
        raise SourceError(f"{given.name} has no list of cells; it is not a Jupyter notebook")
    text, title = SectionedText(), ""
    for number, cell in enumerate(cells, 1):
        source = _joined(cell.get("source", cell.get("input", "")))
        text.begin(f"cell {number}")
        start = len(text) + (2 if len(text) else 0)
        if cell.get("cell_type") == "markdown":
            for section in markdown_headings(source):
                title = title or section.heading
                text.sections.append(section._replace(start=start + section.start))
        text.add(source)
        text.add(_output(cell))
    metadata = notebook.get("metadata")
    language = _language(metadata) if isinstance(metadata, dict) else ""
    yield from one_document(given, text.text, title, {"language": language} if language else {}, text.finished())


def _cells(notebook: Any) -> list[dict[str, Any]] | None:
    """The cells of format 4, or of the worksheets of format 3."""
    if not isinstance(notebook, dict):
        return None
    cells = notebook.get("cells")
    if cells is None and isinstance(notebook.get("worksheets"), list):
        sheets = [sheet for sheet in notebook["worksheets"] if isinstance(sheet, dict)]
        cells = [cell for sheet in sheets for cell in sheet.get("cells", [])]
    if not isinstance(cells, list):
        return None
    return [cell if isinstance(cell, dict) else {} for cell in cells]


def _joined(source: Any) -> str:
    lines = source if isinstance(source, list) else [source]
    return "".join(line for line in lines if isinstance(line, str)).replace("\0", " ").replace("\r\n", "\n")


def _output(cell: dict[str, Any]) -> str:
    """What a cell printed or showed as text, cut."""
    outputs = cell.get("outputs")
    texts = []
    for output in outputs if isinstance(outputs, list) else []:
        if isinstance(output, dict):
            data = output.get("data")
            texts.append(_joined(output.get("text", data.get("text/plain", "") if isinstance(data, dict) else "")))
    return "\n".join(text for text in texts if text.strip())[:MAX_OUTPUT]


def _language(metadata: dict[str, Any]) -> str:
    info = metadata.get("language_info")
    name = info.get("name", "") if isinstance(info, dict) else ""
    return name if isinstance(name, str) else ""

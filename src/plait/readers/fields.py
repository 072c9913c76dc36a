"""Records with fields to documents: objects of JSON, rows of CSV and Parquet."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from plait.errors import DocumentError, SourceError
from plait.readers.given import Given, ReadOptions, SectionedText, one_document
from plait.records import Document, Section
from plait.storage.validate import document_from

TEXT, TITLE, IDS = "text", "title", ("id", "_id")
MAX_TABLE_TEXT = 20_000_000  # characters of a table that is one document

Record = tuple[int, dict[str, Any]]  # number in the file, from 1, and fields


def has_text(names: Iterable[str], options: ReadOptions) -> bool:
    """Whether records with these fields are documents of their own."""
    return (options.text_field or TEXT).split(".")[0] in names


def field_of(fields: Mapping[str, Any], path: str) -> Any:
    """The value of a field, also of a nested one such as `author.name`; None if it is absent."""
    if path in fields:
        return fields[path]
    value: Any = fields
    for key in path.split("."):
        if not isinstance(value, Mapping) or key not in value:
            return None
        value = value[key]
    return value


def document_of(fields: dict[str, Any], given: Given, number: int | None = None) -> Document:
    """The document of a record; with a number, a record without an id has the id of the file with # and the number."""
    options = given.options
    renamed = dict(fields)
    for name, path in ((TEXT, options.text_field), (TITLE, options.title_field)):
        if path is not None:
            value = field_of(fields, path)
            renamed.pop(path, None)
            renamed[name] = value if value is None or isinstance(value, str) else str(value)
    if options.id_field is not None:
        for key in IDS:
            renamed.pop(key, None)
        renamed.pop(options.id_field, None)
        id = field_of(fields, options.id_field)
        if id is not None and id != "":
            renamed["id"] = id
    # Many collections number their documents; in plait an id is a string.
    for key in IDS:
        if isinstance(renamed.get(key), int) and not isinstance(renamed[key], bool):
            renamed[key] = str(renamed[key])
    if number is not None and not any(renamed.get(key) not in (None, "") for key in IDS):
        renamed = {key: value for key, value in renamed.items() if key not in IDS}
        renamed["id"] = f"{given.id}#{number}"
    return document_from(renamed)


def documents_of_records(records: Iterable[Record], given: Given, unit: str) -> Iterator[Document | SourceError]:
    """One document for each record, with its number as location, such as "row 12"."""
    for number, fields in records:
        try:
            document = document_of(fields, given, number)
        except DocumentError as error:
            yield SourceError(f"{given.name}, {unit} {number}: {error}")
        else:
            label = (Section(0, f"{unit} {number}"),)
            yield Document(document.id, document.text, document.title, document.metadata, label)


def table_document(records: Iterable[Record], given: Given, unit: str) -> Iterator[Document]:
    """All records as one document, a line each: for tables without a field of text."""
    text = SectionedText()
    for number, fields in records:
        values = [(name, str(value).strip()) for name, value in fields.items() if value is not None]
        line = ", ".join(f"{name}: {value}" for name, value in values if value)
        if line:
            text.begin(f"{unit} {number}", separator="\n")
            text.add(line.replace("\0", " "), separator="\n")
        if len(text) > MAX_TABLE_TEXT:
            raise SourceError(
                f"{given.name} is a table of more than {MAX_TABLE_TEXT:,} characters without a field {TEXT!r}; name "
                f"the field of the texts with --text-field"
            )
    yield from one_document(given, text.text, sections=text.finished())

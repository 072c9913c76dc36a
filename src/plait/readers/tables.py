"""Readers for tables: CSV, TSV, Parquet, and Arrow files (Feather).

A table with a column of text (`text`, or --text-field) gives one document for each row. Any other table is one document
with a line for each row, `name: value` for each cell.
"""

from __future__ import annotations

import csv
import io
import itertools
import math
from collections.abc import Iterator
from typing import Any, BinaryIO

from plait.errors import SourceError
from plait.readers.fields import Record, documents_of_records, has_text, table_document
from plait.readers.given import Given, missing
from plait.readers.line_records import read_id_and_text
from plait.readers.lines import decode_text
from plait.records import Document

_SNIFFED = 1 << 16  # bytes that decide about encoding and delimiter
_MAX_CELL = 64 * 2**20  # characters
_ROWS = 1024  # of Parquet and Arrow that are read at once


def read_csv(given: Given) -> Iterator[Document | SourceError]:
    """Comma-separated values, or those separated by semicolons or tabs, with a line of names."""
    return _read_delimited(given, None)


def read_tsv(given: Given) -> Iterator[Document | SourceError]:
    """Tab-separated values; without a line of names, two columns are id and text, as in MS MARCO."""
    names = [name.strip().lower() for name in _first_line(given.stream).rstrip("\r\n").split("\t")]
    if len(names) == 2 and not has_text(names, given.options):
        return read_id_and_text(given)
    if names == ["id", "text"] and given.options.text_field is None:
        return read_id_and_text(given)
    return _read_delimited(given, "\t")


def _first_line(stream: BinaryIO) -> str:
    """The first line, which stays to be read. Files and archives can peek."""
    peek = getattr(stream, "peek", None)
    peeked: bytes = peek(_SNIFFED) if peek is not None else b""
    return peeked.split(b"\n", 1)[0].removeprefix(b"\xef\xbb\xbf").decode("utf-8", errors="replace")


def _read_delimited(given: Given, delimiter: str | None) -> Iterator[Document | SourceError]:
    lines = _decoded_lines(given.stream, given.name)
    head = list(itertools.islice(lines, 20))
    rows = csv.reader(itertools.chain(head, lines), delimiter=delimiter or _delimiter("".join(head)))
    csv.field_size_limit(_MAX_CELL)
    names = _names(next(rows, []))
    records = _records(rows, names, given.name)
    if has_text(names, given.options):
        yield from documents_of_records(records, given, "row")
    else:
        yield from table_document(records, given, "row")


def _decoded_lines(stream: BinaryIO, name: str) -> Iterator[str]:
    """Lines of text; the first bytes decide whether it is UTF-8."""
    start = stream.read(_SNIFFED)
    if b"\0" in start:  # binary, or UTF-16
        yield from decode_text(start + stream.read(), name).splitlines(keepends=True)
        return
    encoding = "utf-8-sig"
    try:
        start[: start.rfind(b"\n") + 1].decode()
    except UnicodeDecodeError:
        encoding = "cp1252"
    rest = start
    while rest:
        *whole, rest = rest.split(b"\n")
        for line in whole:
            yield (line + b"\n").decode(encoding, errors="replace").replace("\0", " ")
            encoding = encoding.removesuffix("-sig")
        more = stream.read(_SNIFFED)
        if not more:
            if rest:
                yield rest.decode(encoding, errors="replace").replace("\0", " ")
            return
        if len(rest) > _MAX_CELL:
            raise SourceError(f"{name} has a line of more than {_MAX_CELL:,} bytes; it is not a table")
        rest += more


def _delimiter(head: str) -> str:
    """The delimiter of most columns in the first line."""
    first = head.split("\n", 1)[0]
    return max((",", ";", "\t", "|"), key=first.count)


def _names(header: list[str]) -> list[str]:
    """Names of columns; nameless ones have a number, and a name that occurs again has one behind it."""
    names: list[str] = []
    for number, given in enumerate(header, 1):
        name = given.strip() or f"column {number}"
        names.append(name if name not in names else f"{name} {number}")
    return names


def _records(rows: Iterator[list[str]], names: list[str], name: str) -> Iterator[Record]:
    number = 1  # the line of names
    while True:
        number += 1
        try:
            row = next(rows)
        except StopIteration:
            return
        except csv.Error as error:
            raise SourceError(f"{name}, row {number}: {error}") from None
        if any(cell.strip() for cell in row):
            more = [f"column {column}" for column in range(len(names) + 1, len(row) + 1)]
            yield number, dict(zip([*names, *more], row, strict=False))


def read_parquet(given: Given) -> Iterator[Document | SourceError]:
    """Parquet, with pyarrow."""
    try:
        import pyarrow.parquet
    except ImportError:
        raise missing(given, "Parquet", "pyarrow") from None
    return _read_arrow(given, lambda: _parquet_batches(pyarrow, given))


def read_arrow(given: Given) -> Iterator[Document | SourceError]:
    """Arrow files and streams, Feather among them, with pyarrow."""
    try:
        import pyarrow.feather
    except ImportError:
        raise missing(given, "Arrow", "pyarrow") from None
    return _read_arrow(given, lambda: _arrow_batches(pyarrow, given))


def _parquet_batches(pyarrow: Any, given: Given) -> tuple[list[str], Iterator[Any]]:
    file = pyarrow.parquet.ParquetFile(io.BytesIO(given.read()))
    return list(file.schema_arrow.names), file.iter_batches(_ROWS)


def _arrow_batches(pyarrow: Any, given: Given) -> tuple[list[str], Iterator[Any]]:
    raw = given.read()
    if raw.startswith(b"FEA1"):
        table = pyarrow.feather.read_table(io.BytesIO(raw))
        return list(table.schema.names), iter(table.to_batches(_ROWS))
    if raw.startswith(b"ARROW1"):
        file = pyarrow.ipc.open_file(io.BytesIO(raw))
        return list(file.schema.names), (file.get_batch(number) for number in range(file.num_record_batches))
    stream = pyarrow.ipc.open_stream(io.BytesIO(raw))
    return list(stream.schema.names), iter(stream)


def _read_arrow(given: Given, open_batches: Any) -> Iterator[Document | SourceError]:
    import pyarrow

    try:
        names, batches = open_batches()
        records = _arrow_records(batches)
        if has_text(names, given.options):
            yield from documents_of_records(records, given, "row")
        else:
            yield from table_document(records, given, "row")
    except (pyarrow.ArrowException, pyarrow.ArrowKeyError, ValueError) as error:
        raise SourceError(f"{given.name} is damaged, or not of its format: {error!s:.200}") from None


def _arrow_records(batches: Iterator[Any]) -> Iterator[Record]:
    number = 0
    for batch in batches:
        for fields in batch.to_pylist():
            number += 1
            yield number, {name: _plain(value) for name, value in fields.items()}


def _plain(value: Any) -> Any:
    """The value as JSON can hold it: dates, decimals and the like become text."""
    if isinstance(value, dict):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_plain(inner) for inner in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, bytes):
        return f"{len(value)} bytes"
    if value is None or isinstance(value, str | int | float | bool):
        return value
    return str(value)

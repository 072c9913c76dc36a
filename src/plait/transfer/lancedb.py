"""LanceDB tables, to and from. Needs lancedb."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from plait.errors import PlaitError, SourceError, StoreError
from plait.transfer.arrow import arrow_reader, source_of_batches
from plait.transfer.passages import Passages
from plait.transfer.source import ImportOptions, Source, choose_collection, damaged, missing_library

ROWS_AT_ONCE = 1024


def open_source(path: str, options: ImportOptions) -> Source:
    """The rows of a table, given by the folder of its database or by its own folder."""
    lancedb = _library("reading a LanceDB table")
    folder, wanted = Path(path), options.collection
    if (folder / "_versions").is_dir():
        folder, wanted = folder.absolute().parent, folder.absolute().name.removesuffix(".lance")
    names = sorted(entry.name.removesuffix(".lance") for entry in folder.glob("*.lance"))
    name = choose_collection(names, wanted, "table", path)
    with _damage(path):
        table = lancedb.connect(str(folder)).open_table(name)
        schema, n_rows = table.schema, int(table.count_rows())

        def batches() -> Iterator[Any]:
            with _damage(path):
                for start in range(0, n_rows, ROWS_AT_ONCE):
                    yield from table.search().limit(ROWS_AT_ONCE).offset(start).to_arrow().to_batches()

        return source_of_batches(schema, batches, "lancedb", path, options, n_rows)


@contextmanager
def _damage(path: str) -> Iterator[None]:
    """Errors of LanceDB as a `SourceError`. Its classes are many: damage may even end a thread of its Rust code, whose
    error is of no public class."""
    try:
        yield
    except PlaitError:
        raise
    except Exception as error:
        raise damaged(path, error) from None


def write_table(passages: Passages, folder: str, name: str) -> int:
    """Makes a table with a row for each passage; returns how many. If that fails, what was written of it is removed."""
    lancedb = _library("writing a LanceDB table")
    files = Path(folder) / f"{name}.lance"
    if files.exists():
        raise StoreError(f"{folder} has a table {name!r} already; choose another name with --collection")
    try:
        reader = arrow_reader(passages)
        table = lancedb.connect(folder).create_table(name, reader, schema=reader.schema)
        return int(table.count_rows())
    except BaseException as error:
        shutil.rmtree(files, ignore_errors=True)
        if isinstance(error, OSError | RuntimeError | ValueError):
            raise SourceError(f"LanceDB could not write {folder}: {error!s:.300}") from None
        raise


def _library(what: str) -> Any:
    try:
        import lancedb
    except ImportError:
        raise missing_library("lancedb", what) from None
    return lancedb

"""`export_index`: an index as a file, a folder or a collection that other programs read."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from plait.checks import check_type
from plait.errors import ConfigError, StoreError
from plait.storage.fsync import storage_errors, sync_folder
from plait.transfer.numpy_folder import CARD, FOLDER_NAMES
from plait.transfer.passages import Passages
from plait.transfer.source import ImportOptions

if TYPE_CHECKING:
    from plait.index import Index

ENDINGS = {
    ".parquet": "parquet",
    ".arrow": "arrow",
    ".feather": "arrow",
    ".jsonl": "sparse-jsonl",
    ".trec": "trec",
    ".tsv": "tsv",
}


@dataclass(frozen=True, slots=True)
class ExportFormat:
    """A format that plait writes."""

    name: str
    what: str  # for help
    has_vectors: bool
    is_service: bool = False  # a database, which is written to in its place, not a file to be renamed


EXPORTS = (
    ExportFormat("parquet", "a Parquet file, a row for each passage", True),
    ExportFormat("arrow", "an Arrow file, a row for each passage", True),
    ExportFormat("numpy", "a folder of .npy arrays and JSON lines", True),
    ExportFormat("sparse-jsonl", "learned-sparse JSON lines for Pyserini and seismic", True),
    ExportFormat("qdrant", "a collection of a Qdrant server, or of a local folder", True, is_service=True),
    ExportFormat("lancedb", "a table of a LanceDB folder", True, is_service=True),
    ExportFormat("beir", "a folder with corpus.jsonl; texts alone", False),
    ExportFormat("trec", "a TREC text file; texts alone", False),
    ExportFormat("tsv", "id and text in each line; texts alone", False),
)


@dataclass(frozen=True, slots=True)
class ExportReport:
    """What an export wrote."""

    to: str
    form: str
    n_rows: int  # passages; documents if the format has texts alone
    what: str  # "passages" or "documents"
    seconds: float


def export_index(
    index: Index,
    to: str | Path,
    *,
    form: str | None = None,
    filter: str | None = None,
    vectors: bool = True,
    collection: str | None = None,
    api_key_env: str | None = None,
    force: bool = False,
    on_progress: Callable[[int, int | None], None] | None = None,
) -> ExportReport:
    """Writes the documents that a filter accepts, with their stored vectors, in another format.

    The format is chosen by the ending of `to`, or given as `form`. Without `vectors`, tables and arrays have texts and
    metadata alone. `collection` names the collection or table of a database. A file appears only when it is complete.
    `on_progress` is called with the passages that were read, and with all of them if there is no filter.

        export_index(index, "passages.parquet", filter="year >= 2020")
    """
    start = time.perf_counter()
    chosen = _choose(str(to), form)
    check_type("filter", filter, (str, type(None)), "text, such as 'year >= 2020'", ConfigError)
    passages = Passages(index, filter=filter, vectors=vectors and chosen.has_vectors, on_progress=on_progress)
    if chosen.is_service:
        if not vectors:
            raise ConfigError(f"a database is for vectors; leave out no-vectors, or choose another format than {form}")
        n_rows = _write_service(chosen.name, passages, str(to), collection or index.path.name, api_key_env)
    else:
        n_rows = _write_renamed(Path(to), _writer(chosen.name, passages), force=force)
    what = "passages" if chosen.has_vectors else "documents"
    return ExportReport(str(to), chosen.name, n_rows, what, time.perf_counter() - start)


def _choose(to: str, form: str | None) -> ExportFormat:
    name = form or ENDINGS.get(Path(to).suffix.lower())
    if form is None and to.startswith(("http://", "https://")):
        name = "qdrant"
    for one in EXPORTS:
        if one.name == name:
            return one
    names = ", ".join(one.name for one in EXPORTS)
    if form is None:
        raise ConfigError(f"the ending of {to} names no format; give one with --format: {names}")
    raise ConfigError(f"there is no format {form!r:.60} to export; choose one of {names}")


def _writer(name: str, passages: Passages) -> Callable[[Path], int]:
    if name in ("parquet", "arrow"):
        from plait.transfer.arrow import pyarrow_module, write_arrow, write_parquet

        pyarrow_module()
        write = write_parquet if name == "parquet" else write_arrow
    elif name == "numpy":
        from plait.transfer.numpy_folder import write_folder as write
    elif name == "sparse-jsonl":
        from plait.transfer.sparse_jsonl import write_jsonl as write
    else:
        from plait.transfer import corpus_files

        write = {"beir": corpus_files.write_beir, "trec": corpus_files.write_trec, "tsv": corpus_files.write_tsv}[name]
    return lambda to: write(passages, to)


def _write_service(name: str, passages: Passages, to: str, table: str, api_key_env: str | None) -> int:
    if name == "qdrant":
        from plait.transfer.qdrant import write_collection

        return write_collection(passages, to, table, options=ImportOptions(api_key_env=api_key_env))
    from plait.transfer.lancedb import write_table

    return write_table(passages, to, table)


def _write_renamed(to: Path, write: Callable[[Path], int], *, force: bool) -> int:
    """Writes beside the target and renames, so that nobody reads half of it."""
    with storage_errors(to):
        if to.exists() and not force:
            raise StoreError(f"{to} exists already; choose another name, or replace it with --force")
        if to.is_dir() and not _is_dump(to):
            raise StoreError(f"{to} is a folder that plait dump did not write and is not replaced; choose another name")
        partial = to.absolute().with_name(f".{to.name}.part")
        _remove(partial)
        try:
            n_rows = write(partial)
            for file in partial.iterdir() if partial.is_dir() else [partial]:
                sync_folder(file)
            if to.is_dir() and not to.is_symlink():
                _remove(to)
            partial.replace(to)
            sync_folder(to.absolute().parent)
        except BaseException:
            _remove(partial)
            raise
    return n_rows


def _is_dump(folder: Path) -> bool:
    """Whether a folder has the files of an export and no others, so that --force deletes nothing else."""
    names = {entry.name for entry in folder.iterdir()}
    return not folder.is_symlink() and (names <= {"corpus.jsonl"} or (CARD in names and names <= FOLDER_NAMES))


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)

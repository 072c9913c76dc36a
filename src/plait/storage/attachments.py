"""Attachments: files that another part of plait adds to an index, under the guarantees of segments.

An attachment has a name and a folder of segment files, `attachments/000007/`; its number comes from the counter that
numbers segments. The catalogue lists the live folder and its files in `meta`, under `attachment.NAME`. Files are
written and synced first, then one transaction replaces the older attachment of that name. `plait check` compares the
files with their checksums, `plait backup` copies them, and `plait check --repair` removes a damaged attachment alone.
Storage does not know what the files mean.
"""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from plait.errors import CorruptIndexError, StoreError
from plait.storage.catalogue import FILE_NAME, delete_meta, write_meta
from plait.storage.connection import CATALOGUE, ReadTransaction
from plait.storage.folder import (
    ATTACHMENTS,
    check_file,
    check_segment_folder,
    create_segment_folder,
    segment_numbers_on_disk,
)
from plait.storage.fsync import storage_errors, sync_folder
from plait.storage.segment_file import FileRecord, SegmentFile

_KEY = "attachment."
_NAME = re.compile(r"[a-z][a-z0-9_]{0,30}")
Rows = Callable[[str, Sequence[object]], Iterable[tuple[Any, ...]]]  # runs a statement
WriteFiles = Callable[[Path], Mapping[str, FileRecord]]  # writes synced files into a folder


@dataclass(frozen=True, slots=True)
class AttachmentRecord:
    """An attachment as the catalogue lists it."""

    name: str
    number: int
    files: Mapping[str, FileRecord]  # by name

    @property
    def nbytes(self) -> int:
        return sum(file.nbytes for file in self.files.values())


def attachment_folder(index: Path, number: int) -> Path:
    return index / ATTACHMENTS / f"{number:06d}"


def leftover_attachments(index: Path, live: set[int]) -> list[int]:
    """The numbers of folders that no commit lists."""
    return [number for number in segment_numbers_on_disk(index, ATTACHMENTS) if number not in live]


# -- the catalogue


def attachment_names(rows: Rows) -> list[str]:
    """The names of all attachments, damaged ones too."""
    keys = rows("SELECT key FROM meta WHERE key >= ? AND key < ? ORDER BY key", [_KEY, f"{_KEY}~"])
    return [str(key).removeprefix(_KEY) for (key,) in keys]


def read_attachment(rows: Rows, name: str) -> AttachmentRecord | None:
    """The live attachment of that name; None if there is none."""
    values = list(rows("SELECT value FROM meta WHERE key = ?", [_KEY + name]))
    return _parse(name, values[0][0]) if values else None


def read_attachments(rows: Rows) -> list[AttachmentRecord]:
    """All attachments, in the order of their names."""
    return [record for name in attachment_names(rows) if (record := read_attachment(rows, name)) is not None]


def live_attachments(rows: Rows) -> set[int] | None:
    """The numbers of all attachments; None if a record is damaged, so that its number is unknown."""
    try:
        return {record.number for record in read_attachments(rows)}
    except CorruptIndexError:
        return None


def write_attachment(connection: sqlite3.Connection, record: AttachmentRecord) -> None:
    """Makes an attachment live and uses its number up; a step of a transaction."""
    files = {name: asdict(file) for name, file in record.files.items()}
    write_meta(connection, _KEY + record.name, json.dumps({"number": record.number, "files": files}))
    connection.execute("UPDATE meta SET value = ? WHERE key = 'next_segment'", [record.number + 1])


def delete_attachment(connection: sqlite3.Connection, name: str) -> None:
    delete_meta(connection, _KEY + name)


def _parse(name: str, stored: object) -> AttachmentRecord:
    try:
        raw: Any = json.loads(stored) if isinstance(stored, str) else None
        number = raw["number"]
        files = {file: FileRecord(**fields) for file, fields in raw["files"].items()}
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        number, files = None, {}
    sizes = [size for file in files.values() for size in asdict(file).values()]
    is_valid = type(number) is int and number > 0 and all(type(size) is int and size >= 0 for size in sizes)
    if not is_valid or not _NAME.fullmatch(name) or not files or not all(FILE_NAME.fullmatch(file) for file in files):
        raise CorruptIndexError(
            f"the record of attachment {name!r:.40} in the catalogue is damaged: {stored!r:.200}; remove it with "
            f"plait check --repair, then build it again"
        )
    return AttachmentRecord(name, number, files)


# -- files


def write_attachment_files(index: Path, name: str, number: int, write: WriteFiles) -> AttachmentRecord:
    """Lets `write` fill a new folder, and makes the folder durable."""
    if not _NAME.fullmatch(name):
        raise StoreError(f"{name!r} cannot name an attachment; use small letters, digits and underscores")
    folder = attachment_folder(index, number)
    create_segment_folder(folder)
    files = dict(write(folder))
    sync_folder(folder)
    return AttachmentRecord(name, number, files)


def open_attachment_file(index: Path, record: AttachmentRecord, name: str) -> SegmentFile:
    """One file of an attachment; it must be the file that was committed. A missing file is a FileNotFoundError."""
    path = check_segment_folder(index, record.number, ATTACHMENTS) / name
    check_file(path)
    if name not in record.files:
        raise CorruptIndexError(f"the catalogue lists no file {name} for attachment {record.name!r} of {index}")
    file = SegmentFile.open(path)
    if file.kind != name.removesuffix(".plait") or file.record != record.files[name]:
        raise CorruptIndexError(
            f"{path} is not the file that was committed: the catalogue has {record.files[name]}, the file is "
            f"{file.kind!r} with {file.record}; run plait check --repair, then build attachment {record.name!r} again"
        )
    return file


def verify_attachment(index: Path, record: AttachmentRecord) -> None:
    """Compares all files with their checksums. A missing file is a FileNotFoundError."""
    for name in record.files:
        open_attachment_file(index, record, name).verify()


def newest_attachment(index: Path, name: str) -> AttachmentRecord | None:
    """The attachment of that name in the newest commit; None if there is none. Opens no file."""
    with ReadTransaction(index / CATALOGUE) as view:
        return read_attachment(view.rows, name)


def open_attachment(index: Path, name: str) -> tuple[AttachmentRecord, dict[str, SegmentFile]] | None:
    """The attachment of that name in the newest commit, with its files; None if there is none."""
    missing = -1  # the number of an attachment whose files were not all found
    while (record := newest_attachment(index, name)) is not None:
        with storage_errors(index):
            try:
                return record, {file: open_attachment_file(index, record, file) for file in record.files}
            except FileNotFoundError as error:
                if record.number == missing:  # else a writer has replaced the attachment since the catalogue was read
                    raise CorruptIndexError(
                        f"{error.filename} is missing, and the catalogue lists it; run plait check --repair {index}, "
                        f"then build attachment {name!r} again"
                    ) from None
                missing = record.number
    return None

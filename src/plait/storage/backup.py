"""Backup: a copy of one commit of an index, made while readers read and a writer writes."""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from plait.errors import CorruptIndexError, StoreError
from plait.storage.attachments import attachment_folder, open_attachment_file, read_attachments
from plait.storage.catalogue import read_segments
from plait.storage.check import check
from plait.storage.connection import CATALOGUE, ReadTransaction, connect
from plait.storage.folder import ATTACHMENTS, check_file, check_folder, check_segment_folder, remove_index_copy
from plait.storage.fsync import storage_errors, sync_file, sync_folder
from plait.storage.segment import open_file, segment_folder
from plait.storage.store import FILE_NAMES, Store

MAX_ATTEMPTS = 5


@dataclass(frozen=True, slots=True)
class BackupReport:
    """What a backup copied."""

    path: Path
    commit: int
    n_documents: int
    n_bytes: int
    n_linked: int  # segment files that are hard links; the index never changes them


def backup(index: Path, to: Path, *, link: bool = False) -> BackupReport:
    """Copies the newest commit into a new folder and checks the copy. `link` makes hard links of segment files if the
    disk allows it: that is fast and takes no space, but damage to the disk then damages both."""
    Store.open(index).close()
    with storage_errors(to):
        _check_target(index, to)
        partial = to.with_name(f".{to.name}.part")
        remove_index_copy(partial, {*FILE_NAMES, ATTACHMENTS})  # of a backup that was killed
        try:
            for attempt in range(MAX_ATTEMPTS):
                try:
                    report = _copy(index, partial, link=link)
                    break
                except FileNotFoundError as error:
                    # A merge removed a file after the catalogue was copied: the newer commit has other files.
                    shutil.rmtree(partial, ignore_errors=True)
                    if attempt == MAX_ATTEMPTS - 1:
                        raise CorruptIndexError(
                            f"{error.filename} is missing, and the catalogue lists it; run plait check {index}"
                        ) from None
            _check_copy(index, partial)
            with suppress(FileNotFoundError):
                to.rmdir()  # an empty folder is accepted
            partial.rename(to)
            sync_folder(to.absolute().parent)
        except BaseException:
            shutil.rmtree(partial, ignore_errors=True)
            raise
    return BackupReport(to, *report)


def _check_target(index: Path, to: Path) -> None:
    if index.resolve() in to.resolve().parents:
        raise StoreError(
            f"{to} is inside {index}, where a writer removes files; choose a folder outside for the backup"
        )
    check_folder(to)
    if to.exists() and (not to.is_dir() or any(to.iterdir())):
        raise StoreError(f"{to} exists already and is not an empty folder; choose another folder for the backup")
    if not to.absolute().parent.is_dir():
        raise StoreError(f"{to.absolute().parent} is not a folder; create it first, or choose another folder")


def _check_copy(index: Path, partial: Path) -> None:
    problems = check(partial).problems
    if problems:
        raise CorruptIndexError(
            f"{index} was not backed up, because it is damaged: {problems[0]}; run plait check {index}"
        )


def _copy(index: Path, partial: Path, *, link: bool) -> tuple[int, int, int, int]:
    (partial / "segments").mkdir(parents=True)
    _copy_catalogue(index / CATALOGUE, partial / CATALOGUE)
    with ReadTransaction(partial / CATALOGUE) as view:
        records, commit, n_documents = read_segments(view), view.commit, view.count("n_documents")
        attachments = read_attachments(view.rows)
    n_bytes, n_linked = (partial / CATALOGUE).stat().st_size, 0
    for record in records:
        folder = segment_folder(partial, record.number)
        folder.mkdir()
        for name, file in record.files.items():
            source = check_segment_folder(index, record.number) / name
            check_file(source)
            n_linked += _copy_file(source, folder / name, link=link)
            open_file(partial, record, name)  # checks that it is the committed file
            n_bytes += file.nbytes
        sync_folder(folder)
    for attached in attachments:
        folder = attachment_folder(partial, attached.number)
        folder.mkdir(parents=True)
        for name, file in attached.files.items():
            source = check_segment_folder(index, attached.number, ATTACHMENTS) / name
            check_file(source)
            n_linked += _copy_file(source, folder / name, link=link)
            open_attachment_file(partial, attached, name)
            n_bytes += file.nbytes
        sync_folder(folder)
        sync_folder(folder.parent)
    for folder in (partial / "segments", partial):
        sync_folder(folder)
    return commit, n_documents, n_bytes, n_linked


def _copy_catalogue(source: Path, target: Path) -> None:
    """By SQLite's backup function, which copies one commit whatever is written meanwhile."""
    reading, writing = connect(source, "ro"), connect(target, "rwc")
    try:
        reading.backup(writing)  # all pages in one step, so that no commit intervenes
        writing.execute("PRAGMA journal_mode = WAL").fetchone()
        writing.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    finally:
        writing.close()
        reading.close()
    _sync(target)


def _copy_file(source: Path, target: Path, *, link: bool) -> bool:
    if link:
        try:
            os.link(source, target)
        except FileNotFoundError:
            raise
        except OSError:
            pass  # another disk, or one without hard links
        else:
            return True
    shutil.copyfile(source, target)
    _sync(target)
    return False


def _sync(file: Path) -> None:
    with file.open("rb") as opened:
        sync_file(opened.fileno())

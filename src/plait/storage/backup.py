"""Backup: a copy of one commit of an index, made while readers read and a writer writes."""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from plait.errors import CorruptIndexError, StoreError
from plait.storage.catalogue import read_segments
from plait.storage.check import check
from plait.storage.connection import ReadTransaction, connect
from plait.storage.fsync import storage_errors, sync_folder
from plait.storage.segment import open_file, segment_folder
from plait.storage.snapshot import CATALOGUE
from plait.storage.store import Store

ATTEMPTS = 5


@dataclass(frozen=True, slots=True)
class BackupReport:
    """What was copied."""

    path: Path
    commit: int
    n_documents: int
    n_bytes: int
    n_linked: int  # files of segments that share their space with the index: they never change


def backup(index: Path, to: Path, *, link: bool = False) -> BackupReport:
    """Copies the newest commit into a new folder, and checks the copy. `link` makes hard links of segment files where
    the disk allows it: quick and without space, but damage to the disk is then damage to both."""
    Store.open(index).close()
    with storage_errors(to):
        _refuse_used(index, to)
        draft = to.with_name(f".{to.name}.part")
        shutil.rmtree(draft, ignore_errors=True)
        try:
            for attempt in range(ATTEMPTS):
                try:
                    report = _copy(index, draft, link=link)
                    break
                except FileNotFoundError as error:
                    # A merge took a file away between the catalogue's copy and its own: the newer commit has others.
                    shutil.rmtree(draft, ignore_errors=True)
                    if attempt == ATTEMPTS - 1:
                        raise CorruptIndexError(
                            f"{error.filename} is missing, and the catalogue lists it; run plait check {index}"
                        ) from None
            _refuse_damaged(index, draft)
            with suppress(FileNotFoundError):
                to.rmdir()  # an empty folder may be given
            draft.rename(to)
            sync_folder(to.absolute().parent)
        except BaseException:
            shutil.rmtree(draft, ignore_errors=True)
            raise
    return BackupReport(to, *report)


def _refuse_used(index: Path, to: Path) -> None:
    if index.resolve() in to.resolve().parents:
        raise StoreError(f"{to} lies within {index}, where a writer tidies; choose a place outside for the backup")
    if to.exists() and (not to.is_dir() or any(to.iterdir())):
        raise StoreError(f"{to} is there already and not an empty folder; choose another place for the backup")
    if not to.absolute().parent.is_dir():
        raise StoreError(f"{to.absolute().parent} is not a folder; make it first, or choose another place")


def _refuse_damaged(index: Path, draft: Path) -> None:
    problems = check(draft).problems
    if problems:
        raise CorruptIndexError(f"{index} was not backed up, it is damaged: {problems[0]}; run plait check {index}")


def _copy(index: Path, draft: Path, *, link: bool) -> tuple[int, int, int, int]:
    (draft / "segments").mkdir(parents=True)
    _copy_catalogue(index / CATALOGUE, draft / CATALOGUE)
    view = ReadTransaction(draft / CATALOGUE)
    try:
        records, commit, n_documents = read_segments(view), view.commit, view.count("n_documents")
    finally:
        view.close()
    n_bytes, n_linked = (draft / CATALOGUE).stat().st_size, 0
    for record in records:
        folder = segment_folder(draft, record.number)
        folder.mkdir()
        for name, facts in record.files.items():
            source = segment_folder(index, record.number) / name
            n_linked += _put(source, folder / name, link=link)
            open_file(draft, record, name)  # it is the one that was committed
            n_bytes += facts.nbytes
        sync_folder(folder)
    for folder in (draft / "segments", draft):
        sync_folder(folder)
    return commit, n_documents, n_bytes, n_linked


def _copy_catalogue(source: Path, target: Path) -> None:
    """By SQLite's own means, which gives one commit whatever is written meanwhile."""
    reading, writing = connect(source, "ro"), connect(target, "rwc")
    try:
        reading.backup(writing)  # all pages in one step, so that no commit comes between
        writing.execute("PRAGMA journal_mode = WAL").fetchone()
        writing.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    finally:
        writing.close()
        reading.close()
    _sync(target)


def _put(source: Path, target: Path, *, link: bool) -> bool:
    if link:
        try:
            os.link(source, target)
        except FileNotFoundError:
            raise
        except OSError:
            pass  # another disk, or one that has no links
        else:
            return True
    shutil.copyfile(source, target)
    _sync(target)
    return False


def _sync(file: Path) -> None:
    with file.open("rb") as opened:
        os.fsync(opened.fileno())

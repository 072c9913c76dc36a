"""Makes files and folders durable, and turns errors of the operating system and of SQLite into errors of plait."""

from __future__ import annotations

import errno
import fcntl
import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from plait.errors import CorruptIndexError, LockedError, ReadOnlyError, StoreError

_READ_ONLY = {errno.EROFS, errno.EACCES, errno.EPERM}
# A schema or a row that plait cannot have written also shows as a wrong type or size.
_DAMAGED = {
    sqlite3.SQLITE_CORRUPT,
    sqlite3.SQLITE_NOTADB,
    sqlite3.SQLITE_MISMATCH,
    sqlite3.SQLITE_TOOBIG,
    sqlite3.SQLITE_FORMAT,
}
ADVICE = "restore the index from a copy, or build it again"
_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


# On macOS, fsync leaves data in the cache of the disk, which a power cut empties; this command writes that cache too.
_FULL_FSYNC: int | None = getattr(fcntl, "F_FULLFSYNC", None)
_UNSUPPORTED = {errno.ENOTSUP, errno.EINVAL, errno.ENOTTY}


def sync_file(handle: int) -> None:
    """Makes an open file or folder durable. Every sync of the index goes through here."""
    if _FULL_FSYNC is not None:
        try:
            fcntl.fcntl(handle, _FULL_FSYNC)
        except OSError as error:
            if error.errno not in _UNSUPPORTED:  # some file systems know only fsync
                raise
        else:
            return
    os.fsync(handle)


def sync_folder(folder: Path) -> None:
    """Makes the entries of a folder durable: the fsync of a file does not cover its name."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        sync_file(handle)
    finally:
        os.close(handle)


def make_folders(folder: Path) -> None:
    """Creates a folder with the parents that it lacks. All of them, and their names, are durable when this returns."""
    folder = folder.absolute()
    missing = [folder]
    while not missing[-1].parent.exists():
        missing.append(missing[-1].parent)
    for new in reversed(missing):
        with suppress(FileExistsError):  # the folder itself may exist; another process may make a parent
            new.mkdir()
        sync_folder(new.parent)
    folder.mkdir(exist_ok=True)  # FileExistsError if it is a file


@contextmanager
def storage_errors(path: Path) -> Iterator[None]:
    """Turns an OSError or an SQLite error inside the block into a plait error that names `path`."""
    try:
        yield
    except OSError as error:
        raise _from_system(path, error) from error
    except sqlite3.Error as error:
        raise _from_sqlite(path, error) from error
    except UnicodeDecodeError as error:  # SQLite's message quotes a name that is not UTF-8
        raise CorruptIndexError(f"{path} is damaged ({error}); {ADVICE}") from error


def _from_system(path: Path, error: OSError) -> StoreError:
    where = error.filename or path
    if error.errno in _READ_ONLY:
        return ReadOnlyError(
            f"{where} cannot be written ({error.strerror}); check the disk and the folder's permissions"
        )
    if error.errno in _FULL:
        return StoreError(f"no space is left to write {where} ({error.strerror}); free some and try again")
    return StoreError(f"{where} cannot be read or written: {error.strerror or error}")


def _from_sqlite(path: Path, error: sqlite3.Error) -> StoreError:
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF  # the low byte is the primary code
    if code in _DAMAGED or "Could not decode" in str(error):  # the latter is Python's, for text that is not UTF-8
        return CorruptIndexError(f"{path} is damaged ({error}); {ADVICE}")
    if code in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM):
        return ReadOnlyError(f"{path} cannot be written ({error}); check the disk and the permissions")
    if code == sqlite3.SQLITE_BUSY:
        return LockedError(f"{path} is locked by another process ({error}); try again")
    if code == sqlite3.SQLITE_FULL:
        return StoreError(f"no space is left to write {path} ({error}); free some and try again")
    return StoreError(f"{path} cannot be read or written: {error}")

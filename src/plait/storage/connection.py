"""Opening the catalogue's database: for the one writer, or as a read transaction that never changes.

Nothing here or elsewhere opens the database file by other means than SQLite: closing such a handle would drop the
locks that SQLite holds on the file in this process.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from plait.errors import CorruptIndexError, ReadOnlyError, StoreError
from plait.storage.fsync import storage_errors

BUSY_SECONDS = 30.0  # readers wait only while a crashed writer's log is being recovered
# What SQLite says where it cannot make the files that go with a log: in a folder that is read-only, on a full disk.
_NO_LOG = (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_FULL)
_NO_SHARED_MEMORY = (sqlite3.SQLITE_IOERR_SHMOPEN, sqlite3.SQLITE_IOERR_SHMSIZE)
_inherited: list[sqlite3.Connection] = []  # from a parent process; closing them here could touch its log


def connect(catalogue: Path, mode: str) -> sqlite3.Connection:
    """A connection in SQLite's mode `ro`, `rw` or `rwc`; transactions are begun and ended by name."""
    return _connect(catalogue, f"mode={mode}")


def _connect(catalogue: Path, options: str) -> sqlite3.Connection:
    uri = f"{catalogue.absolute().as_uri()}?{options}"
    connection = sqlite3.connect(
        uri, uri=True, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False, cached_statements=32
    )
    connection.execute("PRAGMA foreign_keys = OFF")
    return connection


@dataclass(slots=True)
class _Open:
    """A connection with what it needs to be used: the process it belongs to and the lock of its threads."""

    connection: sqlite3.Connection
    frozen: tuple[int, ...] | None  # the file's state, where SQLite was told that it will not change
    pid: int
    lock: threading.Lock


class ReadTransaction:
    """One state of the catalogue, from the first read to the close. Threads share it; they take turns."""

    def __init__(self, catalogue: Path) -> None:
        self._catalogue = catalogue
        self._open: _Open | None = _begin(catalogue)
        self._commit: int | None = None

    def rows(self, sql: str, parameters: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """All rows that a statement gives."""
        opened = self._usable()
        with opened.lock, storage_errors(self._catalogue):
            rows = opened.connection.execute(sql, parameters).fetchall()
        if opened.frozen is not None and opened.frozen != _file_state(self._catalogue):
            raise StoreError(f"{self._catalogue} was changed while it was open from a read-only folder; open it anew")
        return rows

    @property
    def commit(self) -> int:
        """The number of the commit that this transaction sees."""
        if self._commit is None:
            self._commit = self.count("commit")
        return self._commit

    def count(self, key: str) -> int:
        """One of the numbers that the catalogue keeps: format, commit, next_segment, n_documents."""
        rows = self.rows("SELECT value FROM meta WHERE key = ?", [key])
        if not rows or not isinstance(rows[0][0], int):
            raise CorruptIndexError(f"{self._catalogue} is damaged: its number {key!r} is {rows}")
        return rows[0][0]

    def close(self) -> None:
        """Ends the transaction; a second call does nothing."""
        opened, self._open = self._open, None
        if opened is not None:
            _dispose(opened)

    def _usable(self) -> _Open:
        opened = self._open
        if opened is None:
            raise StoreError(f"this view of {self._catalogue.parent} is closed; take a new snapshot")
        if opened.pid != os.getpid():
            opened = self._reopen(opened)
        return opened

    def _reopen(self, parents: _Open) -> _Open:
        """After a fork the connection is the parent's. The child's own serves as well if it sees the same commit."""
        expected = self._commit
        _dispose(parents)
        self._open = opened = _begin(self._catalogue)
        self._commit = None
        if expected is None or self.commit != expected:
            self.close()
            raise StoreError(
                f"index {self._catalogue.parent} was changed since this process was forked; take a new snapshot in it"
            )
        return opened


def _begin(catalogue: Path) -> _Open:
    """A connection whose read transaction has begun. SQLite starts it with the first read, so one is made."""
    with storage_errors(catalogue):
        try:
            return _begun(_connect(catalogue, "mode=ro"), None)
        except sqlite3.OperationalError as error:
            # Reading a log needs a file beside the database. Where none can be made and no log waits, the database is
            # all there is.
            frozen = _file_state(catalogue)
            code = error.sqlite_errorcode
            if frozen is None or (code & 0xFF not in _NO_LOG and code not in _NO_SHARED_MEMORY):
                raise
            if _log_waits(catalogue):
                raise ReadOnlyError(
                    f"{catalogue.parent} cannot be written ({error}), and commits wait in its log to be taken over; "
                    f"open the index once where it can be written"
                ) from error
        return _begun(_connect(catalogue, "mode=ro&immutable=1"), frozen)


def _begun(connection: sqlite3.Connection, frozen: tuple[int, ...] | None) -> _Open:
    try:
        connection.execute("BEGIN")
        connection.execute("SELECT 1 FROM sqlite_schema LIMIT 1").fetchall()
    except BaseException:
        connection.close()
        raise
    return _Open(connection, frozen, os.getpid(), threading.Lock())


def _dispose(opened: _Open) -> None:
    if opened.pid == os.getpid():
        with opened.lock:
            opened.connection.close()
    else:
        _inherited.append(opened.connection)


def _file_state(file: Path) -> tuple[int, ...] | None:
    try:
        facts = file.stat()
    except FileNotFoundError:
        return None
    return (facts.st_ino, facts.st_mtime_ns, facts.st_size)


def _log_waits(catalogue: Path) -> bool:
    log = _file_state(catalogue.with_name(catalogue.name + "-wal"))
    return log is not None and log[-1] > 0


def open_for_writing(file: Path, *, create: bool = False) -> sqlite3.Connection:
    """A connection whose commits are on the disk when they return."""
    connection = connect(file, "rwc" if create else "rw")
    try:
        connection.execute("PRAGMA journal_mode = WAL").fetchone()
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute(f"PRAGMA journal_size_limit = {64 << 20}")
        connection.execute(f"PRAGMA cache_size = {-64 << 10}")  # KiB
        connection.execute("PRAGMA secure_delete = ON")  # what was deleted is not to be read in pages that are free
    except BaseException:
        connection.close()
        raise
    return connection

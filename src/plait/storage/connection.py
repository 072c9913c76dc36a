"""Opening the catalogue's database: for the one writer, or as a read transaction that never changes. Several threads
read one state by several connections, and a deadline ends the statement of each.

No code may open the database file except through SQLite: closing such a handle would drop the locks that SQLite holds
on the file in this process.
"""

from __future__ import annotations

import functools
import os
import sqlite3
import sys
import threading
from collections.abc import Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from plait.deadline import wait_for
from plait.errors import CorruptIndexError, ReadOnlyError, StoreError
from plait.scoring.like import register_like
from plait.storage import forks
from plait.storage.folder import check_file
from plait.storage.fsync import storage_errors
from plait.storage.log import MAX_LOG_BYTES
from plait.storage.schema import check_schema
from plait.storage.watch import Watch

CATALOGUE = "catalogue.sqlite"
COMPANIONS = ("-wal", "-shm", "-journal")  # files that SQLite makes beside a database
BUSY_SECONDS = 30.0  # readers wait only while the log of a crashed writer is being recovered
MAX_CONNECTIONS = 8  # of one view, for threads that read at the same time
# SQLite's errors if it cannot create the files of its log: the folder is read-only, or the disk full.
_NO_LOG = (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_FULL)
_NO_SHARED_MEMORY = (sqlite3.SQLITE_IOERR_SHMOPEN, sqlite3.SQLITE_IOERR_SHMSIZE)
_JOURNAL_MAGIC = bytes.fromhex("d9d505f920a163d7")  # begins a journal, and ends one that names another file
_inherited: list[sqlite3.Connection] = []  # from a parent process; closing one here could change the parent's log


def connect(catalogue: Path, mode: str) -> sqlite3.Connection:
    """A connection in SQLite's mode `ro`, `rw` or `rwc`; the caller begins and ends transactions."""
    connection = _connect(catalogue, f"mode={mode}")
    try:
        check_schema(connection, catalogue)
    except BaseException:
        connection.close()
        raise
    return connection


def _connect(catalogue: Path, options: str) -> sqlite3.Connection:
    """The one place that opens a catalogue. The caller compares the schema before it reads or writes: the database may
    be a stranger's."""
    check_database_files(catalogue)
    connection = forks.connect(catalogue, options, timeout=BUSY_SECONDS)
    try:
        distrust(connection, read_only=options.startswith("mode=ro"))
        register_like(connection)
    except BaseException:
        connection.close()
        raise
    return connection


@functools.cache
def _json_is_innocuous() -> bool:
    """Whether SQLite allows its JSON functions in columns without trust in the schema. Some versions refuse
    them (3.40), and indexed fields need them; then the comparison of the schema alone has to do."""
    with closing(sqlite3.connect(":memory:")) as memory:
        memory.execute("PRAGMA trusted_schema = OFF")
        try:
            memory.execute("CREATE TABLE probe (a, b GENERATED ALWAYS AS (json_type(a)) VIRTUAL)")
        except sqlite3.Error:
            return False
    return True


def check_database_files(catalogue: Path) -> None:
    """StoreError if the database or one of the files beside it is a link or a special file, or if a journal names
    another file: SQLite removes the file that a journal of several databases names, and plait never writes one."""
    for suffix in ("", *COMPANIONS):
        check_file(catalogue.with_name(catalogue.name + suffix))
    journal = catalogue.with_name(f"{catalogue.name}-journal")
    with suppress(FileNotFoundError), journal.open("rb") as file:
        if file.seek(0, 2) >= len(_JOURNAL_MAGIC):
            file.seek(-len(_JOURNAL_MAGIC), 2)
            if file.read() == _JOURNAL_MAGIC:
                raise CorruptIndexError(
                    f"{journal} names another file, which SQLite would remove; plait does not write such a journal. Do "
                    f"not use this index unless you know who made it"
                )


def distrust(connection: sqlite3.Connection, *, read_only: bool) -> None:
    """Takes away from a connection what plait does not need and a hostile database could use."""
    connection.execute("PRAGMA foreign_keys = OFF")
    if _json_is_innocuous():
        connection.execute("PRAGMA trusted_schema = OFF")  # no function with side effects in columns and indexes
    connection.execute("PRAGMA cell_size_check = ON")  # finds damaged pages when they are read
    connection.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0 if read_only else 1)  # VACUUM attaches one
    connection.setlimit(sqlite3.SQLITE_LIMIT_TRIGGER_DEPTH, 1)
    connection.setlimit(sqlite3.SQLITE_LIMIT_WORKER_THREADS, 0)
    if read_only:
        connection.execute("PRAGMA query_only = ON")
    if sys.version_info >= (3, 12):
        connection.setconfig(sqlite3.SQLITE_DBCONFIG_DEFENSIVE, True)  # FTS5's own tables cannot be written directly
        connection.setconfig(sqlite3.SQLITE_DBCONFIG_ENABLE_TRIGGER, False)
        connection.setconfig(sqlite3.SQLITE_DBCONFIG_ENABLE_VIEW, False)


@dataclass(slots=True)
class _OpenConnection:
    """A connection whose read transaction has begun."""

    watch: Watch
    frozen: tuple[int, ...] | None  # state of the file, if it was opened as immutable

    @property
    def connection(self) -> sqlite3.Connection:
        return self.watch.connection

    def close(self) -> None:
        self.watch.end()
        self.connection.close()


class _Pool:
    """The connections of one process that see one state of the catalogue; each is used by one thread at a time.

    A further connection is opened when all are in use. It must see the same commit: once the index has moved on, the
    threads share the connections that are open.
    """

    def __init__(self, catalogue: Path) -> None:
        self._catalogue, self.pid = catalogue, os.getpid()
        self.first = _begin(catalogue)
        self._free = threading.Condition()  # reentrant: the garbage collector may close a view
        self._idle, self._in_use = [self.first], 0
        self._may_grow, self._closed = True, False

    def take(self, commit: int | None) -> _OpenConnection:
        """A connection that no other thread uses; waits for one if there must not be more, until the deadline."""
        while True:
            with self._free:
                while not self._idle:
                    if self._closed:
                        raise StoreError(f"this view of {self._catalogue.parent} is closed; take a new snapshot")
                    if self._may_grow and commit is not None and self._in_use < MAX_CONNECTIONS:
                        break
                    wait_for(self._free)
                self._in_use += 1
                if self._idle:
                    return self._idle.pop()
            further = self._further(commit)
            if further is not None:
                return further
            with self._free:
                self._in_use -= 1
                self._may_grow = False

    def give_back(self, opened: _OpenConnection) -> None:
        with self._free:
            self._in_use -= 1
            if not self._closed:
                self._idle.append(opened)
                self._free.notify()
                return
        opened.close()

    def close(self) -> None:
        """Closes all connections; one that is in use when its statement ends."""
        with self._free:
            self._closed = True
            idle, self._idle = self._idle, []
            self._free.notify_all()
        for opened in idle:
            opened.close()

    def abandon(self) -> None:
        """In a forked child: keeps the connections of the parent from being closed. Its lock may be held for ever."""
        _inherited.extend([self.first.connection, *(opened.connection for opened in self._idle)])

    def _further(self, commit: int | None) -> _OpenConnection | None:
        """One more connection; None if it sees another commit, or cannot be opened."""
        try:
            further = _begin(self._catalogue)
        except StoreError:
            return None
        try:
            rows = further.watch.fetch("SELECT value FROM meta WHERE key = 'commit'", [])
            if rows == [(commit,)] and further.frozen == self.first.frozen:
                return further
        except sqlite3.Error:
            pass
        except BaseException:
            further.close()
            raise
        further.close()
        return None


class ReadTransaction:
    """One state of the catalogue until it is closed. Threads may share it."""

    def __init__(self, catalogue: Path) -> None:
        self._catalogue = catalogue
        self._pool: _Pool | None = _Pool(catalogue)
        self._commit: int | None = None

    def rows(self, sql: str, parameters: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """All rows of a statement; SearchTimeoutError if the deadline of the search comes first."""
        pool = self._usable()
        opened = pool.take(self._commit)
        try:
            with storage_errors(self._catalogue):
                rows = opened.watch.fetch(sql, parameters)
        finally:
            pool.give_back(opened)
        if opened.frozen is not None and opened.frozen != _file_state(self._catalogue):
            raise StoreError(f"{self._catalogue} was changed while it was open from a read-only folder; open it again")
        return rows

    @property
    def commit(self) -> int:
        """The number of the commit that this transaction sees."""
        if self._commit is None:
            self._commit = self.count("commit")
        return self._commit

    def count(self, key: str) -> int:
        """A number in meta: format, commit, next_segment or n_documents."""
        rows = self.rows("SELECT value FROM meta WHERE key = ?", [key])
        if not rows or not isinstance(rows[0][0], int):
            raise CorruptIndexError(f"{self._catalogue} is damaged: {key!r} in its meta table is {rows}")
        return rows[0][0]

    def close(self) -> None:
        """Ends the transaction; a second call does nothing."""
        pool, self._pool = self._pool, None
        if pool is None:
            return
        if pool.pid == os.getpid():
            pool.close()
        else:
            pool.abandon()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _usable(self) -> _Pool:
        pool = self._pool
        if pool is None:
            raise StoreError(f"this view of {self._catalogue.parent} is closed; take a new snapshot")
        if pool.pid != os.getpid():
            pool = self._reopen(pool)
        return pool

    def _reopen(self, inherited: _Pool) -> _Pool:
        """After a fork the connections belong to the parent. New ones replace them if they see the same commit."""
        expected = self._commit
        inherited.abandon()
        self._pool = pool = _Pool(self._catalogue)
        self._commit = None
        if expected is None or self.commit != expected:
            self.close()
            raise StoreError(
                f"index {self._catalogue.parent} was changed after this process was forked; take a new snapshot"
            )
        return pool


def _begin(catalogue: Path) -> _OpenConnection:
    """A connection whose read transaction has begun."""
    with storage_errors(catalogue):
        try:
            return _start_read(catalogue, "mode=ro", None)
        except sqlite3.OperationalError as error:
            # Reading a log needs a file beside the database. If that cannot be created and there is no log, the
            # database file alone is complete.
            frozen = _file_state(catalogue)
            code = getattr(error, "sqlite_errorcode", 0)  # Python's own errors have none
            if code == sqlite3.SQLITE_READONLY_ROLLBACK:
                _roll_back(catalogue)
                return _start_read(catalogue, "mode=ro", None)
            if frozen is None or (code & 0xFF not in _NO_LOG and code not in _NO_SHARED_MEMORY):
                raise
            if _has_log(catalogue):
                raise ReadOnlyError(
                    f"{catalogue.parent} cannot be written ({error}), but its log has commits that must be recovered; "
                    f"open the index once from a place where it can be written"
                ) from error
        return _start_read(catalogue, "mode=ro&immutable=1", frozen)


def _roll_back(catalogue: Path) -> None:
    """Rolls back the first transaction of a creation that was cut: the catalogue had no log yet, but a journal, and a
    connection that only reads cannot apply it."""
    with closing(_connect(catalogue, "mode=rw")) as connection:
        connection.execute("SELECT 1 FROM sqlite_schema LIMIT 1").fetchall()


def _start_read(catalogue: Path, options: str, frozen: tuple[int, ...] | None) -> _OpenConnection:
    connection = _connect(catalogue, options)
    try:
        connection.execute("BEGIN")  # SQLite starts the transaction with the first read
        check_schema(connection, catalogue)
    except BaseException:
        connection.close()
        raise
    return _OpenConnection(Watch(connection), frozen)


def _file_state(file: Path) -> tuple[int, ...] | None:
    try:
        state = file.stat()
    except FileNotFoundError:
        return None
    return (state.st_ino, state.st_mtime_ns, state.st_size)


def _n_links(file: Path) -> int:
    return file.lstat().st_nlink


def _has_log(catalogue: Path) -> bool:
    log = _file_state(catalogue.with_name(catalogue.name + "-wal"))
    return log is not None and log[-1] > 0


def open_for_writing(file: Path, *, create: bool = False) -> sqlite3.Connection:
    """A connection whose commits are durable when they return."""
    if not create and _n_links(file) > 1:
        raise StoreError(
            f"{file} has a second name (a hard link), and a write would change the file under both names; copy the "
            f"index with plait backup, and write to the copy"
        )
    connection = connect(file, "rwc" if create else "rw")
    try:
        connection.execute("PRAGMA journal_mode = WAL").fetchone()
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA fullfsync = ON")  # macOS only; see plait.storage.fsync
        connection.execute("PRAGMA checkpoint_fullfsync = ON")
        connection.execute(f"PRAGMA journal_size_limit = {MAX_LOG_BYTES}")
        connection.execute(f"PRAGMA cache_size = {-64 << 10}")  # KiB
        connection.execute("PRAGMA secure_delete = ON")  # free pages must not show deleted texts
    except BaseException:
        connection.close()
        raise
    return connection

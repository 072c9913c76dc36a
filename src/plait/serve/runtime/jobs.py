"""`StateFile`: jobs and idempotency keys in a SQLite file. The writer alone writes it; every worker reads it, also
while the writer is being restarted."""

from __future__ import annotations

import json
import sqlite3
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from plait.errors import StoreError
from plait.serve.protocol import JobStatus, UnknownJobError, WriteOp
from plait.serve.runtime.ops import KINDS, n_documents, op_fields, op_from

STATE_FILE = "state.sqlite"
VERSION = 1
SCHEMA = """
CREATE TABLE jobs (
    number INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT UNIQUE NOT NULL, index_name TEXT NOT NULL, kind TEXT NOT NULL,
    state TEXT NOT NULL, owner TEXT NOT NULL, documents INTEGER NOT NULL DEFAULT 0, total INTEGER, result TEXT,
    error TEXT, created TEXT NOT NULL, finished TEXT, ended REAL, op TEXT, n_attempts INTEGER NOT NULL DEFAULT 0
);
CREATE TABLE keys (
    owner TEXT NOT NULL, index_name TEXT NOT NULL, key TEXT NOT NULL, digest TEXT NOT NULL, result TEXT, job TEXT,
    created REAL NOT NULL, PRIMARY KEY (owner, index_name, key)
);
"""
COLUMNS = "id, index_name, kind, state, owner, documents, total, result, error, created, finished"


@dataclass(frozen=True, slots=True)
class KeyRecord:
    """What was answered to the first request with an idempotency key."""

    digest: str
    result: Mapping[str, Any] | None
    job: str | None


@dataclass(frozen=True, slots=True)
class OpenJob:
    """A job that had not ended when the writer stopped."""

    id: str
    index: str
    op: WriteOp
    n_attempts: int


class StateFile:
    """For the writer: its threads share one connection."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.path = folder / STATE_FILE
        self._lock = threading.Lock()
        try:
            self._connection = sqlite3.connect(self.path, isolation_level=None, check_same_thread=False, timeout=10)
            self._connection.execute("PRAGMA journal_mode = WAL")
            self._connection.execute("PRAGMA synchronous = FULL")
            version = int(self._connection.execute("PRAGMA user_version").fetchone()[0])
            if version == 0:
                self._connection.executescript(f"BEGIN; {SCHEMA} PRAGMA user_version = {VERSION}; COMMIT;")
        except sqlite3.Error as error:
            raise StoreError(f"{self.path} cannot be used: {error}; remove it to forget jobs and keys") from None
        if version > VERSION:
            raise StoreError(f"{self.path} was made by a newer plait; remove it to forget jobs and keys")

    def close(self) -> None:
        with self._lock:
            self._connection.close()

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._lock:
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield self._connection
            except BaseException:
                self._connection.execute("ROLLBACK")
                raise
            self._connection.execute("COMMIT")

    def add_job(self, id: str, index: str, op: WriteOp, owner: str, key: tuple[str, str] | None) -> JobStatus:
        """Stores a job before its request is answered. `key` is an idempotency key and the digest of its request."""
        created = datetime.now(UTC).isoformat(timespec="seconds")
        kind, total = KINDS[type(op)], n_documents(op)
        with self._transaction() as connection:
            connection.execute(
                "INSERT INTO jobs (id, index_name, kind, state, owner, total, created, op) "
                "VALUES (?, ?, ?, 'queued', ?, ?, ?, ?)",
                (id, index, kind, owner, total, created, json.dumps(op_fields(op))),
            )
            if key is not None:
                _put_key(connection, owner, index, key, None, id)
        return JobStatus(id=id, index=index, kind=kind, state="queued", owner=owner, total=total, created=created)

    def begin_job(self, id: str) -> None:
        with self._transaction() as connection:
            connection.execute("UPDATE jobs SET state = 'running', n_attempts = n_attempts + 1 WHERE id = ?", (id,))

    def report_progress(self, id: str, documents: int) -> None:
        with self._transaction() as connection:
            connection.execute("UPDATE jobs SET documents = ? WHERE id = ?", (documents, id))

    def end_job(self, id: str, *, result: Mapping[str, Any] | None = None, error: str | None = None) -> None:
        with self._transaction() as connection:
            connection.execute(
                "UPDATE jobs SET state = ?, result = ?, error = ?, finished = ?, ended = ?, op = NULL, "
                "documents = CASE WHEN ? AND total IS NOT NULL THEN total ELSE documents END WHERE id = ?",
                (
                    "failed" if result is None else "done",
                    None if result is None else json.dumps(result),
                    error,
                    datetime.now(UTC).isoformat(timespec="seconds"),
                    time.time(),
                    result is not None,
                    id,
                ),
            )

    def open_jobs(self) -> list[OpenJob]:
        """The jobs that have not ended, in the order in which they came."""
        with self._lock:
            rows = self._connection.execute(
                "SELECT id, index_name, op, n_attempts FROM jobs WHERE state IN ('queued', 'running') ORDER BY number"
            ).fetchall()
        return [OpenJob(id, index, op_from(json.loads(op)), n_attempts) for id, index, op, n_attempts in rows]

    def key(self, owner: str, index: str, key: str) -> KeyRecord | None:
        """The record of an idempotency key."""
        with self._lock:
            row = self._connection.execute(
                "SELECT digest, result, job FROM keys WHERE owner = ? AND index_name = ? AND key = ?",
                (owner, index, key),
            ).fetchone()
        return None if row is None else KeyRecord(row[0], json.loads(row[1]) if row[1] else None, row[2])

    def put_key(self, owner: str, index: str, key: tuple[str, str], result: Mapping[str, Any]) -> None:
        """Remembers the answer of a request that has committed."""
        with self._transaction() as connection:
            _put_key(connection, owner, index, key, json.dumps(result), None)

    def expire(self, *, key_hours: float, job_hours: float) -> None:
        """Forgets old keys, and jobs that ended long ago."""
        now = time.time()
        with self._transaction() as connection:
            connection.execute("DELETE FROM keys WHERE created < ?", (now - 3600 * key_hours,))
            connection.execute("DELETE FROM jobs WHERE ended < ?", (now - 3600 * job_hours,))


def _put_key(
    connection: sqlite3.Connection, owner: str, index: str, key: tuple[str, str], result: str | None, job: str | None
) -> None:
    connection.execute(
        "INSERT OR REPLACE INTO keys (owner, index_name, key, digest, result, job, created) "
        "VALUES (?, ?, ?, ?, ?, ?, ?)",
        (owner, index, *key, result, job, time.time()),
    )


def read_job(folder: Path, id: str) -> JobStatus:
    """A job by its id, from any process. UnknownJobError if there is none."""
    try:
        with closing(sqlite3.connect(f"{(folder / STATE_FILE).as_uri()}?mode=ro", uri=True, timeout=5)) as connection:
            row = connection.execute(f"SELECT {COLUMNS} FROM jobs WHERE id = ?", (id,)).fetchone()
    except sqlite3.Error as error:
        raise StoreError(f"{folder / STATE_FILE} cannot be read: {error}") from None
    if row is None:
        raise UnknownJobError(f"there is no job {id!r:.80}; jobs are forgotten some time after they have ended")
    id, index, kind, state, owner, documents, total, result, error_text, created, finished = row
    return JobStatus(
        id=id,
        index=index,
        kind=kind,
        state=state,
        owner=owner,
        documents=documents,
        total=total,
        result=json.loads(result) if result else None,
        error=error_text,
        created=created,
        finished=finished,
    )

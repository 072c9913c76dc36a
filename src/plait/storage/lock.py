"""One writer at a time: an advisory lock on a file. The system releases it when the process ends."""

from __future__ import annotations

import fcntl
import json
import os
import socket
import weakref
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from plait.errors import LockedError

_open_locks: weakref.WeakSet[WriterLock] = weakref.WeakSet()
_watching_forks = False


LOCK = "lock"  # the name of the file


class WriterLock:
    """The lock of one index; it never waits. The file is never removed, or two writers could lock two files."""

    def __init__(self, path: Path) -> None:
        """Raises LockedError if another writer holds the lock, OSError if the file cannot be opened."""
        self._pid = os.getpid()
        self._handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._write_holder(json.dumps({"pid": self._pid, "host": socket.gethostname(), "since": _now()}))
        except BlockingIOError:
            message = _locked_message(path, os.pread(self._handle, 4096, 0))
            os.close(self._handle)
            raise LockedError(message) from None
        except BaseException:
            os.close(self._handle)
            raise
        _open_locks.add(self)
        _watch_forks()

    def _write_holder(self, text: str) -> None:
        """Writes the holder into the file, for error messages only; so a full disk is no error."""
        with suppress(OSError):
            os.ftruncate(self._handle, 0)
            os.pwrite(self._handle, text.encode(), 0)

    def release(self) -> None:
        """A second call does nothing, nor does a call in a forked child."""
        if self._handle < 0:
            return
        if self._pid == os.getpid():
            self._write_holder("")
            # Explicitly: closing the handle alone would keep the lock while a forked child has the handle.
            fcntl.flock(self._handle, fcntl.LOCK_UN)
        self._close()

    def _close(self) -> None:
        os.close(self._handle)
        self._handle = -1


def _watch_forks() -> None:
    """A forked child inherits the handle and would keep the index locked after the parent has died."""
    global _watching_forks
    if not _watching_forks:
        os.register_at_fork(after_in_child=_drop_inherited)
        _watching_forks = True


def _drop_inherited() -> None:
    for lock in list(_open_locks):
        if lock._handle >= 0:
            lock._close()


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _locked_message(path: Path, content: bytes) -> str:
    try:
        holder = json.loads(content)
        who = f"process {holder['pid']} on {holder['host']} since {holder['since']}"
        is_this_process = holder["pid"] == os.getpid() and holder["host"] == socket.gethostname()
    except (ValueError, KeyError, TypeError):  # the holder has not written its name yet
        who, is_this_process = "another process", False
    hint = " (this process: close its open writer)" if is_this_process else ""
    return f"index {path.parent} is being written by {who}{hint}; wait until it has finished, or stop it"

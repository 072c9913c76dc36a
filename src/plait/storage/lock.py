"""One writer at a time: an advisory lock on a file, which the system drops with the process that holds it."""

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

_held: weakref.WeakSet[WriterLock] = weakref.WeakSet()
_watching_forks = False


LOCK = "lock"  # the name of the file


class WriterLock:
    """The lock of one index, taken at once or not at all. The file stays: removing it would let two hold "the" lock."""

    def __init__(self, path: Path) -> None:
        """Takes the lock; raises LockedError if another holds it, OSError if the file cannot be opened."""
        self._pid = os.getpid()
        self._handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._note(json.dumps({"pid": self._pid, "host": socket.gethostname(), "since": _now()}))
        except BlockingIOError:
            message = _refusal(path, os.pread(self._handle, 4096, 0))
            os.close(self._handle)
            raise LockedError(message) from None
        except BaseException:
            os.close(self._handle)
            raise
        _held.add(self)
        _watch_forks()

    def _note(self, text: str) -> None:
        """Says in the file who holds the lock: for people, so a full disk that refuses it stops nobody."""
        with suppress(OSError):
            os.ftruncate(self._handle, 0)
            os.pwrite(self._handle, text.encode(), 0)

    def release(self) -> None:
        """Lets go of the lock; a second call does nothing, and neither does one in a forked child."""
        if self._handle < 0:
            return
        if self._pid == os.getpid():
            self._note("")
            # By name: closing alone would leave it held by a forked child that still has the handle.
            fcntl.flock(self._handle, fcntl.LOCK_UN)
        self._close()

    def _close(self) -> None:
        os.close(self._handle)
        self._handle = -1


def _watch_forks() -> None:
    """A child inherits the handle, and with it the lock: it would keep the index locked after the parent has died."""
    global _watching_forks
    if not _watching_forks:
        os.register_at_fork(after_in_child=_drop_inherited)
        _watching_forks = True


def _drop_inherited() -> None:
    for lock in list(_held):
        if lock._handle >= 0:
            lock._close()


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _refusal(path: Path, note: bytes) -> str:
    try:
        holder = json.loads(note)
        who = f"process {holder['pid']} on {holder['host']} since {holder['since']}"
        own = holder["pid"] == os.getpid() and holder["host"] == socket.gethostname()
    except (ValueError, KeyError, TypeError):  # it has the lock and is about to write its name
        who, own = "another process", False
    ours = " (this process: close the writer that is open)" if own else ""
    return f"index {path.parent} is being written by {who}{ours}; wait until it has finished, or stop it"

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
from plait.storage.folder import check_file

_open_locks: weakref.WeakSet[WriterLock] = weakref.WeakSet()
_watching_forks = False


LOCK = "lock"  # the name of the file
MAX_NOTE = 4096  # bytes


class WriterLock:
    """The lock of one index; it never waits. The file is never removed, or two writers could lock two files."""

    def __init__(self, path: Path) -> None:
        """Raises LockedError if another writer holds the lock, StoreError if the file is a link or a special file,
        OSError if it cannot be opened."""
        self._pid = os.getpid()
        check_file(path)
        # No link is followed even if one was planted since the check, and a FIFO is not waited for.
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        self._handle = os.open(path, flags, 0o666)
        try:
            fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._is_ours = _is_note(self._handle)
            self._write_holder(json.dumps({"pid": self._pid, "host": socket.gethostname(), "since": _now()}))
        except BlockingIOError:
            message = _locked_message(path, os.pread(self._handle, MAX_NOTE, 0))
            os.close(self._handle)
            raise LockedError(message) from None
        except BaseException:
            os.close(self._handle)
            raise
        _open_locks.add(self)
        _watch_forks()

    def _write_holder(self, text: str) -> None:
        """Writes the holder into the file, for error messages only; so a full disk is no error. Bytes that are not
        plait's stay as they are: the file may have another name (a hard link), or be somebody's."""
        if not self._is_ours:
            return
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


def _is_note(handle: int) -> bool:
    """Whether a lock file is empty or holds the note of a writer, and has no second name."""
    if os.fstat(handle).st_nlink > 1:
        return False
    content = os.pread(handle, MAX_NOTE + 1, 0)
    try:
        return not content or (len(content) <= MAX_NOTE and set(json.loads(content)) == {"pid", "host", "since"})
    except (ValueError, TypeError, RecursionError):
        return not content.strip(b"\0")  # after a power cut, a file may have its length and not its bytes


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _locked_message(path: Path, content: bytes) -> str:
    try:
        holder = json.loads(content)
        who = f"process {holder['pid']} on {holder['host']} since {holder['since']}"
        is_this_process = holder["pid"] == os.getpid() and holder["host"] == socket.gethostname()
    except (ValueError, KeyError, TypeError, RecursionError):  # the holder has not written its name yet
        who, is_this_process = "another process", False
    hint = " (this process: close its open writer)" if is_this_process else ""
    return f"index {path.parent} is being written by {who}{hint}; wait until it has finished, or stop it"

"""One writer at a time: an advisory lock on a file. The system releases it when the process ends.

Writers of one process queue: first come, first served. The first of the queue locks the file, and polls it while
another process holds it. Meanwhile it has the folder locked, so that a process that writes all the time does not take
the file again before it.
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
import threading
import time
import weakref
from collections import deque
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from plait.checks import parse_json, shown
from plait.errors import ConfigError, LockedError
from plait.locks import ForkSafeLock
from plait.storage.folder import check_file

LOCK = "lock"  # the name of the file
MAX_NOTE = 4096  # bytes
# The first of all waiting writers polls the file, the others the folder. The interval doubles.
MIN_POLL_SECONDS, MAX_POLL_SECONDS, MAX_FIRST_POLL_SECONDS = 0.001, 0.05, 0.01

_open_locks: weakref.WeakSet[WriterLock] = weakref.WeakSet()
_watching_forks = False


class WriterLock:
    """The lock of one index. The file is never removed, or two writers could lock two files."""

    def __init__(self, path: Path, *, timeout: float = 0.0) -> None:
        """Waits at most `timeout` seconds. Raises LockedError if another writer still holds the lock, StoreError if the
        file is a link or a special file, OSError if it cannot be opened."""
        self._path, self._timeout, self._pid = path, timeout, os.getpid()
        self._handle = self._turnstile = -1
        self._turn: _Turn | None = None
        _open_locks.add(self)  # before there is a handle: a child that is forked while this waits must close it
        _watch_forks()
        deadline = time.monotonic() + timeout
        check_file(path)
        # No link is followed even if one was planted since the check, and a FIFO is not waited for.
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        self._handle = os.open(path, flags, 0o666)
        try:
            self._turn = self._wait_for_turn()
            self._lock_file(deadline)
            self._is_ours = _is_note(self._handle)
            self._write_holder(json.dumps({"pid": self._pid, "host": socket.gethostname(), "since": _now()}))
        except BaseException:
            self._close()
            raise

    def _wait_for_turn(self) -> _Turn:
        state = os.fstat(self._handle)
        turn = _Turn((state.st_dev, state.st_ino))
        try:
            # A thread that is behind itself would wait for itself.
            is_next = turn.is_next.wait(0 if turn.is_behind_same_thread else self._timeout)
        except BaseException:  # KeyboardInterrupt
            turn.end()
            raise
        if not is_next:
            turn.end()
            raise self._locked_error(same_thread=turn.is_behind_same_thread)
        return turn

    def _lock_file(self, deadline: float) -> None:
        if self._timeout:
            with suppress(OSError):  # some network file systems cannot lock folders; then the order is by chance
                self._turnstile = os.open(self._path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
                self._poll(self._turnstile, deadline, MAX_POLL_SECONDS)
        self._poll(self._handle, deadline, MAX_FIRST_POLL_SECONDS)
        self._close_turnstile()

    def _poll(self, handle: int, deadline: float, max_interval: float) -> None:
        interval = MIN_POLL_SECONDS
        while True:
            try:
                return fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                left = deadline - time.monotonic()
                if left <= 0:
                    raise self._locked_error() from None
            time.sleep(min(interval, left))
            interval = min(2 * interval, max_interval)

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
        self._close_turnstile()
        os.close(self._handle)
        self._handle = -1
        if self._turn is not None:
            self._turn.end()

    def _close_turnstile(self) -> None:
        if self._turnstile >= 0:
            if self._pid == os.getpid():
                fcntl.flock(self._turnstile, fcntl.LOCK_UN)
            os.close(self._turnstile)
            self._turnstile = -1

    def _locked_error(self, *, same_thread: bool = False) -> LockedError:
        try:
            holder = parse_json(os.pread(self._handle, MAX_NOTE, 0))
            who = f"process {holder['pid']} on {holder['host']} since {holder['since']}"
            is_this_process = holder["pid"] == os.getpid() and holder["host"] == socket.gethostname()
        except (ValueError, KeyError, TypeError, RecursionError):  # the holder has not written its name yet
            who, is_this_process = "another process", False
        hint = " (this process: another thread, or a writer that was not closed)" if is_this_process else ""
        waited = f" after a wait of {self._timeout:g} seconds" if self._timeout else ""
        if same_thread:
            hint, waited = " (this process and thread: close its open writer)", ""
        return LockedError(
            f"index {self._path.parent} is being written by {who}{hint}{waited}; wait until it has finished, or stop it"
        )


class _Turn:
    """A writer in the queue of its process. It may lock the file when `is_next` is set."""

    def __init__(self, file: tuple[int, int]) -> None:
        """Joins the queue of a lock file, given by device and inode."""
        self._file, self._thread, self.is_next = file, threading.get_ident(), threading.Event()
        with _queues_lock:
            queue = _queues.setdefault(file, deque())
            self.is_behind_same_thread = bool(queue) and queue[0]._thread == self._thread
            queue.append(self)
            queue[0].is_next.set()

    def end(self) -> None:
        """Leaves the queue; the next writer goes on. A second call does nothing."""
        with _queues_lock:
            queue = _queues.get(self._file, deque())
            with suppress(ValueError):
                queue.remove(self)
            if queue:
                queue[0].is_next.set()
            else:
                _queues.pop(self._file, None)


_queues: dict[tuple[int, int], deque[_Turn]] = {}  # by lock file; the first of a queue holds the lock or polls it
_queues_lock = ForkSafeLock()


def check_write_timeout(seconds: float) -> float:
    """The number of seconds to wait for other writers; ConfigError if it is none."""
    is_number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
    if not is_number or not 0 <= seconds <= threading.TIMEOUT_MAX:
        raise ConfigError(
            f"write_timeout is {shown(seconds)}; it must be a number of seconds: 0 to fail at once, 30 to wait for "
            f"half a minute"
        )
    return float(seconds)


def _watch_forks() -> None:
    """A forked child inherits the handle and would keep the index locked after the parent has died."""
    global _watching_forks
    if not _watching_forks:
        os.register_at_fork(after_in_child=_drop_inherited)
        _watching_forks = True


def _drop_inherited() -> None:
    _queues.clear()  # its threads do not exist in the child
    for lock in list(_open_locks):
        if lock._handle >= 0:
            lock._close()


def _is_note(handle: int) -> bool:
    """Whether a lock file is empty or holds the note of a writer, and has no second name."""
    if os.fstat(handle).st_nlink > 1:
        return False
    content = os.pread(handle, MAX_NOTE + 1, 0)
    try:
        return not content or (len(content) <= MAX_NOTE and set(parse_json(content)) == {"pid", "host", "since"})
    except (ValueError, TypeError, RecursionError):
        return not content.strip(b"\0")  # after a power cut, a file may have its length and not its bytes


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")

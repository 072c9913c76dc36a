"""SQLite's write-ahead log: its size, who reads old states from it, and the policy that bounds it.

A commit appends to the log, and the writer copies the log into the database from time to time. It cannot copy what came
after the state that the oldest reader sees, so one reader that never ends lets the log grow with every commit. An
`Index` therefore gives up its snapshot, and takes the newest at its next search, if the log is larger than
MAX_LOG_BYTES and the snapshot is older than MAX_SNAPSHOT_SECONDS and not in use. A snapshot that a caller holds is
never given up.
"""

from __future__ import annotations

import os
import re
import struct
import threading
import time
import weakref
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

MAX_LOG_BYTES = 16 << 20
MAX_SNAPSHOT_SECONDS = 60.0
CHECK_SECONDS = 15.0  # between two looks of the thread that watches idle snapshots
FRAME_HEADER = 24  # bytes of the log before each page

# SQLite's file -shm begins with two headers of 48 bytes, each with the page size at 14 and the last frame at 16. Then
# come the number of frames that were copied to the database, and the last frame that each of five kinds of reader sees.
# A reader locks the byte of its kind. The first kind reads the database alone, which is as new as the copied frames.
SHARED = struct.Struct("<14xHI28x48xI4x4I")
FIRST_READER_LOCK = 123


@dataclass(frozen=True, slots=True)
class LogReader:
    """A process that reads an older state."""

    pid: int
    bytes_behind: int  # of the log, written since that state


@dataclass(frozen=True, slots=True)
class LogState:
    """The write-ahead log of a catalogue."""

    nbytes: int
    oldest_reader: LogReader | None = None  # None if every reader sees the newest state, or if the system does not say


def log_file(catalogue: Path) -> Path:
    return catalogue.with_name(f"{catalogue.name}-wal")


def log_nbytes(catalogue: Path) -> int:
    try:
        return log_file(catalogue).stat().st_size
    except OSError:
        return 0


def log_state(catalogue: Path) -> LogState:
    """The state of the log. A read transaction of this process must be open: SQLite has mapped the shared file then.
    The file must not be opened here, as closing it would drop the locks that SQLite holds on it in this process."""
    nbytes = log_nbytes(catalogue)
    try:
        shared = catalogue.with_name(f"{catalogue.name}-shm")
        readers = _readers(shared.stat().st_ino, _mapped(shared))
    except (OSError, ValueError, struct.error):  # no such file, or another system than Linux
        return LogState(nbytes)
    oldest = max(readers, key=lambda reader: reader.bytes_behind, default=None)
    return LogState(nbytes, oldest if oldest is not None and oldest.bytes_behind > 0 else None)


def _mapped(shared: Path) -> bytes:
    """The start of a file that this process has mapped."""
    import ctypes  # only `info` needs it

    path = str(shared.resolve())
    for line in Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace").splitlines():
        fields = line.split(maxsplit=5)
        if len(fields) == 6 and fields[5] == path and int(fields[2], 16) == 0 and fields[1].startswith("r"):
            return ctypes.string_at(int(fields[0].split("-")[0], 16), SHARED.size)
    raise ValueError(f"{path} is not mapped")


def _readers(inode: int, shared: bytes) -> list[LogReader]:
    page_size, last_frame, *marks = SHARED.unpack(shared)
    frame = (65536 if page_size == 1 else page_size) + FRAME_HEADER
    readers = []
    lines = Path("/proc/locks").read_text(encoding="ascii").splitlines()
    for match in filter(None, (_LOCK.search(line) for line in lines)):
        pid, lock_inode, first, last = (int(field) for field in match.groups())
        for kind, mark in enumerate(marks):
            if lock_inode == inode and first <= FIRST_READER_LOCK + kind <= last and mark <= last_frame:
                readers.append(LogReader(pid, (last_frame - mark) * frame))
    return readers


_LOCK = re.compile(r"POSIX +ADVISORY +READ +(\d+) +[0-9a-f]+:[0-9a-f]+:(\d+) +(\d+) +(\d+)$")


class Releasable(Protocol):
    """What the watcher asks, from its own thread."""

    def release_if_idle(self) -> bool:
        """Gives up an idle snapshot if the log is too large; whether it holds one still."""


class IdleWatcher:
    """A thread that lets idle readers go. It runs while there are snapshots, and ends before a fork."""

    def __init__(self) -> None:
        self._watched: weakref.WeakSet[Releasable] = weakref.WeakSet()
        self._lock, self._stop = threading.Lock(), threading.Event()
        self._thread: threading.Thread | None = None

    def watch(self, holder: Releasable) -> None:
        """From now on, until it holds no snapshot."""
        with self._lock:
            self._watched.add(holder)
            if self._thread is None:
                self._stop = threading.Event()
                arguments = (self._stop,)
                self._thread = threading.Thread(target=self._run, args=arguments, name="plait-idle", daemon=True)
                self._thread.start()

    def _run(self, stop: threading.Event) -> None:
        while not stop.wait(CHECK_SECONDS):
            with self._lock:
                holders = list(self._watched)
            idle = [holder for holder in holders if not holder.release_if_idle()]
            del holders
            with self._lock:
                for holder in idle:
                    self._watched.discard(holder)
                if not self._watched and self._stop is stop:
                    self._thread = None
                    return

    def stop(self) -> None:
        """Ends the thread; the next snapshot starts another."""
        with self._lock:
            thread, self._thread = self._thread, None
            self._stop.set()
        if thread is not None and thread is not threading.current_thread():
            thread.join()

    def forget_locks(self) -> None:
        """In a forked child, where no other thread can hold them."""
        self._lock = threading.Lock()


watcher = IdleWatcher()
os.register_at_fork(before=watcher.stop, after_in_child=watcher.forget_locks)


class LogLimit:
    """Whether a snapshot is to be given up: it is old, and the log is too large. Cheap enough for every search."""

    __slots__ = ("_catalogue", "_next_look")

    def __init__(self, catalogue: Path) -> None:
        self._catalogue = catalogue
        self._next_look = time.monotonic() + MAX_SNAPSHOT_SECONDS

    def is_exceeded(self) -> bool:
        now = time.monotonic()
        if now < self._next_look:
            return False
        self._next_look = now + CHECK_SECONDS / 2
        return log_nbytes(self._catalogue) > MAX_LOG_BYTES

"""When segment files are compared with their checksums: at their first use, once in a process, and not at opening.

A small file is compared before it is used. A large file would delay the first search by seconds. It is compared in the
background, while searches use it; a search that ends after damage was seen is an error. So a search never crashes on
damage, and only the first searches of a large file may rank by damaged values. Merges, compactions, backups and checks
do not rely on this: they compare every file that they read.
"""

from __future__ import annotations

import atexit
import os
import threading
from collections.abc import Iterable

from plait.errors import CorruptIndexError, PlaitError
from plait.storage.segment_file import SegmentFile

MAX_WAITING_BYTES = 256 << 20  # of a file that a search waits for: less than a tenth of a second if it is cached
PAUSE_SECONDS = 0.02  # after every few blocks in the background, which makes about 200 MB a second

# Whether `raise_damage` has anything to do. Searches read this, because calling a function would cost more.
needs_attention = False


class _Stopped(BaseException):
    """The process ends."""


class _Verification:
    """What this process knows of its files. A forked child goes on with the files that its parent has not finished."""

    def __init__(self, pending: Iterable[SegmentFile] = ()) -> None:
        self.lock = threading.Lock()
        self.verified: set[object] = set()
        self.damaged: dict[object, str] = {}
        self.pending = {file.key: file for file in pending}
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def add(self, file: SegmentFile) -> None:
        """Has the file verified in the background."""
        with self.lock:
            self.pending.setdefault(file.key, file)
        self.start()

    def start(self) -> None:
        with self.lock:
            if self._thread is None and self.pending:
                self._thread = threading.Thread(target=self._run, name="plait verification", daemon=True)
                self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        global needs_attention
        while True:
            with self.lock:
                file = next(iter(self.pending.values()), None)
                if file is None:
                    self._thread = None
                    return
            try:
                file.verify(between=self._pause)
            except _Stopped:
                return
            except PlaitError as error:
                self.damaged[file.key] = str(error)
                needs_attention = True
            else:
                self.verified.add(file.key)
            with self.lock:
                del self.pending[file.key]

    def _pause(self) -> None:
        if self._stop.wait(PAUSE_SECONDS):
            raise _Stopped


_state = _Verification()


def verify_before_use(file: SegmentFile) -> None:
    """Compares a file with its checksums, unless this process has done so; a large one in the background."""
    key = file.key
    if key in _state.verified:
        return
    if key in _state.damaged:
        raise CorruptIndexError(_state.damaged[key])
    if file.record.nbytes > MAX_WAITING_BYTES:
        _state.add(file)
        return
    file.verify()
    _state.verified.add(key)


def verify_ends_before_use(file: SegmentFile, name: str) -> None:
    """The same for the first and the last block of an array: for a caller that reads only the ends of it."""
    if file.key not in _state.verified:
        file.verify_ends(name)


def verify_again(file: SegmentFile) -> None:
    """Compares a file with its checksums, whatever this process has seen before: the disk may have changed since."""
    file.verify()
    _state.verified.add(file.key)


def raise_damage(files: Iterable[SegmentFile]) -> None:
    """Raises CorruptIndexError if damage to one of these files was seen in the background."""
    global needs_attention
    _state.start()  # a forked child has the files of its parent, but not the thread
    for file in files:
        if file.key in _state.damaged:
            raise CorruptIndexError(_state.damaged[file.key])
    needs_attention = bool(_state.damaged)


def wait() -> None:
    """Returns when no file waits to be verified; for tests."""
    while _state.pending:
        _state.start()
        threading.Event().wait(0.001)


def forget() -> None:
    """Forgets all files, as a new process would; for tests."""
    global _state, needs_attention
    _state.stop()
    _state, needs_attention = _Verification(), False


def _after_fork() -> None:
    global _state, needs_attention
    before = _state
    _state = _Verification(list(before.pending.values()))
    _state.verified, _state.damaged = before.verified, before.damaged
    needs_attention = bool(_state.pending or _state.damaged)


atexit.register(lambda: _state.stop())
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)

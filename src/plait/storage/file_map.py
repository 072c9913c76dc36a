"""Maps a file for reading. A map keeps no file descriptor open, so an index may have more files than a process may have
descriptors; Python's `mmap` keeps one for each map."""

from __future__ import annotations

import mmap
import os
import stat
from pathlib import Path

from plait import _core
from plait.storage.folder import check_file

Identity = tuple[int, int, int]  # device, inode, time of modification in nanoseconds

ADVICE = "restore the index from a copy, or build it again"
IS_NATIVE = hasattr(_core, "MappedFile")  # not on every system
# A link could name any file, and opening a pipe would wait.
READ_ONLY = os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)


class FileMap:
    """A mapped file. `view` is read-only; the file is unmapped when the last view of it goes."""

    def __init__(self, path: Path) -> None:
        """A missing file is a FileNotFoundError."""
        try:
            self._mapped = (_core.MappedFile if IS_NATIVE else _DescriptorMap)(str(path))
        except (ValueError, OSError):
            check_file(path)  # the usual error for a link or a special file
            raise
        self.identity: Identity = self._mapped.identity
        self.view = memoryview(self._mapped.buffer if isinstance(self._mapped, _DescriptorMap) else self._mapped)

    def release(self, offset: int, nbytes: int) -> None:
        """Drops the pages within this range from the memory of the process; later reads load them again."""
        if not isinstance(self._mapped, _DescriptorMap):
            self._mapped.release(offset, nbytes)


def identity_of(state: os.stat_result) -> Identity:
    return (state.st_dev, state.st_ino, state.st_mtime_ns)


class _DescriptorMap:
    """For systems on which the native module cannot map files."""

    def __init__(self, path: str) -> None:
        handle = os.open(path, READ_ONLY)
        try:
            state = os.fstat(handle)
            if not stat.S_ISREG(state.st_mode):
                raise ValueError("not a regular file")
            self.identity = identity_of(state)
            self.buffer = mmap.mmap(handle, 0, access=mmap.ACCESS_READ) if state.st_size else b""
        finally:
            os.close(handle)

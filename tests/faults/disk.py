"""A disk that fails on request. Every file operation of this process goes through `Disk.do`, which counts it
and, at one chosen count, lets it fail, does half of it, or ends the process as a crash or a power cut would.

`installed` puts it under Python's own files; `faults.sqlite` under those of SQLite.
"""

from __future__ import annotations

import builtins
import errno
import io
import os
import random
import shutil
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, TypeVar

from faults.power import Record

T = TypeVar("T")


class Kind(StrEnum):
    """What happens at the chosen operation."""

    KILLED = "killed"  # the process dies before it
    TORN = "torn"  # the process dies after it; of a write, after half of it
    BROKEN = "broken"  # it fails with EIO and is not done
    LATE = "late"  # it is done, and fails with EIO all the same
    DYING = "dying"  # the same, and the process dies a few operations later: what was taken back may still be there
    SHORT = "short"  # half of a write is done, then there is no space; other operations fail with EIO
    FULL = "full"  # from here on there is no space for anything new
    QUOTA = "quota"  # the same, until something is removed
    READONLY = "readonly"  # from here on nothing can be changed, as after a remount
    HANDLES = "handles"  # for a while the process has no file descriptors left
    UNREADABLE = "unreadable"  # for a while SQLite cannot read: EIO
    POWER = "power"  # the power goes: what was not synced is there, or not, or in part
    LYING = "lying"  # the same, on a disk whose syncs do nothing: data must be lost, or the test cannot fail


HONEST = [kind for kind in Kind if kind is not Kind.LYING]
ENDING = (Kind.KILLED, Kind.TORN, Kind.POWER, Kind.LYING)
GROWING, SHRINKING = ("write", "make"), ("remove", "truncate")
LASTING = (Kind.FULL, Kind.QUOTA, Kind.READONLY, Kind.HANDLES, Kind.UNREADABLE)
LONGEST_DYING, LONGEST_TROUBLE = 12, 30  # operations


@dataclass(frozen=True, slots=True)
class Fault:
    kind: Kind
    at: int  # counted from 1
    seed: int = 0  # of what a power cut leaves, and of how long dying takes
    image: Path | None = None  # where a power cut puts what is left


class Disk:
    """Counts operations, and has one fault or none."""

    def __init__(self, root: Path, fault: Fault | None, *, recording: bool = False) -> None:
        self.n_done, self._is_freed = 0, False
        self._fault = fault
        self.record = Record(root) if recording or (fault is not None and fault.image is not None) else None

    def do(self, what: str, name: str, act: Callable[[], T], half: Callable[[], object] | None = None) -> T:
        """Does one operation (write, make, remove, truncate or sync), or what the fault makes of it."""
        self.n_done += 1
        fault = self._fault
        if fault is None or self.n_done < fault.at:
            return act()
        if fault.kind in LASTING:
            return self._do_on_a_disk_that_refuses(fault.kind, what, name, act)
        if self.n_done > fault.at:
            if fault.kind is Kind.DYING and self.n_done > fault.at + fault.seed % LONGEST_DYING:
                _die()
            return act()
        return self._fail(fault, what, name, act, half or act)

    def _do_on_a_disk_that_refuses(self, kind: Kind, what: str, name: str, act: Callable[[], T]) -> T:
        code = 0
        if kind in (Kind.FULL, Kind.QUOTA) and what in GROWING and not self._is_freed:
            code = errno.EDQUOT if kind is Kind.QUOTA else errno.ENOSPC
        elif kind is Kind.READONLY and what in (*GROWING, *SHRINKING):
            code = errno.EROFS
        elif kind is Kind.HANDLES and what == "make" and self._is_in_trouble:
            code = errno.EMFILE
        if code:
            raise OSError(code, os.strerror(code), name)
        done = act()
        self._is_freed |= kind is Kind.QUOTA and what in SHRINKING
        return done

    @property
    def _is_in_trouble(self) -> bool:
        """Whether trouble that passes is there now."""
        fault = self._fault
        return fault is not None and fault.at <= self.n_done <= fault.at + fault.seed % LONGEST_TROUBLE

    def opening(self, name: str) -> None:
        """A file that exists is being opened."""
        if self._fault is not None and self._fault.kind is Kind.HANDLES and self._is_in_trouble:
            self.n_done += 1  # else a process that only opens files would never get out of it
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), name)

    def reading(self, name: str) -> None:
        """SQLite reads."""
        if self._fault is not None and self._fault.kind is Kind.UNREADABLE and self._is_in_trouble:
            self.n_done += 1
            raise OSError(errno.EIO, os.strerror(errno.EIO), name)

    def _fail(self, fault: Fault, what: str, name: str, act: Callable[[], T], half: Callable[[], object]) -> T:
        match fault.kind:
            case Kind.KILLED:
                _die()
            case Kind.TORN:
                half()
                _die()
            case Kind.POWER | Kind.LYING:
                assert self.record is not None
                assert fault.image is not None
                self.record.write(fault.image, random.Random(fault.seed))
                _die()
            case Kind.LATE | Kind.DYING:
                act()
            case Kind.SHORT if what == "write":
                half()
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), name)
        raise OSError(errno.EIO, os.strerror(errno.EIO), name)

    # -- what a power cut needs to know

    def made(self, handle: int | str) -> None:
        if self.record is not None:
            self.record.made(handle)

    def wrote(self, handle: int | str, offset: int, data: bytes) -> None:
        if self.record is not None:
            self.record.wrote(handle, offset, data)

    def cut(self, handle: int | str, size: int) -> None:
        if self.record is not None:
            self.record.cut(handle, size)

    def removing(self, path: str) -> None:
        if self.record is not None:
            self.record.removing(path)

    def synced(self, handle: int | str) -> None:
        if self.record is not None and (self._fault is None or self._fault.kind is not Kind.LYING):
            self.record.synced(handle)


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class _Raw(io.FileIO):
    """A file whose writes go through the disk."""

    disk: Disk

    def write(self, data: Any) -> int:
        view, offset = memoryview(data).cast("B"), self.tell()

        def write(part: memoryview) -> int:
            n_written = super(_Raw, self).write(part)
            self.disk.wrote(self.fileno(), offset, bytes(part[:n_written]))
            return n_written

        return self.disk.do("write", str(self.name), lambda: write(view), lambda: write(view[: len(view) // 2]))


def _full_path(path: Any, folder: int | None = None) -> str:
    if folder is None:
        return str(os.path.abspath(path))  # noqa: PTH100
    return f"{os.readlink(f'/proc/self/fd/{folder}')}/{os.fspath(path)}"  # noqa: PTH115


@contextmanager
def installed(disk: Disk) -> Iterator[None]:
    """Within it, files that Python opens for writing, and what `os` does to files and folders, go through the disk."""
    real = {name: getattr(os, name) for name in ("fsync", "mkdir", "rmdir", "unlink", "rename", "replace", "link")}
    real |= {name: getattr(os, name) for name in ("ftruncate", "truncate", "pwrite", "remove", "open")}
    real_open: Any = io.open
    copies_in_kernel = shutil._USE_CP_SENDFILE  # type: ignore[attr-defined]

    def opened(file: Any, mode: str = "r", buffering: int = -1, *rest: Any, opener: Any = None, **more: Any) -> Any:
        if not set(mode) & set("wxa+") or "b" not in mode:  # the index writes no text files
            disk.opening(str(file))
            return real_open(file, mode, buffering, *rest, opener=opener, **more)

        def make() -> _Raw:
            is_new = isinstance(file, int) or not os.path.exists(file)  # noqa: PTH110
            raw = _Raw(file, mode.replace("b", ""), opener=opener)
            raw.disk = disk
            if is_new:
                disk.made(raw.fileno())
            elif "w" in mode:
                disk.cut(raw.fileno(), 0)
            return raw

        raw = disk.do("make", str(file), make)
        return io.BufferedRandom(raw) if "+" in mode else io.BufferedWriter(raw)

    def open_handle(path: Any, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        disk.opening(str(path))
        return int(real["open"](path, flags, mode, dir_fd=dir_fd))

    def fsync(handle: int) -> None:
        def sync() -> None:
            real["fsync"](handle)
            disk.synced(handle)

        disk.do("sync", str(handle), sync)

    def mkdir(path: Any, *rest: Any, dir_fd: int | None = None, **more: Any) -> None:
        def make() -> None:
            real["mkdir"](path, *rest, dir_fd=dir_fd, **more)
            disk.made(_full_path(path, dir_fd))

        disk.do("make", str(path), make)

    def removing(name: str) -> Callable[..., None]:
        def remove(path: Any, *, dir_fd: int | None = None) -> None:
            def act() -> None:
                disk.removing(_full_path(path, dir_fd))
                real[name](path, dir_fd=dir_fd)

            disk.do("remove", str(path), act)

        return remove

    def naming(name: str) -> Callable[..., None]:
        def call(source: Any, target: Any, **more: Any) -> None:
            def act() -> None:
                real[name](source, target, **more)
                if disk.record is not None:
                    noted = disk.record.linked if name == "link" else disk.record.moved
                    noted(_full_path(source), _full_path(target))

            disk.do("make", str(target), act)

        return call

    def cutting(name: str) -> Callable[..., None]:
        def call(target: Any, size: int) -> None:
            def act() -> None:
                real[name](target, size)
                disk.cut(target if isinstance(target, int) else _full_path(target), size)

            disk.do("truncate", str(target), act)

        return call

    def pwrite(handle: int, data: bytes, offset: int) -> int:
        def write(part: bytes) -> int:
            n_written = int(real["pwrite"](handle, part, offset))
            disk.wrote(handle, offset, bytes(part[:n_written]))
            return n_written

        return disk.do("write", str(handle), lambda: write(data), lambda: write(data[: len(data) // 2]))

    replaced: dict[str, Callable[..., Any]] = {name: removing(name) for name in ("rmdir", "unlink", "remove")}
    replaced |= {name: naming(name) for name in ("rename", "replace", "link")}
    replaced |= {name: cutting(name) for name in ("ftruncate", "truncate")}
    replaced |= {"fsync": fsync, "mkdir": mkdir, "pwrite": pwrite, "open": open_handle}
    try:
        io.open = builtins.open = opened
        shutil._USE_CP_SENDFILE = False  # type: ignore[attr-defined]
        for name, function in replaced.items():
            setattr(os, name, function)
        yield
    finally:
        io.open = builtins.open = real_open
        shutil._USE_CP_SENDFILE = copies_in_kernel  # type: ignore[attr-defined]
        for name, function in real.items():
            setattr(os, name, function)

"""Puts a disk that fails under SQLite: the functions of its default VFS that make, write, sync, cut and remove files
are replaced in this process, by way of the table that SQLite itself keeps of them."""

from __future__ import annotations

import _sqlite3
import ctypes
import errno
import os
from collections.abc import Callable
from typing import Any

from faults.disk import Disk

OK, FULL, CANTOPEN, IOERR = 0, 13, 14, 10
READ_ONLY, IOERR_READ = 8, IOERR | 1 << 8
CREATE, LOGS = 0x4, 0x800 | 0x80000  # flags of an open: may make the file; it is a journal, or a write-ahead log
FAILED = {"write": IOERR | 3 << 8, "sync": IOERR | 4 << 8, "truncate": IOERR | 6 << 8, "remove": IOERR | 10 << 8}

_pointer, _int, _int64 = ctypes.c_void_p, ctypes.c_int, ctypes.c_int64
# The name of an open is a pointer: SQLite keeps it, and a copy would be gone when the call returns.
_Open = ctypes.CFUNCTYPE(_int, _pointer, _pointer, _pointer, _int, ctypes.POINTER(_int))
_Delete = ctypes.CFUNCTYPE(_int, _pointer, ctypes.c_char_p, _int)
_Write = ctypes.CFUNCTYPE(_int, _pointer, _pointer, _int, _int64)
_Truncate = ctypes.CFUNCTYPE(_int, _pointer, _int64)
_Sync = ctypes.CFUNCTYPE(_int, _pointer, _int)


class _Vfs(ctypes.Structure):
    _fields_ = [
        ("version", _int),
        ("file_size", _int),
        ("longest_path", _int),
        ("next", _pointer),
        ("name", ctypes.c_char_p),
        ("data", _pointer),
        ("open", _Open),
        ("delete", _Delete),
    ]


class _Methods(ctypes.Structure):
    _fields_ = [
        ("version", _int),
        ("close", _pointer),
        ("read", _Write),
        ("write", _Write),
        ("truncate", _Truncate),
        ("sync", _Sync),
        ("rest", _pointer * 13),
    ]


_alive: list[Any] = []  # what SQLite now calls must never be collected


def install(disk: Disk) -> None:
    """From now on, for the life of this process. No connection may be open."""
    library = ctypes.CDLL(_sqlite3.__file__)
    library.sqlite3_vfs_find.restype = ctypes.POINTER(_Vfs)
    vfs = library.sqlite3_vfs_find(None).contents
    real_open, real_delete = _Open(_address(vfs.open)), _Delete(_address(vfs.delete))
    names: dict[int, str] = {}
    tables: dict[int, _Methods] = {}
    fresh: set[int] = set()

    def done(what: str, name: str, act: Callable[[], int], half: Callable[[], object] | None = None) -> int:
        try:
            return disk.do(what, name, act, half)
        except OSError as error:
            if error.errno == errno.EROFS:
                return CANTOPEN if what == "make" else READ_ONLY
            return FULL if error.errno in (errno.ENOSPC, errno.EDQUOT) else FAILED.get(what, CANTOPEN)

    def opened_again(name: str, act: Callable[[], int]) -> int:
        try:
            disk.opening(name)
        except OSError:
            return CANTOPEN
        return act()

    def opened(own: int, path: int | None, file: int, flags: int, answer: Any) -> int:
        if path is None:
            return int(real_open(own, path, file, flags, answer))
        name = os.fsdecode(ctypes.string_at(path))
        is_new = not os.path.exists(name)  # noqa: PTH110

        def act() -> int:
            code = int(real_open(own, path, file, flags, answer))
            if code == OK and is_new and os.path.exists(name):  # noqa: PTH110
                disk.made(name)
            return code

        code = done("make", name, act) if is_new and flags & CREATE else opened_again(name, act)
        slot = ctypes.cast(file, ctypes.POINTER(_pointer))
        if code == OK and slot[0]:
            names[file] = name
            # SQLite syncs the folder of a log that it might have made, together with the first sync of the log.
            (fresh.add if flags & LOGS and flags & CREATE else fresh.discard)(file)
            if slot[0] not in tables:
                tables[slot[0]] = _wrapped(slot[0], names, fresh, disk, done)
            slot[0] = ctypes.addressof(tables[slot[0]])
        return code

    def deleted(own: int, path: bytes, sync: int) -> int:
        name = os.fsdecode(path)

        def act() -> int:
            if os.path.exists(name):  # noqa: PTH110
                disk.removing(name)
            code = int(real_delete(own, path, sync))
            if sync:
                disk.synced(os.path.dirname(name))  # noqa: PTH120
            return code

        return done("remove", name, act)

    vfs.open, vfs.delete = _Open(opened), _Delete(deleted)
    _alive.extend([vfs, vfs.open, vfs.delete, tables, real_open, real_delete])


def _wrapped(table: int, names: dict[int, str], fresh: set[int], disk: Disk, done: Callable[..., int]) -> _Methods:
    real = _Methods.from_address(table)
    write, truncate, sync = _Write(_address(real.write)), _Truncate(_address(real.truncate)), _Sync(_address(real.sync))
    read = _Write(_address(real.read))  # it has the same arguments

    def read_or_fail(file: int, data: int, size: int, offset: int) -> int:
        try:
            disk.reading(names[file])
        except OSError:
            return IOERR_READ
        return int(read(file, data, size, offset))

    def written(file: int, data: int, size: int, offset: int) -> int:
        def act(size: int) -> int:
            code = int(write(file, data, size, offset))
            if code == OK:
                disk.wrote(names[file], offset, ctypes.string_at(data, size))
            return code

        return done("write", names[file], lambda: act(size), lambda: act(size // 2))

    def cut(file: int, size: int) -> int:
        code = int(truncate(file, size))
        if code == OK:
            disk.cut(names[file], size)
        return code

    def synced(file: int, flags: int) -> int:
        def act() -> int:
            code = int(sync(file, flags))
            disk.synced(names[file])
            if file in fresh:
                fresh.remove(file)
                disk.synced(os.path.dirname(names[file]))  # noqa: PTH120
            return code

        return done("sync", names[file], act)

    methods = _Methods()
    ctypes.memmove(ctypes.byref(methods), table, ctypes.sizeof(_Methods))
    methods.write, methods.sync, methods.read = _Write(written), _Sync(synced), _Write(read_or_fail)
    methods.truncate = _Truncate(lambda file, size: done("truncate", names[file], lambda: cut(file, size)))
    _alive.extend([methods, methods.read, methods.write, methods.sync, methods.truncate, read, write, truncate, sync])
    return methods


def _address(function: Any) -> int:
    address = ctypes.cast(function, _pointer).value
    assert address is not None
    return address

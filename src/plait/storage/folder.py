"""The folder of an index holds plain files and plain folders only.

An index may come from a stranger. A symbolic link in it could lead a read, a write or a removal to files of somebody
else, and opening a FIFO would wait for ever. So each entry is checked before it is used, and removals go by descriptors
of folders that are no links. The path of the index itself may be a link: its user chose it. A program that replaces
entries while plait uses them is not guarded against.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
from collections.abc import Iterator, Set
from contextlib import contextmanager
from pathlib import Path

from plait.errors import StoreError
from plait.storage.fsync import make_folders, sync_file

SEGMENTS, ATTACHMENTS = "segments", "attachments"  # folders of numbered folders
SEGMENT_FOLDER = re.compile(r"[0-9]{6,18}")
_SEGMENT_FILE = re.compile(r"[a-z][a-z0-9_]*\.plait")
_MAGIC = b"\x89PLAIT\r\n"  # of a segment file; see plait.storage.segment_file
_ADVICE = "an index has plain files and folders only; do not use this one unless you know who made it"
_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def entry_mode(path: Path) -> int | None:
    """The mode of a file or folder; None if there is none. StoreError if it is a link, FIFO, socket or device."""
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
        raise StoreError(f"{path} is {_kind(mode)}; {_ADVICE}")
    return mode


def check_file(path: Path) -> bool:
    """Whether there is such a file; StoreError if it is anything but a plain file."""
    mode = entry_mode(path)
    if mode is not None and not stat.S_ISREG(mode):
        raise StoreError(f"{path} is a folder and should be a file; {_ADVICE}")
    return mode is not None


def check_folder(path: Path) -> bool:
    """Whether there is such a folder; StoreError if it is anything but a plain folder."""
    mode = entry_mode(path)
    if mode is not None and not stat.S_ISDIR(mode):
        raise StoreError(f"{path} is a file and should be a folder; {_ADVICE}")
    return mode is not None


def check_segment_folder(index: Path, number: int, within: str = SEGMENTS) -> Path:
    """The folder of a segment or an attachment; StoreError if it or its parent is not a plain folder. It need not
    exist."""
    folder = index / within / f"{number:06d}"
    check_folder(folder.parent)
    check_folder(folder)
    return folder


def segment_numbers_on_disk(index: Path, within: str = SEGMENTS) -> list[int]:
    """The numbers of all segment folders, ascending. StoreError if one of them is a link or a special file."""
    folder = index / within
    if not check_folder(folder):
        return []
    names = [entry.name for entry in folder.iterdir() if SEGMENT_FOLDER.fullmatch(entry.name)]
    for name in names:
        check_folder(folder / name)
    # A name with more zeros than plait writes is another folder.
    return sorted(int(name) for name in names if f"{int(name):06d}" == name)


def foreign_entry(index: Path, number: int, within: str = SEGMENTS) -> str | None:
    """The name of a file in a segment folder that plait did not write; None if there is none. StoreError for a link or
    a special file."""
    with _open_within(index, within) as segments, _open_folder(f"{number:06d}", segments) as handle:
        folder = index / within / f"{number:06d}"
        return next((name for name in _names(handle) if not _is_segment_file(folder, name, handle)), None)


def remove_segment_folder(index: Path, number: int, within: str = SEGMENTS) -> bool:
    """Removes a segment folder and the segment files in it. If it has anything else, nothing is removed and the answer
    is False. Follows no link."""
    name = f"{number:06d}"
    with _open_within(index, within) as segments:
        with _open_folder(name, segments) as handle:
            names = _names(handle)
            folder = index / within / name
            if not all(_is_segment_file(folder, entry, handle) for entry in names):
                return False
            for entry in names:
                os.unlink(entry, dir_fd=handle)
        os.rmdir(name, dir_fd=segments)
    return True


def create_segment_folder(folder: Path) -> None:
    """Makes a new folder for a segment and makes its name durable; FileExistsError if the name is taken, be it by a
    link."""
    if not check_folder(folder.parent):
        make_folders(folder.parent)
    with _open_within(folder.parents[1], folder.parent.name) as handle:
        os.mkdir(folder.name, dir_fd=handle)
        sync_file(handle)


def remove_index_copy(folder: Path, names: Set[str]) -> None:
    """Removes a folder that holds at most the parts of an index with these names. StoreError if it has anything else,
    or a link or a special file at any depth; then nothing is removed."""
    if not check_folder(folder):
        return
    for parent, folders, files in os.walk(folder):
        for name in (*folders, *files):
            entry_mode(Path(parent, name))
            if Path(parent) == folder and name not in names:
                raise StoreError(f"{folder} is in the way: it has {name}, which plait did not write; move it away")
    shutil.rmtree(folder)


@contextmanager
def _open_within(index: Path, within: str) -> Iterator[int]:
    """A descriptor of the folder of all segments, or of all attachments."""
    root = os.open(index, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with _open_folder(within, root) as handle:
            yield handle
    finally:
        os.close(root)


@contextmanager
def _open_folder(name: str, parent: int) -> Iterator[int]:
    handle = os.open(name, _FOLDER_FLAGS, dir_fd=parent)
    try:
        yield handle
    finally:
        os.close(handle)


def _names(handle: int) -> list[str]:
    with os.scandir(handle) as entries:
        return sorted(entry.name for entry in entries)


def _is_segment_file(folder: Path, name: str, handle: int) -> bool:
    """Whether plait wrote a file: by its name and its first bytes, which a crash may cut short or leave as zeros."""
    mode = os.stat(name, dir_fd=handle, follow_symlinks=False).st_mode
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
        raise StoreError(f"{folder / name} is {_kind(mode)}; {_ADVICE}")
    if not stat.S_ISREG(mode) or not _SEGMENT_FILE.fullmatch(name):
        return False
    try:
        file = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=handle)
    except PermissionError:
        return False
    try:
        start = os.read(file, len(_MAGIC))
    finally:
        os.close(file)
    return start == _MAGIC[: len(start)] or not any(start)


def _kind(mode: int) -> str:
    for test, name in (
        (stat.S_ISLNK, "a symbolic link"),
        (stat.S_ISFIFO, "a FIFO"),
        (stat.S_ISSOCK, "a socket"),
    ):
        if test(mode):
            return name
    return "a device"

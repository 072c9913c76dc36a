"""What a disk still has after a power cut. A file has what it had when it was last synced, and a folder the names it
had then; all that came later may be there, or not, or in part, whatever the order it was written in."""

from __future__ import annotations

import os
import random
import stat
from itertools import count
from pathlib import Path

SECTOR = 512


class Durable:
    """The state of a folder as its syncs have made it durable."""

    def __init__(self, root: Path) -> None:
        """All that is there now counts as durable."""
        self._root = root
        self._identities = count()
        self._by_inode: dict[int, int] = {}  # inodes are used again, so each file has a number of its own
        self._contents: dict[int, bytes] = {}
        self._names: dict[int, dict[str, int]] = {}
        for folder, _, files in os.walk(root, topdown=False):
            for path in [*(f"{folder}/{file}" for file in files), folder]:
                self.made(path)
                self.synced(path)
        self._top = self._by_inode[root.stat().st_ino]

    def made(self, handle: int | str) -> None:
        """A file or folder is new."""
        facts = _facts(handle)
        identity = self._by_inode[facts.st_ino] = next(self._identities)
        if stat.S_ISDIR(facts.st_mode):
            self._names[identity] = {}
        else:
            self._contents[identity] = b""

    def synced(self, handle: int | str) -> None:
        """A file's content, or a folder's names, are now as they will be found."""
        facts = _facts(handle)
        identity = self._by_inode.get(facts.st_ino)
        if identity is None:
            return  # outside of the folder that is watched
        if stat.S_ISDIR(facts.st_mode):
            self._names[identity] = self._names_now(handle)
        else:
            path = handle if isinstance(handle, str) else f"/proc/self/fd/{handle}"
            self._contents[identity] = Path(path).read_bytes()

    def _names_now(self, folder: int | str) -> dict[str, int]:
        with os.scandir(folder) as entries:
            found = {entry.name: entry.inode() for entry in entries}
        return {name: self._by_inode[inode] for name, inode in found.items() if inode in self._by_inode}

    def write(self, target: Path, rng: random.Random) -> None:
        """Puts one of the states that could be found after a power cut now into a new folder."""
        now = {_facts(path).st_ino: path for path in self._paths()}
        self._now = {identity: now.get(inode) for inode, identity in self._by_inode.items()}
        self._careless = rng.choice([0.0, 0.5, 1.0])  # how much of what was not synced is there all the same
        self._write_folder(self._top, target, rng)

    def _paths(self) -> list[str]:
        walk = list(os.walk(self._root))
        return [folder for folder, _, _ in walk] + [f"{folder}/{file}" for folder, _, own in walk for file in own]

    def _write_folder(self, identity: int, target: Path, rng: random.Random) -> None:
        os.mkdir(target)  # noqa: PTH102
        durable, path = self._names[identity], self._now.get(identity)
        now = {} if path is None else self._names_now(path)
        kept = dict(durable)
        for name in sorted(durable.keys() | now.keys()):
            if durable.get(name) != now.get(name) and rng.random() < self._careless:
                kept.pop(name, None)
                if name in now:
                    kept[name] = now[name]
        for name, own in kept.items():
            if own in self._names:
                self._write_folder(own, target / name, rng)
            else:
                _put(target / name, self._content(own, rng))

    def _content(self, identity: int, rng: random.Random) -> bytes:
        durable, path = self._contents[identity], self._now.get(identity)
        now = durable if path is None else Path(path).read_bytes()
        if now == durable or rng.random() >= self._careless:
            return durable
        if rng.random() < 0.5:
            return now
        size = len(rng.choice([durable, now]))
        padded = [content.ljust(size, b"\0") for content in (durable, now)]
        sectors = range(0, size, SECTOR)
        return b"".join(rng.choice(padded)[start : start + SECTOR] for start in sectors)[:size]


def _facts(handle: int | str) -> os.stat_result:
    return os.fstat(handle) if isinstance(handle, int) else Path(handle).stat()


def _put(path: Path, content: bytes) -> None:
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    try:
        while content:
            content = content[os.write(handle, content) :]
    finally:
        os.close(handle)

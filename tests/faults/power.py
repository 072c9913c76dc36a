"""What a disk may still have after a power cut, from a record of all that was done to it.

A file has what it had when it was last synced. Each later write or truncation may have reached the disk or not, in any
combination, and a write may have reached it in part; so every intermediate version can be found. A folder has the names
of its last sync, and each later name may be there or not. A name and the content behind it are synced apart.
"""

from __future__ import annotations

import os
import random
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

SECTOR = 512
TORN_SHARE = 0.2  # of the writes that are not synced, and of which sectors are missing
CARELESS = (0.0, 0.0, 0.1, 0.5, 0.9, 1.0)  # how much of what was not synced is there all the same

Node = int  # a file or folder; inodes are used again, so each has a number of its own
Image = dict[str, bytes | None]  # what is on the disk, by relative path; None is a folder


@dataclass(frozen=True, slots=True)
class Write:
    node: Node
    offset: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Cut:
    node: Node
    size: int


@dataclass(frozen=True, slots=True)
class Enter:
    """A folder gets a name, of a new file or of one that exists."""

    node: Node
    name: str
    target: Node


@dataclass(frozen=True, slots=True)
class Leave:
    node: Node
    name: str


@dataclass(frozen=True, slots=True)
class Move:
    """A name becomes another one of the same folder, in one step."""

    node: Node
    name: str
    new_name: str


@dataclass(frozen=True, slots=True)
class Sync:
    node: Node


@dataclass(frozen=True, slots=True)
class Mark:
    """The command said that it is done."""

    label: str


FileChange = Write | Cut
FolderChange = Enter | Leave | Move
Operation = FileChange | FolderChange | Sync | Mark


@dataclass(slots=True)
class Start:
    """The disk at first; all of it counts as durable."""

    top: Node
    contents: dict[Node, bytes] = field(default_factory=dict)
    names: dict[Node, dict[str, Node]] = field(default_factory=dict)


class Record:
    """Everything that was done to the files below a folder, in order."""

    def __init__(self, root: Path) -> None:
        self.operations: list[Operation] = []
        self._n_nodes = 0
        self._by_inode: dict[int, Node] = {}
        self.start = Start(0)
        for folder, folders, files in os.walk(root, topdown=False):
            for name in files:
                node = self._new(f"{folder}/{name}")
                self.start.contents[node] = Path(folder, name).read_bytes()
            names = {name: self._by_inode[_facts(f"{folder}/{name}").st_ino] for name in [*folders, *files]}
            self.start.names[self._new(folder)] = names
        self.start.top = self._by_inode[root.stat().st_ino]

    def _new(self, handle: int | str) -> Node:
        self._n_nodes += 1
        self._by_inode[_facts(handle).st_ino] = self._n_nodes
        return self._n_nodes

    def _node(self, handle: int | str) -> Node | None:
        """None for what is outside of the folder, or was not made through the record, such as a lock."""
        try:
            return self._by_inode.get(_facts(handle).st_ino)
        except FileNotFoundError:
            return None

    def _parent(self, path: str) -> tuple[Node | None, str]:
        folder, name = os.path.split(path)
        return self._node(folder), name

    def made(self, handle: int | str) -> None:
        """A file or folder is new."""
        folder, name = self._parent(_path(handle))
        if folder is not None:
            node = self._new(handle)
            if stat.S_ISDIR(_facts(handle).st_mode):
                self.start.names[node] = {}
            else:
                self.start.contents[node] = b""
            self.operations.append(Enter(folder, name, node))

    def linked(self, source: str, target: str) -> None:
        (folder, name), node = self._parent(target), self._node(source)
        if folder is not None and node is not None:
            self.operations.append(Enter(folder, name, node))

    def removing(self, path: str) -> None:
        """A name will be removed: called before it is."""
        (folder, name), node = self._parent(path), self._node(path)
        if folder is not None and node is not None:
            self.operations.append(Leave(folder, name))
            facts = _facts(path)
            if stat.S_ISDIR(facts.st_mode) or facts.st_nlink == 1:
                self._by_inode.pop(facts.st_ino, None)

    def moved(self, source: str, target: str) -> None:
        folder, name = self._parent(source)
        new_folder, new_name = self._parent(target)
        if folder is not None:
            assert folder == new_folder, "the index moves nothing from one folder to another"
            self.operations.append(Move(folder, name, new_name))

    def wrote(self, handle: int | str, offset: int, data: bytes) -> None:
        node = self._node(handle)
        if node is not None:
            self.operations.append(Write(node, offset, data))

    def cut(self, handle: int | str, size: int) -> None:
        node = self._node(handle)
        if node is not None:
            self.operations.append(Cut(node, size))

    def synced(self, handle: int | str) -> None:
        node = self._node(handle)
        if node is not None:
            self.operations.append(Sync(node))

    def marked(self, label: str) -> None:
        self.operations.append(Mark(label))

    # -- what a power cut leaves

    def write(self, target: Path, rng: random.Random) -> None:
        """Puts one of the states that could be found after a power cut now into a new folder."""
        replay = Replay(self.start, self.operations)
        replay.advance(len(self.operations))
        write_image(replay.image(rng), target)


class Replay:
    """The record up to one operation: what is durable, and what came later."""

    def __init__(self, start: Start, operations: list[Operation], *, lying: bool = False) -> None:
        self._operations, self._lying = operations, lying
        self._top, self._done = start.top, 0
        self._contents = dict(start.contents)
        self._names = {node: dict(names) for node, names in start.names.items()}
        self._pending: dict[Node, list[Operation]] = {}
        self.marks: list[str] = []

    def advance(self, to: int) -> None:
        for operation in self._operations[self._done : to]:
            if isinstance(operation, Mark):
                self.marks.append(operation.label)
            elif not isinstance(operation, Sync):
                self._pending.setdefault(operation.node, []).append(operation)
            elif not self._lying:
                changes = self._pending.pop(operation.node, [])
                if operation.node in self._names:
                    self._names[operation.node] = _renamed(self._names[operation.node], changes)
                else:
                    self._contents[operation.node] = _rewritten(self._contents[operation.node], changes)
        self._done = to

    def image(self, rng: random.Random) -> Image:
        """One of the states that may be found if the power goes now."""
        careless, in_order = rng.choice(CARELESS), rng.random() < 0.3
        image: Image = {}
        for path, node in self._walk("", self._top, careless, rng, in_order=in_order):
            if node in self._names:
                image[path] = None
            else:
                changes = _some(self._pending.get(node, []), careless, rng, in_order=in_order)
                image[path] = _rewritten(self._contents[node], changes, rng)
        return image

    def _walk(
        self, path: str, folder: Node, careless: float, rng: random.Random, *, in_order: bool
    ) -> Iterator[tuple[str, Node]]:
        changes = _some(self._pending.get(folder, []), careless, rng, in_order=in_order)
        for name, node in sorted(_renamed(self._names[folder], changes).items()):
            below = f"{path}/{name}" if path else name
            yield below, node
            if node in self._names:
                yield from self._walk(below, node, careless, rng, in_order=in_order)


def _some(changes: list[Operation], share: float, rng: random.Random, *, in_order: bool) -> list[Operation]:
    """Some of the changes: a part from the first on, or any of them."""
    if in_order:
        return changes[: rng.randint(0, len(changes))]
    return [change for change in changes if rng.random() < share]


def _renamed(names: dict[str, Node], changes: list[Operation]) -> dict[str, Node]:
    names = dict(names)
    for change in changes:
        match change:
            case Enter(_, name, target):
                names[name] = target
            case Leave(_, name):
                names.pop(name, None)
            case Move(_, name, new_name):
                if name in names:
                    names[new_name] = names.pop(name)
    return names


def _rewritten(content: bytes, changes: list[Operation], rng: random.Random | None = None) -> bytes:
    if not changes:
        return content
    data = bytearray(content)
    for change in changes:
        match change:
            case Cut(_, size):
                del data[size:]
                data.extend(bytes(size - len(data)))
            case Write(_, offset, written):
                data.extend(bytes(max(0, offset + len(written) - len(data))))
                if rng is None or rng.random() >= TORN_SHARE:
                    data[offset : offset + len(written)] = written
                    continue
                for start in range(0, len(written), SECTOR):
                    if rng.random() < 0.5:
                        piece = written[start : start + SECTOR]
                        data[offset + start : offset + start + len(piece)] = piece
    return bytes(data)


def write_image(image: Image, target: Path) -> None:
    """Writes an image into a new folder. Uses no function that `faults.disk` replaces."""
    os.makedirs(target)  # noqa: PTH103
    for path, content in image.items():
        if content is None:
            _mkdir(target / path)
        else:
            _put(target / path, content)


_mkdir = os.mkdir


def _facts(handle: int | str) -> os.stat_result:
    return os.fstat(handle) if isinstance(handle, int) else os.stat(handle)  # noqa: PTH116


def _path(handle: int | str) -> str:
    return os.readlink(f"/proc/self/fd/{handle}") if isinstance(handle, int) else handle  # noqa: PTH115


def _put(path: Path, content: bytes) -> None:
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    try:
        while content:
            content = content[os.write(handle, content) :]
    finally:
        os.close(handle)

"""Ids of files: the path below the folder that was given, the root.

An index remembers its roots. The ids of the first root have no prefix; those of every other begin with its name, so
that README.md of two folders are two documents. A file is in one root only, however its path is written: a folder
inside a known root belongs to that root. So a file has one id, and two files never share one.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from plait.errors import SourceError


@dataclass(frozen=True, slots=True)
class Root:
    """A folder whose files are documents."""

    name: str  # one root of an index has it
    path: str  # absolute, without links
    prefix: str  # of the ids of its files: empty, or the name and /

    def id_of(self, relative: str) -> str:
        return self.prefix + relative


@dataclass(frozen=True, slots=True)
class Start:
    """Where to look for files: a folder, or a single file, of a root."""

    root: Root
    path: str  # absolute
    is_file: bool
    given: str  # as the user wrote it, for messages

    @property
    def relative(self) -> str:
        """Its path below the root; "." for the root itself."""
        return Path(os.path.relpath(self.path, self.root.path)).as_posix()


def starts_for(paths: Sequence[str | Path], known: Sequence[Root] = (), name: str | None = None) -> list[Start]:
    """A start for each path, in order; those inside another are left out. New roots get a name and a prefix.

    `name` is the name of the root: a known root of that name has moved here.
    """
    located = _without_nested([_located(path) for path in paths])
    folders = list(dict.fromkeys(folder for folder, _, _ in located))
    roots = {root.path: root for root in known}
    if name is not None:
        roots = _named(folders, roots, name)
    new = [folder for folder in folders if _root_of(folder, roots.values()) is None]
    new = [folder for folder in new if not any(_is_inside(folder, other) for other in new if other != folder)]
    for folder in new:
        is_only = not roots and len(new) == 1
        unique = _unique_name(folder, roots.values())
        roots[folder] = Root(unique, folder, "" if is_only else f"{unique}/")
    return [Start(_known_root(folder, roots.values()), path, path != folder, given) for folder, path, given in located]


def _located(given: str | Path) -> tuple[str, str, str]:
    """The folder, the path and the words of the user. A link is followed where it is the folder, not where it is the
    file, whose name would change."""
    path = Path(given)
    if path.is_dir():
        folder = str(path.resolve())
        return folder, folder, str(given)
    if not path.exists():
        raise SourceError(f"there is no file or folder {str(given)!r}")
    return str(path.parent.resolve()), str(path.parent.resolve() / path.name), str(given)


def _without_nested(located: Iterable[tuple[str, str, str]]) -> list[tuple[str, str, str]]:
    """Each path once, without folders inside other folders. A file inside a folder stays: it was named, and is read
    even if the folder would leave it out."""
    unique = list({path: (folder, path, given) for folder, path, given in located}.values())
    folders = [path for folder, path, _ in unique if folder == path]
    return [
        (folder, path, given)
        for folder, path, given in unique
        if folder != path or not any(_is_inside(path, other) for other in folders if other != path)
    ]


def _named(folders: list[str], roots: dict[str, Root], name: str) -> dict[str, Root]:
    if len(folders) != 1:
        raise SourceError(f"the name {name!r} is for one folder, and {len(folders)} were given; sync them one by one")
    if not name or "/" in name or name.startswith("."):
        raise SourceError(f"{name!r} cannot name a folder in the index; use letters, digits, - and _")
    others = {path: root for path, root in roots.items() if root.name != name}
    before = next((root for root in roots.values() if root.name == name), None)
    if before is None and folders[0] in roots:
        raise SourceError(f"{folders[0]} has the name {roots[folders[0]].name!r} in this index; use that name")
    prefix = before.prefix if before else f"{name}/" if others else ""
    return {**others, folders[0]: Root(name, folders[0], prefix)}


def root_of(path: str, roots: Iterable[Root]) -> Root | None:
    """The innermost root that has a path."""
    return _root_of(path, roots)


def _root_of(path: str, roots: Iterable[Root]) -> Root | None:
    around = [root for root in roots if path == root.path or _is_inside(path, root.path)]
    return max(around, key=lambda root: len(root.path), default=None)


def _known_root(path: str, roots: Iterable[Root]) -> Root:
    root = _root_of(path, roots)
    assert root is not None
    return root


def _is_inside(path: str, folder: str) -> bool:
    return path.startswith(folder if folder.endswith(os.sep) else folder + os.sep)


def _unique_name(folder: str, roots: Iterable[Root]) -> str:
    """The name of the folder; with the folders above it if another root has the name, or if the ids of a root without a
    prefix may begin so."""
    roots = list(roots)
    taken = {root.name for root in roots}
    bare = [root.path for root in roots if not root.prefix]
    parts = Path(folder).parts[1:] or ("root",)
    for n_parts in range(1, len(parts) + 1):
        name = "/".join(parts[-n_parts:])
        if name not in taken and not any(Path(path, parts[-n_parts]).exists() for path in bare):
            return name
    number = 2
    while f"{parts[-1]}-{number}" in taken:
        number += 1
    return f"{parts[-1]}-{number}"

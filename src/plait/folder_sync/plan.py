"""What a sync has to do: the files of the folders compared with the documents of the index. Nothing is written here."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from plait.errors import SourceError
from plait.readers.formats import suffix_of
from plait.readers.roots import Root
from plait.readers.sources import SourceReport, Sources, content_hash
from plait.readers.walk import SourceFile
from plait.storage.origins import Rows, StoredRoot, UnreadFile, read_origins

FileKey = tuple[str, str]  # the name of a root, and the path below it


@dataclass(slots=True)
class FileState:
    """A file as the index knows it."""

    size: int
    mtime_ns: int
    digest: str
    ids: list[str] = field(default_factory=list)  # of its documents, in the order of the file


@dataclass(frozen=True, slots=True)
class Move:
    """A file whose content the index has: under another path, or with another time under its own."""

    file: SourceFile
    digest: str
    key: FileKey  # where the index has it
    ids: tuple[str, ...]


@dataclass(slots=True)
class SyncPlan:
    """Files by what is to be done. A file is in one list; `removed` and `changed` have the ids of their documents."""

    added: list[SourceFile] = field(default_factory=list)
    changed: list[SourceFile] = field(default_factory=list)
    moved: list[Move] = field(default_factory=list)
    touched: list[Move] = field(default_factory=list)  # same path and content, another time
    removed: dict[FileKey, FileState] = field(default_factory=dict)
    before: dict[FileKey, FileState] = field(default_factory=dict)  # the files of the index below these folders
    n_unchanged: int = 0
    n_files: int = 0  # in the folders
    unread: dict[FileKey, UnreadFile] = field(default_factory=dict)  # known, and as they were: not read again
    unread_names: dict[FileKey, str] = field(default_factory=dict)
    tops: list[FileKey] = field(default_factory=list)  # the folders and files that were compared

    @property
    def is_empty(self) -> bool:
        """Whether the documents are as the files are."""
        return not (self.added or self.changed or self.moved or self.touched or self.removed)

    @property
    def to_read(self) -> list[SourceFile]:
        return [*self.added, *self.changed]


def key_of(file: SourceFile) -> FileKey:
    assert file.root is not None
    return file.root.name, file.relative


def make_plan(rows: Rows, sources: Sources, stored: Sequence[StoredRoot], report: SourceReport) -> SyncPlan:
    """Compares the files of the sources with the index. The report counts files of folders that are left out."""
    plan = SyncPlan(tops=[(start.root.name, start.relative) for start in sources.starts])
    plan.before = _states(rows, plan.tops)
    known_unread = {(root.name, path): file for root in stored for path, file in root.unread.items()}
    paths = {root.name: root.path for root in stored}
    different: list[SourceFile] = []
    seen: set[FileKey] = set()
    for file in sources.files(report):
        key = key_of(file)
        seen.add(key)
        plan.n_files += 1
        state, unread = plan.before.get(key), known_unread.get(key)
        if unread is not None and (unread.size, unread.mtime_ns) == (file.size, file.mtime_ns):
            plan.unread[key], plan.unread_names[key] = unread, file.name
        elif state is not None and (state.size, state.mtime_ns) == (file.size, file.mtime_ns):
            assert file.root is not None
            if paths.get(file.root.name, file.root.path) == file.root.path:
                plan.n_unchanged += 1
            else:  # the folder was moved, and so was the file
                plan.touched.append(Move(file, state.digest, key, tuple(state.ids)))
        else:
            different.append(file)
    gone = {key: state for key, state in plan.before.items() if key not in seen}
    plan.removed = {key: state for key, state in gone.items() if not _is_below(key, sources)}
    _sort_out(plan, different, report)
    return plan


def _states(rows: Rows, tops: Sequence[FileKey]) -> dict[FileKey, FileState]:
    """The files that the index has below some folders."""
    states: dict[FileKey, FileState] = {}
    for root in dict.fromkeys(name for name, _ in tops):
        for id, origin in read_origins(rows, root):
            if _is_under(tops, root, origin.path):
                key = (root, origin.path)
                if key not in states:
                    states[key] = FileState(origin.size, origin.mtime_ns, origin.digest)
                states[key].ids.append(id)
    return states


def _is_below(key: FileKey, sources: Sources) -> bool:
    """Whether a file is in a folder that cannot be read now: nobody knows whether it is gone."""
    root = next(root for root in sources.roots if root.name == key[0])
    path = f"{root.path.rstrip('/')}/{key[1]}"
    return any(path == folder or path.startswith(f"{folder}/") for folder in sources.unreadable)


def _sort_out(plan: SyncPlan, different: list[SourceFile], report: SourceReport) -> None:
    """Puts files that are new or differ in size or time into the lists of the plan, by their content."""
    candidates = _Candidates(plan, {key_of(file) for file in different})
    for file in different:
        key = key_of(file)
        state = plan.before.get(key)
        try:
            digest = content_hash(file) if state is not None or candidates.may_have(file) else ""
        except SourceError as error:
            report.add_error(error, file.name)
            continue
        if state is not None and digest and state.digest == digest:
            candidates.forget(key)
            plan.touched.append(Move(file, digest, key, tuple(state.ids)))
        elif digest and (match := candidates.take(digest)) is not None:
            plan.moved.append(Move(file, digest, match, tuple(plan.before[match].ids)))
        elif state is not None:
            plan.changed.append(file)
        else:
            plan.added.append(file)
    for move in plan.moved:
        plan.removed.pop(move.key, None)


class _Candidates:
    """Contents of the index that no file has at its path any more, by digest."""

    def __init__(self, plan: SyncPlan, different: set[FileKey]) -> None:
        self._keys: dict[str, list[FileKey]] = {}
        self._sizes: set[tuple[str, int]] = set()
        for key, state in plan.before.items():
            if state.digest and (key in plan.removed or key in different):
                self._keys.setdefault(state.digest, []).append(key)
                self._sizes.add((suffix_of(key[1]), state.size))

    def may_have(self, file: SourceFile) -> bool:
        """Whether a content of this size is there; if not, the file need not be read."""
        return (suffix_of(file.relative), file.size) in self._sizes

    def take(self, digest: str) -> FileKey | None:
        keys = self._keys.get(digest)
        return keys.pop(0) if keys else None

    def forget(self, key: FileKey) -> None:
        for keys in self._keys.values():
            if key in keys:
                keys.remove(key)


def unread_by_root(
    stored: Sequence[StoredRoot], roots: Sequence[Root], plan: SyncPlan, new_unread: Mapping[FileKey, UnreadFile]
) -> Iterator[StoredRoot]:
    """The roots as they are to be saved: with the files that have no document, also those of other syncs."""
    before = {root.name: root for root in stored}
    seen = {*plan.unread, *new_unread}
    for root in roots:
        old = before[root.name].unread if root.name in before else {}
        known = {path: file for (name, path), file in plan.unread.items() if name == root.name}
        new = {path: file for (name, path), file in new_unread.items() if name == root.name}
        elsewhere = {
            path: file
            for path, file in old.items()
            if (root.name, path) not in seen and not _is_under(plan.tops, root.name, path)
        }
        yield StoredRoot(root.name, root.path, root.prefix, dict(sorted({**elsewhere, **known, **new}.items())))


def _is_under(tops: Sequence[FileKey], root: str, path: str) -> bool:
    return any(name == root and (top == "." or path == top or path.startswith(f"{top}/")) for name, top in tops)

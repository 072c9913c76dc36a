"""Finds the files of folders: in order, without links, hidden files, what .gitignore names, and other indexes."""

from __future__ import annotations

import os
import stat
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from plait.errors import SourceError
from plait.readers.given import ReadOptions
from plait.readers.globs import Glob, matches, parse_globs
from plait.readers.roots import Root, Start, root_of
from plait.storage.connection import CATALOGUE

STDIN = "-"
MAX_GITIGNORE = 1_000_000  # bytes
MAX_DEPTH = 200  # of folders in folders
_CORPUS = ("corpus.jsonl", "corpus.jsonl.gz")
_QUERIES = ("queries.jsonl", "queries.jsonl.gz", "qrels")


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A file to read."""

    path: str | None  # absolute; None is standard input
    name: str  # for messages: as the user wrote it
    root: Root | None
    relative: str  # below the root, with /
    size: int = 0
    mtime_ns: int = 0
    is_named: bool = False  # by the user, rather than found in a folder

    @property
    def id(self) -> str:
        """Of the document, if the file is one document."""
        return self.relative if self.root is None else self.root.id_of(self.relative)


@dataclass(slots=True)
class Walk:
    """The files of some starts. `skipped` counts what was left out, by reason, while files are found."""

    starts: Sequence[Start]
    roots: Sequence[Root]
    options: ReadOptions
    skipped: Counter[str] = field(default_factory=Counter)
    problems: list[SourceError] = field(default_factory=list)
    unreadable: list[str] = field(default_factory=list)  # absolute paths of files and folders that cannot be read
    _seen: set[tuple[int, int]] = field(default_factory=set)  # folders, so that links make no loop
    _files: set[str] = field(default_factory=set)  # absolute paths, so that no file comes twice

    def files(self) -> Iterator[SourceFile]:
        """Files as named; those of a folder by name, then those of its subfolders."""
        include, exclude = parse_globs(self.options.include), parse_globs(self.options.exclude)
        for start in self.starts:
            if start.is_file:
                yield from self._named_file(start)
            else:
                globs = _Globs(start.path, include, exclude)
                rules = _rules_above(start.path) if self.options.gitignore else []
                yield from self._folder(start.path, start.given, rules, globs, 0)

    def _named_file(self, start: Start) -> Iterator[SourceFile]:
        details = Path(start.path).stat()
        if not stat.S_ISREG(details.st_mode):
            raise SourceError(f"{start.given} is not a regular file; name files and folders")
        if start.path not in self._files:
            self._files.add(start.path)
            size, mtime_ns = details.st_size, details.st_mtime_ns
            yield SourceFile(start.path, start.given, start.root, start.relative, size, mtime_ns, is_named=True)

    def _folder(self, folder: str, shown: str, rules: list[_Rules], globs: _Globs, depth: int) -> Iterator[SourceFile]:
        try:
            with os.scandir(folder) as listing:
                entries = sorted(listing, key=lambda entry: entry.name)
        except OSError as error:
            self._cannot_read(folder, f"cannot read the folder {shown}: {error.strerror}")
            return
        names = {entry.name for entry in entries}
        if CATALOGUE in names:
            self.skipped["plait indexes"] += 1
            return
        if depth > MAX_DEPTH:
            self._cannot_read(folder, f"{shown} is more than {MAX_DEPTH} folders deep")
            return
        if self.options.gitignore and ".gitignore" in names:
            rules = [*rules, _Rules(folder, _gitignore(folder))]
        corpus = _beir_corpus(names)
        subfolders = []
        for entry in entries:
            if corpus is not None and entry.name != corpus:
                continue
            if entry.name.startswith(".") and not self.options.hidden:
                self.skipped["hidden"] += 1
                continue
            kind = self._kind(entry)
            if kind and self._is_wanted(entry, rules, globs, is_folder=kind == "folder"):
                if kind == "folder":
                    subfolders.append(entry)
                else:
                    yield from self._file(entry, f"{shown.rstrip('/')}/{entry.name}")
        for entry in subfolders:
            yield from self._folder(entry.path, f"{shown.rstrip('/')}/{entry.name}", rules, globs, depth + 1)

    def _cannot_read(self, path: str, problem: str) -> None:
        self.problems.append(SourceError(problem))
        self.unreadable.append(path)

    def _kind(self, entry: os.DirEntry[str]) -> str:
        """ "file" or "folder"; empty for what is left out."""
        try:
            if entry.is_symlink():
                if not self.options.follow_links:
                    self.skipped["links"] += 1
                    return ""
                if not Path(entry.path).exists():
                    self.skipped["broken links"] += 1
                    return ""
            details = entry.stat()
        except OSError as error:
            self._cannot_read(entry.path, f"cannot read {entry.path}: {error.strerror}")
            return ""
        if stat.S_ISDIR(details.st_mode):
            key = (details.st_dev, details.st_ino)
            if self.options.follow_links and key in self._seen:
                self.skipped["links to folders that were read"] += 1
                return ""
            self._seen.add(key)
            return "folder"
        if not stat.S_ISREG(details.st_mode):
            self.skipped["not regular files"] += 1
            return ""
        return "file"

    def _is_wanted(self, entry: os.DirEntry[str], rules: list[_Rules], globs: _Globs, *, is_folder: bool) -> bool:
        if entry.name == ".git" and is_folder:
            return False
        path = _below(entry.path, globs.folder)
        if globs.exclude and matches(globs.exclude, path, is_folder=is_folder):
            self.skipped["excluded"] += 1
            return False
        if not is_folder and globs.include and not matches(globs.include, path, is_folder=False):
            self.skipped["not included"] += 1
            return False
        for rule in reversed(rules):  # the innermost file that names a path decides
            verdict = matches(rule.globs, _below(entry.path, rule.folder), is_folder=is_folder)
            if verdict is not None:
                self.skipped["ignored by .gitignore"] += verdict
                return not verdict
        return True

    def _file(self, entry: os.DirEntry[str], shown: str) -> Iterator[SourceFile]:
        path = entry.path
        if self.options.follow_links:
            path = os.path.realpath(path)
        if path in self._files:
            return
        self._files.add(path)
        try:
            os.fsencode(entry.name).decode()
        except UnicodeDecodeError:
            self.problems.append(SourceError(f"the name of {shown!r} is not UTF-8; rename the file"))
            return
        root = root_of(entry.path, self.roots)
        details = entry.stat()
        relative = entry.name if root is None else _below(entry.path, root.path)
        yield SourceFile(entry.path, shown, root, relative, details.st_size, details.st_mtime_ns)


@dataclass(frozen=True, slots=True)
class _Globs:
    """The globs of the user, for paths below a folder that was given."""

    folder: str
    include: list[Glob]
    exclude: list[Glob]


@dataclass(frozen=True, slots=True)
class _Rules:
    """The globs of a .gitignore file."""

    folder: str  # absolute; the globs are for paths below it
    globs: list[Glob]


def _below(path: str, folder: str) -> str:
    return path.removeprefix(folder.rstrip(os.sep) + os.sep).replace(os.sep, "/")


def _gitignore(folder: str) -> list[Glob]:
    try:
        with Path(folder, ".gitignore").open("rb") as file:
            return parse_globs(file.read(MAX_GITIGNORE).decode("utf-8", errors="replace").splitlines())
    except OSError:
        return []


def _rules_above(folder: str) -> list[_Rules]:
    """The .gitignore files between the folder and the top of its git repository, outermost first."""
    above = [Path(folder), *Path(folder).parents]
    top = next((number for number, path in enumerate(above) if (path / ".git").exists()), 0)
    return [_Rules(str(path), globs) for path in reversed(above[1 : top + 1]) if (globs := _gitignore(str(path)))]


def _beir_corpus(names: Iterable[str]) -> str | None:
    """The corpus file of a BEIR folder, the only one to index; None for other folders."""
    names = set(names)
    has_queries = any(name in names for name in _QUERIES)
    return next((name for name in _CORPUS if name in names and has_queries), None)

"""Which files a source stands for: itself, or those of a folder, each with what it is to be called."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from plait.errors import SourceError
from plait.readers.report import SourceReport

STDIN = "-"
LINE_SUFFIXES = (".jsonl", ".ndjson", ".tsv")
TEXT_SUFFIXES = (".txt", ".md", ".markdown")
SUFFIXES = (*LINE_SUFFIXES, *(f"{suffix}.gz" for suffix in LINE_SUFFIXES), *TEXT_SUFFIXES)
_CORPUS = ("corpus.jsonl", "corpus.jsonl.gz")
_QUERIES = ("queries.jsonl", "queries.jsonl.gz", "qrels")


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A file to read; without a path, standard input."""

    path: Path | None
    id: str  # of its document, where the file is one

    @property
    def name(self) -> str:
        return "standard input" if self.path is None else str(self.path)

    @property
    def kind(self) -> str:
        """The suffix that says how to read it, without .gz; standard input is JSON lines."""
        return ".jsonl" if self.path is None else suffix_of(self.path).removesuffix(".gz")


def suffix_of(path: Path) -> str:
    """.txt, .jsonl.gz and the like, in lower case."""
    suffixes = [suffix.lower() for suffix in path.suffixes[-2:]]
    return "".join(suffixes) if suffixes[-1:] == [".gz"] else "".join(suffixes[-1:])


def check_sources(paths: Sequence[str | Path]) -> None:
    """Raises SourceError now for what could only fail later: a source that is missing or of an unknown kind."""
    if not paths:
        raise SourceError("no source was given; name files or folders, or - for JSON lines on standard input")
    for given in paths:
        path = Path(given)
        if str(given) == STDIN or path.is_dir():
            continue
        if not path.exists():
            raise SourceError(f"there is no file or folder {str(given)!r}")
        if suffix_of(path) not in SUFFIXES:
            seen = suffix_of(path) or "no suffix"
            hint = "; is it JSON lines? Then rename it .jsonl" if suffix_of(path) == ".json" else ""
            raise SourceError(f"{path} has {seen}; the kinds that can be read are {', '.join(SUFFIXES)}{hint}")


def find_files(paths: Sequence[str | Path], report: SourceReport) -> Iterator[SourceFile]:
    """The files in the order given; those of a folder sorted by name, hidden ones left out."""
    for given in paths:
        path = Path(given)
        if str(given) == STDIN:
            yield SourceFile(None, STDIN)
        elif path.is_dir():
            yield from _in_folder(path, report)
        else:
            yield SourceFile(path, path.as_posix())


def total_bytes(paths: Sequence[str | Path]) -> int | None:
    """How much there is to read, for a progress bar; None if that is not known before."""
    if any(str(given) == STDIN for given in paths):
        return None
    files = find_files(paths, SourceReport())
    return sum(file.path.stat().st_size for file in files if file.path is not None and file.path.exists())


def _in_folder(root: Path, report: SourceReport) -> Iterator[SourceFile]:
    def refuse(error: OSError) -> None:
        raise SourceError(f"cannot look into {error.filename}: {error.strerror}") from error

    for folder, subfolders, names in os.walk(root, onerror=refuse):
        subfolders[:] = sorted(name for name in subfolders if not name.startswith("."))
        visible = sorted(name for name in names if not name.startswith("."))
        if corpus := _beir_corpus(visible, subfolders):
            visible, subfolders[:] = [corpus], []
        report.skipped.update("links to folders" for name in subfolders if Path(folder, name).is_symlink())
        for name in visible:
            path = Path(folder, name)
            if suffix_of(path) in SUFFIXES:
                yield SourceFile(path, path.relative_to(root).as_posix())
            else:
                report.skipped[suffix_of(path) or "without a suffix"] += 1


def _beir_corpus(files: Sequence[str], folders: Sequence[str]) -> str | None:
    """The corpus of a BEIR folder, which is all of it that is to be indexed; None for other folders."""
    has_queries = any(name in files or name in folders for name in _QUERIES)
    return next((name for name in _CORPUS if name in files and has_queries), None)

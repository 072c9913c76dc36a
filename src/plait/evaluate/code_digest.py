"""`code_digest`: a digest of the code that decides which documents a search returns, and in which order.

The cache of rankings is keyed by it, so that a changed BM25, kernel or plan is noticed even if the version is the same.
A changed comment counts as a change: searching again costs less than a figure of code that no longer exists."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import plait
from plait import _core

# Every module between a query and its ranking; not datasets, measures, training or the command line.
PARTS = (
    "embeddings.py", "records.py", "scoring", "codec", "encode", "text", "filters", "storage", "search", "rerank",
    "cur", "searcher.py", "search_run.py", "similar.py", "index.py",
)  # fmt: skip
NATIVE = "_core*"  # the compiled kernels


@cache
def code_digest() -> str:
    """Equal for equal code, wherever it is installed."""
    digest = hashlib.sha256()
    for name, file in _files():
        digest.update(f"{name}\n".encode())
        digest.update(hashlib.sha256(file.read_bytes()).digest())
    return digest.hexdigest()[:32]


def _files() -> Iterator[tuple[str, Path]]:
    """(name within the package, file), sorted by name. An editable install has its kernels in another folder."""
    files: dict[str, Path] = {}
    for folder in map(Path, plait.__path__):
        for part in PARTS:
            path = folder / part
            for file in path.rglob("*.py") if path.is_dir() else [path] if path.is_file() else []:
                files.setdefault(file.relative_to(folder).as_posix(), file)
    files[NATIVE] = Path(str(_core.__file__))
    yield from sorted(files.items())

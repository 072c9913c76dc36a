"""What ranks, as a digest: the code that decides which documents a search finds, and in which order.

Rankings that are kept name it, so that another BM25, kernel or plan is noticed even where the version is the same. A
changed comment counts as a change: searching once more costs less than a figure of code that is no more there."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import plait
from plait import _core

# All that lies between a query and its ranking; reading sets, measuring, training and the command line do not.
PARTS = (
    "embeddings.py", "records.py", "scoring", "codec", "encode", "text", "filters", "storage", "search", "rerank", "cur",
    "searcher.py", "index.py",
)  # fmt: skip
NATIVE = "_core*"  # the compiled kernels


@cache
def code_digest() -> str:
    """A name for the code that ranks; the same for the same code, wherever it is installed."""
    digest = hashlib.sha256()
    for name, file in _files():
        digest.update(f"{name}\n".encode())
        digest.update(hashlib.sha256(file.read_bytes()).digest())
    return digest.hexdigest()[:32]


def _files() -> Iterator[tuple[str, Path]]:
    """(name within the package, file), in the order of names. An editable install has its kernels in another folder."""
    found: dict[str, Path] = {}
    for folder in map(Path, plait.__path__):
        for part in PARTS:
            place = folder / part
            for file in place.rglob("*.py") if place.is_dir() else [place] if place.is_file() else []:
                found.setdefault(file.relative_to(folder).as_posix(), file)
    found[NATIVE] = Path(str(_core.__file__))
    yield from sorted(found.items())

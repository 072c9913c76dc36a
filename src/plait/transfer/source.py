"""What every importer returns: rows of another index, with what is known about all of them.

A row is a passage with its vectors. Most sources have one passage for each document. The rows of a document with more
passages follow each other, numbered from 0, and the first has the text, the title and the metadata.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from plait.encode.protocol import EmbeddingSpec
from plait.errors import ConfigError, SourceError
from plait.records import FileOrigin, Section, Span

MAX_LENGTH_RATIO = 1.002  # of the longest vector to the shortest, if all count as equally long
UNKNOWN_VOCABULARY = 2**31 - 1  # sparse terms, if the source does not say: hashed ones may have any number

Vectors = NDArray[np.float16] | NDArray[np.float32]


@dataclass(frozen=True, slots=True, eq=False)
class Row:
    """One passage and its vectors. `text`, `title` and `metadata` are those of the document."""

    id: str
    text: str = ""
    title: str = ""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    sections: tuple[Section, ...] = ()
    origin: FileOrigin | None = None
    passage: int = 0  # its number within the document
    span: Span | None = None  # within the text; None: all of it
    dense: NDArray[np.float32] | None = None  # (dim,)
    sparse: Mapping[int, float] | None = None
    multi: Vectors | None = None  # (vectors, dim)
    cells: NDArray[np.integer] | None = None  # (vectors,): the centroids of the source, if it compressed them


@dataclass(frozen=True, slots=True, eq=False)
class OriginalCodec:
    """How the source compressed its multi vectors."""

    bits: int
    centroids: NDArray[np.float32]  # (centroids, dim)


@dataclass(frozen=True, slots=True, eq=False)
class Source:
    """An index of another library, open for reading."""

    form: str  # the name of the format
    spec: EmbeddingSpec
    rows: Callable[[], Iterator[Row]]
    n_rows: int | None = None  # for progress
    model: str = ""  # that made the vectors, if the source names it
    codec: OriginalCodec | None = None
    has_ids: bool = True  # False: the ids are the positions of the rows, and texts of a file match by position
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportOptions:
    """How to read a source; None chooses by the names that are usual."""

    collection: str | None = None  # the collection or table, if the source has several
    id_field: str | None = None
    text_field: str | None = None
    title_field: str | None = None
    vector_fields: tuple[str, ...] = ()  # at most one for each kind
    vocabulary: Path | None = None  # names of sparse terms: tokenizer.json, or a token in each line
    api_key_env: str | None = None  # the environment variable with the key of a server


def choose_collection(names: list[str], wanted: str | None, what: str, source: object) -> str:
    """The collection to read: the wanted one, or the only one."""
    if wanted is not None:
        if wanted not in names:
            raise ConfigError(f"{source} has no {what} {wanted!r}; it has {', '.join(sorted(names)) or 'none'}")
        return wanted
    if len(names) != 1:
        raise ConfigError(
            f"{source} has {len(names)} {what}s ({', '.join(sorted(names)[:10])}); choose one with --collection NAME"
            if names
            else f"{source} has no {what}"
        )
    return names[0]


def is_plain_name(name: str) -> bool:
    """Whether a name that a source gives is that of an entry of a folder, and leads nowhere else."""
    return name not in ("", ".", "..") and not set(name) & set("/\\\0")


def damaged(path: object, why: object) -> SourceError:
    """The error of a source that cannot be what it seems to be."""
    return SourceError(f"{path} is damaged or incomplete: {why!s:.300}; copy the source again, or build it again")


def missing_library(library: str, what: str) -> ConfigError:
    return ConfigError(f"{what} needs {library}; install with: pip install 'plait[import]'")


def l2_notes(library: str, lengths: NDArray[np.floating]) -> tuple[str, ...]:
    """A note if vectors of these lengths rank differently by L2 distance and by dot product."""
    if lengths.max() <= MAX_LENGTH_RATIO * lengths.min():
        return ()
    return (
        (
            f"{library} ranked by L2 distance, plait ranks by dot product, and the vectors have lengths from "
            f"{lengths.min():.3g} to {lengths.max():.3g}: ranks will differ"
        ),
    )


def normalized(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    """Vectors of length 1, as cosine similarity compares them; zeros stay."""
    lengths = np.linalg.norm(vectors, axis=-1, keepdims=True)
    return np.asarray(vectors / np.maximum(lengths, 1e-12), np.float32)

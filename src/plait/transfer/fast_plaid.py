"""fast-plaid and next-plaid indexes, and those of PyLate, which keep such a folder with a map of ids beside it.

`embeddings.npy`, which small indexes have too, is a pickle and is not read: the codes are there in any case.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
from numpy.typing import NDArray

from plait.encode.protocol import EmbeddingSpec
from plait.transfer.fields import ID_FIELDS, row_of_fields
from plait.transfer.numpy_folder import load_array, read_json
from plait.transfer.pickles import read_pickle
from plait.transfer.residual_codes import DECODED_AT_ONCE, BucketCodec, read_lengths, read_n_chunks
from plait.transfer.source import ImportOptions, Row, Source, damaged

PYLATE_FOLDER = "fast_plaid_index"
PYLATE_IDS = "plaid_ids_to_documents_ids.pkl"
METADATA = "metadata.db"


def open_source(path: str, options: ImportOptions) -> Source:
    """The documents of an index folder."""
    outer = Path(path)
    is_pylate = (outer / PYLATE_FOLDER).is_dir()
    folder = outer / PYLATE_FOLDER if is_pylate else outer
    ids = read_ids(outer / PYLATE_IDS) if is_pylate else None
    metadata = read_json(folder / "metadata.json")
    centroids = load_array(folder / "centroids.npy", "f", (None, None))
    codec = BucketCodec.checked(folder, centroids, load_array(folder / "bucket_weights.npy", "f", (None,)))
    chunks = list(range(read_n_chunks(folder / "metadata.json", metadata)))
    lengths = [length for chunk in chunks for length in read_lengths(folder / f"doclens.{chunk}.json")]
    offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths, dtype=np.int64)])
    n_vectors = int(offsets[-1])
    cells = _Chunks(folder, "codes", chunks, "iu", (None,), n_vectors)
    residuals = _Chunks(folder, "residuals", chunks, "u", (None, codec.n_bytes), n_vectors)

    def rows() -> Iterator[Row]:
        fields = _fields(folder / METADATA)
        start = 0
        while start < len(lengths):
            stop = max(int(np.searchsorted(offsets, offsets[start] + DECODED_AT_ONCE, side="right")) - 1, start + 1)
            begin, end = int(offsets[start]), int(offsets[stop])
            cells_read = cells.read(begin, end)
            vectors = codec.decode(folder, cells_read, residuals.read(begin, end), normalize=True).astype(np.float16)
            for number in range(start, stop):
                part = slice(offsets[number] - begin, offsets[number + 1] - begin)
                id = None if ids is None else ids.get(number)
                if ids is not None and id is None:
                    continue  # PyLate leaves out what its map does not have
                item = {"multi": vectors[part], "cells": cells_read[part]}
                yield row_of_fields(fields.get(number, {}), options, position=number, id=id, **item)
            start = stop

    form = "fast-plaid (PyLate)" if is_pylate else "fast-plaid"
    has_ids = ids is not None or ((folder / METADATA).exists() and bool(_id_columns(folder / METADATA, options)))
    return Source(form, EmbeddingSpec(multi=codec.dim), rows, len(lengths), "", codec.original(), has_ids)


def read_ids(file: Path) -> dict[int, str]:
    """PyLate's map of numbers to ids: a pickle of a plain dict, read by a reader that refuses all else."""
    try:
        raw = file.read_bytes()
    except OSError as error:
        raise damaged(file, error) from None
    ids = read_pickle(raw, file)
    if not isinstance(ids, dict) or not all(isinstance(number, int) for number in ids):
        raise damaged(file, "it is no map of numbers to ids")
    return {number: str(id) for number, id in ids.items()}


class _Chunks:
    """Rows that are in chunks of their own, or merged into one file after a first search. The merged file has padding
    at its end; its manifest has the number of rows of each chunk."""

    def __init__(
        self, folder: Path, name: str, chunks: list[int], kinds: str, shape: tuple[int | None, ...], n_rows: int
    ) -> None:
        files = [folder / f"{chunk}.{name}.npy" for chunk in chunks]
        if all(file.exists() for file in files):
            self._parts = [load_array(file, kinds, shape) for file in files]
        else:
            merged = load_array(folder / f"merged_{name}.npy", kinds, shape)
            manifest = read_json(folder / f"merged_{name}.manifest.json")
            try:
                n_merged = sum(int(manifest[file.name]["rows"]) for file in files)
            except (KeyError, TypeError, ValueError) as error:
                raise damaged(folder / f"merged_{name}.manifest.json", repr(error)) from None
            if not 0 <= n_merged <= len(merged):
                raise damaged(folder, f"merged_{name}.npy has {len(merged)} of {n_merged} rows")
            self._parts = [merged[:n_merged]]
        self._starts = np.cumsum([0, *(len(part) for part in self._parts)])
        if self._starts[-1] != n_rows:
            raise damaged(folder, f"it has {self._starts[-1]} {name} for {n_rows} vectors")

    def read(self, begin: int, end: int) -> NDArray[Any]:
        pieces = [
            part[max(begin - start, 0) : max(end - start, 0)]
            for part, start in zip(self._parts, self._starts[:-1].tolist(), strict=True)
        ]
        return np.concatenate(pieces)


def _id_columns(file: Path, options: ImportOptions) -> list[str]:
    fields = next(iter(_fields(file).values()), {})
    return [name for name in fields if name == options.id_field or (options.id_field is None and name in ID_FIELDS)]


def _fields(file: Path) -> dict[int, dict[str, Any]]:
    """The metadata of each document, if the index has a table of it."""
    if not file.exists():
        return {}
    try:
        address = f"file:{quote(str(file.absolute()))}?mode=ro&immutable=1"
        with closing(sqlite3.connect(address, uri=True)) as connection:
            cursor = connection.execute("SELECT * FROM METADATA")
            names = [column[0] for column in cursor.description]
            records = [dict(zip(names, values, strict=True)) for values in cursor]
        return {int(record.pop("_subset_")): record for record in records}
    except (sqlite3.Error, KeyError, TypeError, ValueError) as error:
        raise damaged(file, error) from None

"""faiss files. Flat indexes, IVF over flat vectors and id maps are read as they are on disk, without faiss; others are
decoded by faiss, if it is installed.

A file is an index: four letters for its kind, dimensions, count, metric; then what the kind has. An IVF has a quantizer
(another index) and lists of vectors with their numbers; an id map has an index and the ids.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from plait.encode.protocol import EmbeddingSpec
from plait.errors import SourceError
from plait.transfer.source import ImportOptions, Row, Source, damaged, l2_notes, missing_library

INNER_PRODUCT, L2 = 0, 1
MAX_DIM = 1 << 16


class _OtherKindError(Exception):
    """A kind of index that only faiss itself reads."""


@dataclass(frozen=True, slots=True, eq=False)
class _Vectors:
    vectors: NDArray[np.float32]  # (n, dim)
    ids: NDArray[np.int64] | None  # None: positions
    metric: int


def open_source(path: str, options: ImportOptions) -> Source:
    """The vectors of a file. Without an id map, ids are positions."""
    del options
    notes: list[str] = []
    try:
        with Path(path).open("rb") as file:
            stored = _Reader(file, path).index()
    except _OtherKindError as kind:
        stored = _with_faiss(path, str(kind))
        notes.append(f"the vectors of kind {kind} were decoded by faiss")
    except OSError as error:
        raise damaged(path, error) from None
    if not len(stored.vectors):
        raise SourceError(f"{path} has no vectors")
    if stored.metric == L2:
        notes += l2_notes("faiss", np.linalg.norm(stored.vectors, axis=1))

    def rows() -> Iterator[Row]:
        ids = range(len(stored.vectors)) if stored.ids is None else stored.ids.tolist()
        for id, vector in zip(ids, stored.vectors, strict=True):
            yield Row(str(id), dense=vector)

    spec = EmbeddingSpec(dense=int(stored.vectors.shape[1]))
    has_ids = stored.ids is not None
    return Source("faiss", spec, rows, len(stored.vectors), has_ids=has_ids, notes=tuple(notes))


class _Reader:
    def __init__(self, file: BinaryIO, path: str) -> None:
        self._file, self._path = file, path
        self._size = Path(path).stat().st_size

    def index(self) -> _Vectors:
        kind = self._bytes(4).decode("latin-1")
        if kind in ("IxF2", "IxFI", "IxFl"):
            dim, count, metric = self._header()
            return _Vectors(self._flat(dim, count), None, metric)
        if kind in ("IxMp", "IxM2"):
            dim, count, metric = self._header()
            inner = self.index()
            ids = self._array(np.dtype("<i8"))
            if len(ids) != len(inner.vectors) or len(ids) != count or inner.vectors.shape[1] != dim:
                raise damaged(self._path, f"it has {len(ids)} ids for {len(inner.vectors)} vectors")
            return _Vectors(inner.vectors, ids, metric)
        if kind == "IwFl":
            return self._ivf()
        raise _OtherKindError(kind)

    def _ivf(self) -> _Vectors:
        dim, count, metric = self._header()
        n_lists, _ = self._unpack("<QQ")
        quantizer = self.index()
        if n_lists > self._size or len(quantizer.vectors) != n_lists:
            raise damaged(self._path, f"it has {n_lists} lists, but {len(quantizer.vectors)} centroids")
        self._direct_map()
        tag = self._bytes(4)
        if tag != b"ilar":
            raise _OtherKindError(f"IwFl with lists {tag!r}")
        seen_lists, code_size = self._unpack("<QQ")
        if seen_lists != n_lists or code_size != 4 * dim:
            raise damaged(self._path, f"its lists have {code_size} bytes for a vector of {dim} dimensions")
        sizes = self._list_sizes(n_lists)
        if sizes.sum() != count:
            raise damaged(self._path, f"its lists have {sizes.sum()} vectors, not {count}")
        vectors, ids = [np.zeros((0, dim), np.float32)], [np.zeros(0, np.int64)]
        for size in sizes.tolist():
            vectors.append(self._values("<f4", size * dim).reshape(size, dim))
            ids.append(self._values("<i8", size))
        joined = np.concatenate(ids)
        order = np.argsort(joined, kind="stable")
        is_positions = np.array_equal(joined[order], np.arange(count))
        return _Vectors(np.concatenate(vectors)[order], None if is_positions else joined[order], metric)

    def _list_sizes(self, n_lists: int) -> NDArray[np.int64]:
        layout = self._bytes(4)
        given = self._array(np.dtype("<i8"))
        if layout == b"full" and len(given) == n_lists:
            sizes = given
        elif layout == b"sprs" and len(given) % 2 == 0:
            sizes = np.zeros(n_lists, np.int64)
            numbers = given[::2]
            if len(numbers) and (numbers.min() < 0 or numbers.max() >= n_lists):
                raise damaged(self._path, "its lists have numbers out of range")
            sizes[numbers] = given[1::2]
        else:
            raise damaged(self._path, f"its lists are {layout!r} of {len(given)} sizes")
        if len(sizes) and (sizes.min() < 0 or sizes.max() > self._size):
            raise damaged(self._path, "a list has an impossible size")
        return sizes

    def _direct_map(self) -> None:
        (kind,) = self._unpack("<B")
        self._array(np.dtype("<i8"))
        if kind == 2:  # a hash table, as pairs of numbers
            self._array(np.dtype("<i8,<i8"))
        elif kind not in (0, 1):
            raise damaged(self._path, f"its direct map is of kind {kind}")

    def _header(self) -> tuple[int, int, int]:
        """Dimensions, number of vectors, metric."""
        dim, count, _, _, _, metric = self._unpack("<iqqq?i")
        if metric > 1:
            self._bytes(4)
        if metric not in (INNER_PRODUCT, L2):
            raise SourceError(f"{self._path} uses the metric {metric} of faiss; plait reads inner product and L2")
        if not 0 < dim <= MAX_DIM or not 0 <= count <= self._size:
            raise damaged(self._path, f"it claims {count} vectors of {dim} dimensions")
        return dim, count, metric

    def _flat(self, dim: int, count: int) -> NDArray[np.float32]:
        (n_values,) = self._unpack("<Q")
        if n_values != dim * count:
            raise damaged(self._path, f"it has {n_values} values for {count} vectors of {dim} dimensions")
        return self._values("<f4", n_values).reshape(count, dim)

    def _array(self, dtype: np.dtype[Any]) -> NDArray[Any]:
        (size,) = self._unpack("<Q")
        return self._values(dtype, size)

    def _values(self, dtype: str | np.dtype[Any], count: int) -> NDArray[Any]:
        return np.frombuffer(self._bytes(np.dtype(dtype).itemsize * count), dtype)

    def _unpack(self, form: str) -> tuple[Any, ...]:
        return struct.unpack(form, self._bytes(struct.calcsize(form)))

    def _bytes(self, size: int) -> bytes:
        """The next bytes; a size beyond the end of the file is refused before memory is taken."""
        if size > self._size - self._file.tell():
            raise damaged(self._path, "it ends too early")
        return self._file.read(size)


def _with_faiss(path: str, kind: str) -> _Vectors:
    try:
        import faiss
    except ImportError:
        raise missing_library("faiss-cpu", f"a faiss file of kind {kind}") from None
    try:
        index = faiss.read_index(path)
        ids = None
        if hasattr(index, "id_map"):
            ids, index = faiss.vector_to_array(index.id_map).astype(np.int64), faiss.downcast_index(index.index)
        if hasattr(index, "make_direct_map"):
            index.make_direct_map()
        vectors = np.asarray(index.reconstruct_n(0, index.ntotal), np.float32)
        metric = INNER_PRODUCT if index.metric_type == faiss.METRIC_INNER_PRODUCT else L2
    except RuntimeError as error:
        raise SourceError(f"faiss cannot give the vectors of {path} back ({kind}): {error!s:.200}") from None
    return _Vectors(vectors, ids, metric)

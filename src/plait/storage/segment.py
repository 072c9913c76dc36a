"""A segment: the rows of one batch of documents and their strands, written once and never changed.

rows.plait    docs, starts, ends: each row's document, and its passage in that document's text
dense.plait   values: one float32 vector a row
cells.plait   the same as bytes in cells, where rows are many; see plait.storage.files.dense_ivf
multi.plait   values, offsets: many float16 vectors a row; with an attribute fixed, as many for every row and no offsets
near.plait    the cells of those vectors in the codec of others; see plait.storage.files.centroid_ids
coded.plait   the same, compressed, in the place of multi.plait; see plait.storage.files.residual
words.plait   the documents' full text, where they are many; see plait.storage.files.text_index
sparse.plait  weighted terms, as an inverted index; see plait.storage.files.sparse
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from plait.codec.codebook import Codebook
from plait.codec.coded_items import CodedItems
from plait.codec.dense_ivf import DenseIvf
from plait.codec.impacts import invert
from plait.embeddings import Embeddings, MultiVectors
from plait.encode.protocol import EmbeddingSpec
from plait.errors import CorruptIndexError, InputError
from plait.scoring.sparse import Impacts
from plait.storage.catalogue import SegmentRecord
from plait.storage.files.centroid_ids import NEAR, CentroidIdsFile, mark_of, write_centroid_ids
from plait.storage.files.dense_ivf import CELLS, DenseIvfFile
from plait.storage.files.residual import CODED, ResidualFile, fixed_of
from plait.storage.files.sparse import SPARSE, SparseFile, write_impacts
from plait.storage.files.text_index import WORDS, TextIndex, TextIndexFile
from plait.storage.fsync import sync_folder
from plait.storage.segment_file import DTYPES, FileRecord, SegmentFile
from plait.storage.segment_file_writer import ArraySource, slices, write_file

# Reading this much takes less than a tenth of a second; larger segments are read whole by `check` alone.
VERIFY_UP_TO = 256 << 20

# Segments never change, so one reading is enough for the life of the process; the key notices a file that was replaced.
_verified: set[tuple[object, ...]] = set()
_verified_lock = threading.Lock()


class segment_errors:  # noqa: N801 (a context manager, used as a verb)
    """Turns an InputError inside the block into a CorruptIndexError: queries are validated first, so a value that a
    kernel refuses is a value of the segment. A class, because a generator-based context manager would cost as much as
    the smaller kernels."""

    __slots__ = ("_segment", "_what")

    def __init__(self, segment: Segment, what: str = "compressed") -> None:
        self._segment, self._what = segment, what

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, InputError):
            raise CorruptIndexError(
                f"the {self._what} vectors of segment {self._segment.number} are damaged ({error}); run plait check"
            ) from error


def segment_folder(index: Path, number: int) -> Path:
    return index / "segments" / f"{number:06d}"


class Segment:
    """The rows of a segment as read-only maps of its files. `live` is which rows are not deleted; None is all."""

    def __init__(
        self,
        record: SegmentRecord,
        spec: EmbeddingSpec,
        files: Mapping[str, SegmentFile],
        dead: NDArray[np.int64] | None,
    ) -> None:
        self.number, self.n_rows, self.files = record.number, record.n_rows, files
        rows = files["rows.plait"]
        self.docs: NDArray[np.int64] = rows.array("docs", "<i8", (self.n_rows,))
        self.starts: NDArray[np.uint32] = rows.array("starts", "<u4", (self.n_rows,))
        self.ends: NDArray[np.uint32] = rows.array("ends", "<u4", (self.n_rows,))
        self.live = _live(record, dead)
        self.n_live = self.n_rows - (0 if dead is None else len(dead))
        self.dense: NDArray[np.float32] | None = None
        if spec.dense is not None:
            self.dense = files["dense.plait"].array("values", "<f4", (self.n_rows, spec.dense))
        self.dense_ivf_file: DenseIvfFile | None = None
        if spec.dense is not None and CELLS in files:
            self.dense_ivf_file = DenseIvfFile(files[CELLS], self.n_rows, spec.dense)
        self._multi = files.get("multi.plait") if spec.multi is not None else None
        self._multi_dim = spec.multi
        self.residual_file: ResidualFile | None = None
        if spec.multi is not None and CODED in files:
            self.residual_file = ResidualFile(files[CODED], self.n_rows, spec.multi)
        self.centroid_ids_file: CentroidIdsFile | None = None
        if self._multi is not None and NEAR in files:
            n_vectors = len(self._multi.array("values", "<f2", (None, spec.multi)))
            self.centroid_ids_file = CentroidIdsFile(files[NEAR], n_vectors)
        self.text_index_file = TextIndexFile(files[WORDS]) if WORDS in files else None
        self.sparse_file: SparseFile | None = None
        if spec.sparse is not None:
            self.sparse_file = SparseFile(files[SPARSE], self.n_rows, spec.sparse)

    @cached_property
    def span(self) -> tuple[int, int]:
        """The number of the first document, and one more than that of the last; of no rows (0, 0)."""
        return (int(self.docs[0]), int(self.docs[-1]) + 1) if self.n_rows else (0, 0)

    @cached_property
    def multi(self) -> MultiVectors | None:
        """Made when first asked for: its offsets are checked one by one, which opening must not wait for."""
        if self._multi is None:
            return None
        values = self._multi.array("values", "<f2", (None, self._multi_dim))
        fixed = self.fixed
        if fixed is None:
            offsets = self._multi.array("offsets", "<i8", (self.n_rows + 1,))
        else:
            offsets = np.arange(self.n_rows + 1) * fixed
        try:
            return MultiVectors(values, offsets)
        except InputError as error:
            raise CorruptIndexError(f"{self._multi.path}: {error}") from error

    @cached_property
    def fixed(self) -> int | None:
        """The vectors of every row in the multi strand, where it is kept without offsets."""
        if self.residual_file is not None:
            return self.residual_file.fixed
        if self._multi is None:
            return None
        values = self._multi.array("values", "<f2", (None, self._multi_dim))
        return fixed_of(self._multi, self.n_rows, len(values))

    def release(self) -> None:
        """Gives back the memory of what was read of its files; see `SegmentFile.release`."""
        for file in self.files.values():
            file.release()

    @cached_property
    def coded(self) -> CodedItems | None:
        """The multi strand where it is compressed; then `multi` is None. Made when first asked for, as that is."""
        return None if self.residual_file is None else self.residual_file.items()

    @cached_property
    def codebook(self) -> int | None:
        """The mark of the codec whose cells its vectors name, compressed or not; None where they name none."""
        if self.coded is not None:
            return mark_of(self.coded.codec.codebook)
        return None if self.centroid_ids_file is None else self.centroid_ids_file.codebook

    @cached_property
    def dense_ivf(self) -> DenseIvf | None:
        """The dense strand in cells, where it is kept so too."""
        return None if self.dense_ivf_file is None else self.dense_ivf_file.cells()

    @cached_property
    def text_index(self) -> TextIndex | None:
        """The full text of the segment's documents, where it is kept here too."""
        return None if self.text_index_file is None else self.text_index_file.words()

    @cached_property
    def sparse(self) -> Impacts | None:
        """The sparse strand. Made when first asked for, as the others are."""
        return None if self.sparse_file is None else self.sparse_file.impacts()


def _live(record: SegmentRecord, dead: NDArray[np.int64] | None) -> NDArray[np.bool_] | None:
    if dead is None or not len(dead):
        return None
    if dead[0] < 0 or dead[-1] >= record.n_rows:
        raise CorruptIndexError(
            f"the catalogue deletes rows {dead[0]} to {dead[-1]} of segment {record.number}, which has {record.n_rows}"
        )
    live = np.ones(record.n_rows, bool)
    live[dead] = False
    live.flags.writeable = False
    return live


def file_names(record: SegmentRecord, spec: EmbeddingSpec) -> list[str]:
    """The files that a segment has: rows, and one for each strand of the shape."""
    names = ["rows.plait"]
    if spec.dense is not None:
        names += ["dense.plait", *([CELLS] if CELLS in record.files else [])]
    if spec.multi is not None:
        if CODED in record.files and "multi.plait" in record.files:
            raise CorruptIndexError(f"the catalogue lists the multi strand of segment {record.number} twice")
        plain = ["multi.plait", *([NEAR] if NEAR in record.files else [])]
        names += [CODED] if CODED in record.files else plain
    if spec.sparse is not None:
        names.append(SPARSE)
    if WORDS in record.files:
        names.append(WORDS)
    return names


def open_file(index: Path, record: SegmentRecord, name: str) -> SegmentFile:
    """One file of a segment, which must be the one that was committed. A missing one is a FileNotFoundError."""
    path = segment_folder(index, record.number) / name
    if name not in record.files:
        raise CorruptIndexError(f"the catalogue lists no file {name} for segment {record.number} of {index}")
    file = SegmentFile.open(path)
    if file.kind != name.removesuffix(".plait") or file.record != record.files[name]:
        raise CorruptIndexError(
            f"{path} is not the file that was committed: the catalogue has {record.files[name]}, the file is "
            f"{file.kind!r} with {file.record}; restore the index from a copy, or build it again"
        )
    return file


def open_segment(index: Path, record: SegmentRecord, spec: EmbeddingSpec, dead: NDArray[np.int64] | None) -> Segment:
    """Opens a segment, reading it whole once a process if it is small. A missing file is a FileNotFoundError."""
    files = {name: open_file(index, record, name) for name in file_names(record, spec)}
    if sum(file.record.nbytes for file in files.values()) <= VERIFY_UP_TO:
        for file in files.values():
            verify_once(file)
    return Segment(record, spec, files, dead)


def verify_once(file: SegmentFile) -> None:
    """Reads the file whole and compares it with its checksums, if this process has not done so."""
    state = file.path.stat()
    key = (str(file.path.absolute()), state.st_dev, state.st_ino, state.st_mtime_ns, state.st_size)
    if key not in _verified:
        file.verify()
        with _verified_lock:
            _verified.add(key)


def write_segment(
    folder: Path,
    rows: Mapping[str, NDArray[Any]],
    embeddings: Embeddings,
    *,
    number: int,
    name_of_row: Callable[[int], str],
    fixed: int | None = None,
    codebook: Codebook | None = None,
) -> dict[str, FileRecord]:
    """Writes a new folder and makes it durable. `rows` holds docs, starts and ends, one for each item of the strands.

    With `fixed`, every item of the multi strand has as many vectors, and no offsets are kept. `codebook` is that of
    the segments which are compressed, if there are any. A value that is not finite as it is stored is an InputError;
    `name_of_row` says whose row it is.
    """
    folder.mkdir(parents=True)
    own = {"segment": number}
    written = {
        "rows.plait": write_file(
            folder / "rows.plait",
            "rows",
            [
                ArraySource.of("docs", "<i8", rows["docs"]),
                ArraySource.of("starts", "<u4", rows["starts"]),
                ArraySource.of("ends", "<u4", rows["ends"]),
            ],
            attributes=own,
        )
    }
    if embeddings.dense is not None:
        values = _finite("dense", "<f4", embeddings.dense, name_of_row)
        written["dense.plait"] = write_file(folder / "dense.plait", "dense", [values], attributes=own)
    if embeddings.multi is not None:
        offsets = embeddings.multi.offsets

        def name_of_vector(vector: int) -> str:
            return name_of_row(int(np.searchsorted(offsets, vector, side="right")) - 1)

        values = _finite("multi", "<f2", embeddings.multi.values, name_of_vector)
        arrays = [values] if fixed is not None else [values, ArraySource.of("offsets", "<i8", offsets)]
        attributes = own if fixed is None else {**own, "fixed": fixed}
        written["multi.plait"] = write_file(folder / "multi.plait", "multi", arrays, attributes=attributes)
        if codebook is not None:
            stored = embeddings.multi.values.astype(np.float16)
            written[NEAR] = write_centroid_ids(folder / NEAR, stored, codebook, number=number)
    if embeddings.sparse is not None:
        written[SPARSE] = write_impacts(folder / SPARSE, invert(embeddings.sparse), number=number)
    sync_folder(folder)
    sync_folder(folder.parent)
    return written


def _finite(kind: str, dtype: str, array: NDArray[Any], name_of: Callable[[int], str]) -> ArraySource:
    def pieces() -> Any:
        start = 0
        for piece in slices(array):
            with np.errstate(over="ignore"):  # what float16 cannot hold becomes infinite, and is refused below
                stored = piece.astype(DTYPES[dtype])
            wrong = np.flatnonzero(~np.isfinite(stored).all(axis=1))
            if len(wrong):
                row = int(wrong[0])
                seen = piece[row][~np.isfinite(stored[row])][0]
                raise InputError(
                    f"{name_of(start + row)}: the {kind} strand holds {seen}, which cannot be stored as "
                    f"{DTYPES[dtype]}; the encoder must give finite values"
                )
            yield stored
            start += len(piece)

    return ArraySource("values", dtype, array.shape, pieces())

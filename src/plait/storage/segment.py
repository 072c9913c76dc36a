"""A segment: the passages of one batch of documents and their embeddings, written once and never changed.

rows.plait          docs, starts, ends: the document of each row (passage), and where the passage is in its text
dense.plait         values: one float32 vector for each row
dense_ivf.plait     the dense vectors as 8-bit rows by cell, if rows are many; see plait.storage.files.dense_ivf
sparse.plait        the sparse vectors as an inverted index; see plait.storage.files.sparse
multi.plait         values, offsets: many float16 vectors for each row; no offsets if every row has vectors_per_row
centroid_ids.plait  the nearest centroid of each of those vectors; see plait.storage.files.centroid_ids
residual.plait      the multi vectors compressed, instead of multi.plait; see plait.storage.files.residual
text_index.plait    the words of the documents, if they are many; see plait.storage.files.text_index
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
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
from plait.locks import once_property
from plait.scoring.sparse import Impacts
from plait.storage.catalogue import SegmentRecord
from plait.storage.files.centroid_ids import CENTROID_IDS, CentroidIdsFile, codebook_crc, write_centroid_ids
from plait.storage.files.dense_ivf import DENSE_IVF, DenseIvfFile
from plait.storage.files.residual import PROJECTION, RESIDUAL, VECTORS_PER_ROW, ResidualFile, read_vectors_per_row
from plait.storage.files.sparse import SPARSE, SparseFile, write_sparse
from plait.storage.files.text_index import TEXT_INDEX, TextIndex, TextIndexFile
from plait.storage.folder import (
    SEGMENTS,
    check_file,
    check_segment_folder,
    create_segment_folder,
    segment_numbers_on_disk,
)
from plait.storage.fsync import sync_folder
from plait.storage.segment_file import DTYPES, ArraySource, FileRecord, SegmentFile, rows_not_finite, slices, write_file
from plait.storage.verification import verify_before_use, verify_ends_before_use

ROWS, DENSE, MULTI = "rows.plait", "dense.plait", "multi.plait"


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
    return index / SEGMENTS / f"{number:06d}"


def leftover_folders(index: Path, live: set[int]) -> list[Path]:
    """The folders of segments that no commit lists. StoreError if one of them is a link or a special file."""
    return [segment_folder(index, number) for number in segment_numbers_on_disk(index) if number not in live]


class Segment:
    """The rows of a segment, as read-only maps of its files. `live` says which rows are not deleted; None is all.

    The constructor checks sizes. The arrays are read at their first use: their file is then compared with its checksums
    (see `plait.storage.verification`), and offsets are checked.
    """

    def __init__(
        self,
        record: SegmentRecord,
        spec: EmbeddingSpec,
        files: Mapping[str, SegmentFile],
        deleted_rows: NDArray[np.int64] | None,
    ) -> None:
        self.number, self.n_rows, self.files = record.number, record.n_rows, files
        rows = files[ROWS]
        self._docs: NDArray[np.int64] = rows.array("docs", "<i8", (self.n_rows,))
        self._starts: NDArray[np.uint32] = rows.array("starts", "<u4", (self.n_rows,))
        self._ends: NDArray[np.uint32] = rows.array("ends", "<u4", (self.n_rows,))
        self.live = _live_mask(record, deleted_rows)
        self.n_live = self.n_rows - (0 if deleted_rows is None else len(deleted_rows))
        self._dense: NDArray[np.float32] | None = None
        if spec.dense is not None:
            self._dense = files[DENSE].array("values", "<f4", (self.n_rows, spec.dense))
        self.dense_ivf_file: DenseIvfFile | None = None
        if spec.dense is not None and DENSE_IVF in files:
            self.dense_ivf_file = DenseIvfFile(files[DENSE_IVF], self.n_rows, spec.dense)
        self._multi_file = files.get(MULTI) if spec.multi is not None else None
        self._multi_dim = spec.multi
        self.residual_file: ResidualFile | None = None
        if spec.multi is not None and RESIDUAL in files:
            self.residual_file = ResidualFile(files[RESIDUAL], self.n_rows, spec.multi)
        self._centroid_ids_file: CentroidIdsFile | None = None
        if self._multi_file is not None and CENTROID_IDS in files:
            n_vectors = len(self._multi_file.array("values", "<f2", (None, spec.multi)))
            self._centroid_ids_file = CentroidIdsFile(files[CENTROID_IDS], n_vectors)
        self.text_index_file = TextIndexFile(files[TEXT_INDEX]) if TEXT_INDEX in files else None
        self.sparse_file: SparseFile | None = None
        if spec.sparse is not None:
            self.sparse_file = SparseFile(files[SPARSE], self.n_rows, spec.sparse)

    @once_property
    def docs(self) -> NDArray[np.int64]:
        """The document of each row."""
        verify_before_use(self.files[ROWS])
        return self._docs

    @once_property
    def starts(self) -> NDArray[np.uint32]:
        """The character of its document at which each row starts."""
        verify_before_use(self.files[ROWS])
        return self._starts

    @once_property
    def ends(self) -> NDArray[np.uint32]:
        """The character of its document at which each row ends."""
        verify_before_use(self.files[ROWS])
        return self._ends

    @once_property
    def span(self) -> tuple[int, int]:
        """The number of the first document, and that of the last plus one; (0, 0) without rows."""
        if not self.n_rows:
            return (0, 0)
        verify_ends_before_use(self.files[ROWS], "docs")
        return (int(self._docs[0]), int(self._docs[-1]) + 1)

    @once_property
    def dense(self) -> NDArray[np.float32] | None:
        """The dense vectors."""
        if self._dense is not None:
            verify_before_use(self.files[DENSE])
        return self._dense

    @once_property
    def multi(self) -> MultiVectors | None:
        """The multi vectors as float16; None if there are none, or if they are compressed (see `coded`)."""
        if self._multi_file is None:
            return None
        verify_before_use(self._multi_file)
        values = self._multi_file.array("values", "<f2", (None, self._multi_dim))
        fixed = self.fixed
        if fixed is None:
            offsets = self._multi_file.array("offsets", "<i8", (self.n_rows + 1,))
        else:
            offsets = np.arange(self.n_rows + 1) * fixed
        try:
            return MultiVectors(values, offsets)
        except InputError as error:
            raise CorruptIndexError(f"{self._multi_file.path}: {error}") from error

    @once_property
    def coded(self) -> CodedItems | None:
        """The multi vectors if they are compressed; then `multi` is None."""
        if self.residual_file is None:
            return None
        verify_before_use(self.files[RESIDUAL])
        return self.residual_file.items()

    @once_property
    def centroid_ids_file(self) -> CentroidIdsFile | None:
        """The nearest centroids of the uncompressed multi vectors, if the segment has them."""
        if self._centroid_ids_file is not None:
            verify_before_use(self.files[CENTROID_IDS])
        return self._centroid_ids_file

    @once_property
    def fixed(self) -> int | None:
        """The number of multi vectors of every row; None if rows may have any number."""
        if self.residual_file is not None:
            return self.residual_file.fixed
        if self._multi_file is None:
            return None
        values = self._multi_file.array("values", "<f2", (None, self._multi_dim))
        return read_vectors_per_row(self._multi_file, self.n_rows, len(values))

    @property
    def projection(self) -> object:
        """The number of the projection that its multi vectors have passed, unchecked; None without one."""
        file = self.files.get(RESIDUAL) or self.files.get(MULTI)
        return None if file is None else file.attributes.get(PROJECTION)

    @once_property
    def codebook_crc(self) -> int | None:
        """Identifies the codebook whose centroids its vectors name, compressed or not; None if they name none."""
        if self.coded is not None:
            return codebook_crc(self.coded.codec.codebook)
        return None if self.centroid_ids_file is None else self.centroid_ids_file.codebook_crc

    @once_property
    def dense_ivf(self) -> DenseIvf | None:
        """The inverted file of the dense vectors, if the segment has one."""
        if self.dense_ivf_file is None:
            return None
        verify_before_use(self.files[DENSE_IVF])
        return self.dense_ivf_file.read()

    @once_property
    def text_index(self) -> TextIndex | None:
        """The words of the documents, if the segment has them."""
        if self.text_index_file is None:
            return None
        verify_before_use(self.files[TEXT_INDEX])
        return self.text_index_file.read()

    @once_property
    def sparse(self) -> Impacts | None:
        """The inverted index of the sparse vectors."""
        if self.sparse_file is None:
            return None
        verify_before_use(self.files[SPARSE])
        return self.sparse_file.impacts()

    def release(self) -> None:
        """Drops the pages of its files from memory; see `SegmentFile.release`."""
        for file in self.files.values():
            file.release()


def _live_mask(record: SegmentRecord, deleted_rows: NDArray[np.int64] | None) -> NDArray[np.bool_] | None:
    if deleted_rows is None or not len(deleted_rows):
        return None
    if deleted_rows[0] < 0 or deleted_rows[-1] >= record.n_rows:
        raise CorruptIndexError(
            f"the catalogue deletes rows {deleted_rows[0]} to {deleted_rows[-1]} of segment {record.number}, which has "
            f"{record.n_rows}"
        )
    live = np.ones(record.n_rows, bool)
    live[deleted_rows] = False
    live.flags.writeable = False
    return live


def file_names(record: SegmentRecord, spec: EmbeddingSpec) -> list[str]:
    """The files to open: the rows, the embeddings of the spec, and the optional files that the record lists."""
    names = [ROWS]
    if spec.dense is not None:
        names += [DENSE, *([DENSE_IVF] if DENSE_IVF in record.files else [])]
    if spec.multi is not None:
        if RESIDUAL in record.files and MULTI in record.files:
            raise CorruptIndexError(
                f"the catalogue lists the multi vectors of segment {record.number} twice: {MULTI} and {RESIDUAL}"
            )
        uncompressed = [MULTI, *([CENTROID_IDS] if CENTROID_IDS in record.files else [])]
        names += [RESIDUAL] if RESIDUAL in record.files else uncompressed
    if spec.sparse is not None:
        names.append(SPARSE)
    if TEXT_INDEX in record.files:
        names.append(TEXT_INDEX)
    return names


def open_file(index: Path, record: SegmentRecord, name: str) -> SegmentFile:
    """One file of a segment; it must be the file that was committed. A missing file is a FileNotFoundError."""
    path = check_segment_folder(index, record.number) / name
    check_file(path)
    if name not in record.files:
        raise CorruptIndexError(f"the catalogue lists no file {name} for segment {record.number} of {index}")
    file = SegmentFile.open(path)
    if file.kind != name.removesuffix(".plait") or file.record != record.files[name]:
        raise CorruptIndexError(
            f"{path} is not the file that was committed: the catalogue has {record.files[name]}, the file is "
            f"{file.kind!r} with {file.record}; restore the index from a copy, or build it again"
        )
    return file


def open_segment(
    index: Path, record: SegmentRecord, spec: EmbeddingSpec, deleted_rows: NDArray[np.int64] | None
) -> Segment:
    """Opens a segment; the cost depends on its deleted rows alone. A missing file is a FileNotFoundError."""
    files = {name: open_file(index, record, name) for name in file_names(record, spec)}
    return Segment(record, spec, files, deleted_rows)


def write_segment(
    folder: Path,
    rows: Mapping[str, NDArray[Any]],
    embeddings: Embeddings,
    *,
    number: int,
    name_of_row: Callable[[int], str],
    fixed: int | None = None,
    codebook: Codebook | None = None,
    projection: int | None = None,
) -> dict[str, FileRecord]:
    """Writes a new folder and makes it durable. `rows` has docs, starts and ends, one for each item of the embeddings.

    `fixed` is the number of multi vectors of every item, if there is one. `codebook` is that of the compressed
    segments, if there are any, and `projection` the number of the projection that the multi vectors have passed. A
    value that is not finite in its stored type is an InputError, which names its row by `name_of_row`.
    """
    create_segment_folder(folder)
    attributes = {"segment": number}
    records = {
        ROWS: write_file(
            folder / ROWS,
            "rows",
            [
                ArraySource.of("docs", "<i8", rows["docs"]),
                ArraySource.of("starts", "<u4", rows["starts"]),
                ArraySource.of("ends", "<u4", rows["ends"]),
            ],
            attributes=attributes,
        )
    }
    if embeddings.dense is not None:
        values = _finite_values("dense", "<f4", embeddings.dense, name_of_row)
        records[DENSE] = write_file(folder / DENSE, "dense", [values], attributes=attributes)
    if embeddings.multi is not None:
        offsets = embeddings.multi.offsets

        def name_of_vector(vector: int) -> str:
            return name_of_row(int(np.searchsorted(offsets, vector, side="right")) - 1)

        values = _finite_values("multi", "<f2", embeddings.multi.values, name_of_vector)
        arrays = [values] if fixed is not None else [values, ArraySource.of("offsets", "<i8", offsets)]
        records[MULTI] = write_file(
            folder / MULTI, "multi", arrays, attributes=multi_attributes(number, fixed, projection)
        )
        if codebook is not None:
            stored = embeddings.multi.values.astype(np.float16)
            records[CENTROID_IDS] = write_centroid_ids(folder / CENTROID_IDS, stored, codebook, number=number)
    if embeddings.sparse is not None:
        records[SPARSE] = write_sparse(folder / SPARSE, invert(embeddings.sparse), number=number)
    sync_folder(folder)
    return records


def multi_attributes(number: int, fixed: int | None, projection: int | None) -> dict[str, int | float | str]:
    """The attributes that multi.plait and residual.plait share."""
    optional = {VECTORS_PER_ROW: fixed, PROJECTION: projection}
    return {"segment": number, **{name: value for name, value in optional.items() if value is not None}}


def _finite_values(kind: str, dtype: str, array: NDArray[Any], name_of: Callable[[int], str]) -> ArraySource:
    def pieces() -> Iterator[NDArray[Any]]:
        start = 0
        for piece in slices(array):
            with np.errstate(over="ignore"):  # a value too large for float16 becomes infinite, and is refused below
                stored = piece.astype(DTYPES[dtype])
            wrong = rows_not_finite(stored)
            if len(wrong):
                row = int(wrong[0])
                value = piece[row][~np.isfinite(stored[row])][0]
                raise InputError(
                    f"{name_of(start + row)}: its {kind} vector holds {value}, which cannot be stored as "
                    f"{DTYPES[dtype]}; the encoder must give finite values"
                )
            yield stored
            start += len(piece)

    return ArraySource("values", dtype, array.shape, pieces())

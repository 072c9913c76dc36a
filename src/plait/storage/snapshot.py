"""A snapshot: one read transaction of the catalogue, and the segments that it lists, memory-mapped. No later write,
merge or delete changes it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from plait.embeddings import Embeddings
from plait.encode.protocol import EmbeddingSpec
from plait.errors import CorruptIndexError, DocumentError, FilterError
from plait.records import FileOrigin, Section
from plait.storage.catalogue import chunks, placeholders, read_deleted_rows, read_segments
from plait.storage.codec_recall import read_codes_recall
from plait.storage.connection import CATALOGUE, ReadTransaction
from plait.storage.deletes import not_deleted
from plait.storage.fsync import storage_errors
from plait.storage.projections import StoredProjection, read_projection, stored_spec
from plait.storage.saved_settings import (
    SavedCalibration,
    SavedParams,
    SavedWeights,
    read_calibration,
    read_fusion_weights,
    read_tuned_params,
)
from plait.storage.schema import check_format
from plait.storage.segment import Segment, open_segment
from plait.storage.segment_file import SegmentFile
from plait.storage.stored_values import stored_text
from plait.storage.validate import check_ids, intact_metadata, parse_reserved
from plait.text.analyser import Analyser
from plait.text.fts_table import check_ascending, read_analyser

MAX_CACHED_FILTERS = 32


@dataclass(frozen=True, slots=True)
class StoredDocument:
    """A document of the index, and the rows of its segment that are its passages."""

    doc: int
    id: str
    text: str
    title: str
    metadata: dict[str, Any]
    segment: int
    first_row: int
    n_rows: int
    sections: tuple[Section, ...] = ()
    origin: FileOrigin | None = None


class Snapshot:
    """One state of an index. Threads may share it; a forked child may use it as long as the index has not changed."""

    def __init__(
        self,
        catalogue: ReadTransaction,
        segments: tuple[Segment, ...],
        spec: EmbeddingSpec,
        path: Path,
        *,
        commit: int,
        n_documents: int,
        tuned: SavedParams,
        codes_recall: float | None,
        weights: SavedWeights,
        calibration: SavedCalibration,
        analyser: Analyser,
        projection: StoredProjection | None = None,
    ) -> None:
        """Private: use `open`."""
        # `spec` has the sizes of stored vectors: a projection makes multi vectors narrower than the model's.
        self.catalogue, self.segments, self.spec, self.path = catalogue, segments, spec, path
        self.projection = projection
        self.commit = commit  # each write adds one: the same number means the same state
        self.n_documents = n_documents
        self.tuned = tuned  # search params that were tuned for this index, if any
        self.codes_recall = codes_recall  # see plait.storage.codec_recall; None if not measured
        self.weights = weights  # fusion weights that were fitted on judged queries, if any
        self.calibration = calibration  # what scores mean on this index, if that was measured
        self.analyser = analyser  # of the full text
        self.n_rows = sum(segment.n_live for segment in segments)
        self._sizes = {segment.number: segment.n_rows for segment in segments}
        self._docs_by_filter: dict[str, NDArray[np.int64]] = {}

    @classmethod
    def open(cls, path: Path, spec: EmbeddingSpec) -> Snapshot:
        """A view of the newest commit of the index at `path`. `spec` is that of the model."""
        incomplete = -1  # the commit whose files were not all found
        while True:
            view = ReadTransaction(path / CATALOGUE)
            try:
                with storage_errors(path):
                    try:
                        return cls._read(view, path, spec)
                    except FileNotFoundError as error:
                        # A merge may have removed a file after the catalogue was read; then there is a newer commit,
                        # which does not list the file.
                        if view.commit == incomplete:
                            raise CorruptIndexError(
                                f"{error.filename} is missing, and the catalogue lists it; restore the index from a "
                                f"copy, or build it again"
                            ) from None
                        incomplete = view.commit
            except BaseException:
                view.close()
                raise
            view.close()

    @classmethod
    def _read(cls, view: ReadTransaction, path: Path, spec: EmbeddingSpec) -> Snapshot:
        check_format(path, view.count("format"))  # a newer plait may have converted the index since it was opened
        commit = view.commit  # read now, so that a forked child can compare it with what it sees
        deleted = read_deleted_rows(view)
        projection = read_projection(view.rows, path)
        spec = stored_spec(spec, projection)
        return cls(
            view,
            tuple(open_segment(path, record, spec, deleted.get(record.number)) for record in read_segments(view)),
            spec,
            path,
            commit=commit,
            n_documents=view.count("n_documents"),
            tuned=read_tuned_params(view),
            codes_recall=read_codes_recall(view),
            weights=read_fusion_weights(view),
            calibration=read_calibration(view),
            analyser=read_analyser(view.rows),
            projection=projection,
        )

    @property
    def files(self) -> Iterator[SegmentFile]:
        """All files of its segments."""
        return (file for segment in self.segments for file in segment.files.values())

    def projected(self, embeddings: Embeddings) -> Embeddings:
        """Embeddings of the model as the index compares them: multi vectors are projected if the index does so."""
        return embeddings if self.projection is None else self.projection.project(embeddings)

    def matching(self, where: str, parameters: Sequence[object]) -> NDArray[np.int64]:
        """The numbers, ascending, of the documents that meet an SQL condition over id, title, text and metadata."""
        try:
            # As one string: SQLite returns a hundred thousand rows of one number ten times as slowly.
            sql = f"SELECT group_concat(doc) FROM documents WHERE ({where}) AND {not_deleted()}"
            ((numbers,),) = self.catalogue.rows(sql, parameters)
        except OverflowError as error:
            raise FilterError(f"the filter has a number that is too large to compare: {error}") from None
        return np.sort(np.fromstring(numbers or "", np.int64, sep=","))

    def filtered(self, filter: str) -> NDArray[np.int64]:
        """The numbers, ascending, of the documents that a filter accepts; cached for later searches."""
        docs = self._docs_by_filter.get(filter)
        if docs is None:
            from plait.filters import compile_filter  # most searches have no filter
            from plait.storage.field_indexes import read_columns

            condition = compile_filter(filter, read_columns(self.catalogue))
            docs = self.matching(condition.sql, condition.parameters)
            docs.flags.writeable = False
            if len(self._docs_by_filter) >= MAX_CACHED_FILTERS:
                self._docs_by_filter.clear()
            self._docs_by_filter[filter] = docs
        return docs

    def batch_after(self, doc: int, size: int, filter: str | None) -> list[int]:
        """The numbers, ascending, of the next `size` documents after a number, among those that a filter accepts."""
        from plait.filters import Condition, compile_filter
        from plait.storage.field_indexes import read_columns

        condition = Condition("1", ()) if filter is None else compile_filter(filter, read_columns(self.catalogue))
        sql = f"SELECT doc FROM documents WHERE doc > ? AND ({condition.sql}) AND {not_deleted()} ORDER BY doc LIMIT ?"
        docs = [number for (number,) in self.catalogue.rows(sql, [doc, *condition.parameters, size])]
        check_ascending(doc, [(number,) for number in docs])
        return docs

    def unknown_filter_fields(self, filter: str) -> str:
        """A message about the fields that the filter names and no document has; empty if there are none."""
        from plait.filters.unknown_fields import unknown_filter_fields

        return unknown_filter_fields(self.catalogue.rows, filter, not_deleted())

    def fetch(self, docs: Sequence[int]) -> list[StoredDocument]:
        """The documents with these numbers, in this order. Each is compared with its content digest."""
        rows = self._fetch_rows("doc, id, text, title, metadata, digest, segment, first_row, n_rows", docs)
        documents = []
        for doc, id, text, title, stored, digest, segment, first_row, n_rows in rows:
            metadata = intact_metadata(id, text, title, stored, digest)
            if metadata is None:
                raise CorruptIndexError(
                    f"document {id!r:.100} of {self.path} does not match its content digest; run plait check "
                    f"{self.path}"
                )
            self._check_placement(id, segment, first_row, n_rows)
            reserved = self._reserved(id, metadata)
            documents.append(StoredDocument(doc, id, text, title, metadata, segment, first_row, n_rows, *reserved))
        return documents

    def _reserved(self, id: str, metadata: dict[str, Any]) -> tuple[tuple[Section, ...], FileOrigin | None]:
        try:
            return parse_reserved(f"document {id!r:.100}", metadata)
        except DocumentError as error:
            raise CorruptIndexError(f"index {self.path} is damaged: {error}; run plait check {self.path}") from None

    def _check_placement(self, id: str, segment: object, first_row: object, n_rows: object) -> None:
        """The rows of a document must be in a segment of this snapshot. Every hit is checked, so this must be quick."""
        if type(segment) is type(first_row) is type(n_rows) is int:
            size = self._sizes.get(segment, 0)
            if 0 <= first_row < size and 1 <= n_rows <= size - first_row:
                return
        raise CorruptIndexError(
            f"the catalogue is damaged: document {id!r:.100} has {n_rows!r:.60} rows from row {first_row!r:.60} of "
            f"segment {segment!r:.60}, which does not have them; run plait check"
        )

    def fetch_ids(self, docs: Sequence[int]) -> list[str]:
        """The ids of the documents with these numbers, in this order. Reads no texts."""
        return [stored_text(id, f"the id of document {doc}") for doc, id in self._fetch_rows("doc, id", docs)]

    def _fetch_rows(self, columns: str, docs: Sequence[int]) -> list[tuple[Any, ...]]:
        numbers = [int(doc) for doc in docs]
        rows: dict[int, tuple[Any, ...]] = {}
        for chunk in chunks(list(dict.fromkeys(numbers))):
            condition = f"doc IN ({placeholders(len(chunk))}) AND {not_deleted()}"
            sql = f"SELECT {columns} FROM documents WHERE {condition}"
            rows.update((row[0], row) for row in self.catalogue.rows(sql, chunk))
        missing = [doc for doc in numbers if doc not in rows]
        if missing:
            raise CorruptIndexError(
                f"index {self.path} has no document numbered {missing[0]}, but a segment has rows of it; run "
                f"plait check {self.path}"
            )
        return [rows[doc] for doc in numbers]

    def lookup(self, ids: Sequence[str]) -> dict[str, int]:
        """The document number of each id that exists."""
        check_ids(ids)
        numbers: dict[str, int] = {}
        for chunk in chunks(list(dict.fromkeys(ids))):
            condition = f"id IN ({placeholders(len(chunk))}) AND {not_deleted()}"
            numbers.update(self.catalogue.rows(f"SELECT id, doc FROM documents WHERE {condition}", chunk))
        return numbers

    def close(self) -> None:
        """Ends the transaction; arrays stay readable. A second call does nothing."""
        self.catalogue.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

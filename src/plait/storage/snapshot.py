"""A snapshot: what a reader sees. One read transaction of the catalogue and the segments that it lists, mapped; no
later write, merge or deletion changes it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from plait.closing import Closing
from plait.encode.protocol import EmbeddingSpec
from plait.errors import CorruptIndexError, FilterError
from plait.storage.catalogue import chunks, marks, read_segments, read_tombstones, refuse_newer
from plait.storage.codec_recall import read_codes_recall
from plait.storage.connection import ReadTransaction
from plait.storage.deletes import not_deleted
from plait.storage.documents import check_ids, digest_holds
from plait.storage.fsync import storage_errors
from plait.storage.fusion_weights import SavedWeights, read_weights
from plait.storage.segment import Segment, open_segment
from plait.storage.tuned_params import SavedParams, read_tuned_params
from plait.text.analyser import DEFAULT_ANALYSER, Analyser
from plait.text.fts_table import read_analyser

CATALOGUE = "catalogue.sqlite"
KEPT_FILTERS = 32


@dataclass(frozen=True, slots=True)
class StoredDocument:
    """A document as the index keeps it, with the rows of its segment that are its passages."""

    doc: int
    id: str
    text: str
    title: str
    metadata: dict[str, Any]
    segment: int
    first_row: int
    n_rows: int


class Snapshot(Closing):
    """One state of an index. Threads may share it; a forked child may use it while the index has not changed."""

    def __init__(
        self,
        view: ReadTransaction,
        segments: tuple[Segment, ...],
        spec: EmbeddingSpec,
        path: Path,
        *,
        commit: int,
        n_documents: int,
        tuned: SavedParams,
        codes_recall: float | None,
        weights: SavedWeights,
        analyser: Analyser = DEFAULT_ANALYSER,
    ) -> None:
        """Not to be called: `open` makes it."""
        self.segments, self.spec, self.path = segments, spec, path
        self.commit = commit  # rises by one with each write: equal numbers of one index are equal states
        self.n_documents = n_documents
        self.tuned = tuned  # the settings that were chosen for searching this index, if any
        self.codes_recall = codes_recall  # the share of the vectors' best that codes keep; None if it was not measured
        self.weights = weights  # those of strands that were fitted on judged queries, if any
        self.analyser = analyser  # of the full text
        self.n_rows = sum(segment.n_live for segment in segments)
        self.catalogue = view  # one read transaction
        self._living = not_deleted(view.count("format"))
        self._filtered: dict[str, NDArray[np.int64]] = {}

    @classmethod
    def open(cls, path: Path, spec: EmbeddingSpec) -> Snapshot:
        """A view of the newest commit of the index at `path`."""
        missed = -1  # the commit whose files were not all there
        while True:
            view = ReadTransaction(path / CATALOGUE)
            try:
                with storage_errors(path):
                    try:
                        return cls._of(view, path, spec)
                    except FileNotFoundError as error:
                        # A writer that merged segments may have removed a file since the catalogue was read; then
                        # there is a newer commit, which does not list it.
                        if view.commit == missed:
                            raise CorruptIndexError(
                                f"{error.filename} is missing, and the catalogue lists it; restore the index from a "
                                f"copy, or build it again"
                            ) from None
                        missed = view.commit
            except BaseException:
                view.close()
                raise
            view.close()

    @classmethod
    def _of(cls, view: ReadTransaction, path: Path, spec: EmbeddingSpec) -> Snapshot:
        refuse_newer(path, view.count("format"))  # a newer plait may have taken the index over since it was opened
        commit = view.commit  # read now, so that a forked child can tell whether it sees the same state
        dead = read_tombstones(view)
        segments = tuple(open_segment(path, record, spec, dead.get(record.number)) for record in read_segments(view))
        counts = {"commit": commit, "n_documents": view.count("n_documents")}
        return cls(
            view,
            segments,
            spec,
            path,
            **counts,
            tuned=read_tuned_params(view),
            codes_recall=read_codes_recall(view),
            weights=read_weights(view),
            analyser=read_analyser(view.rows),
        )

    def matching(self, where: str, parameters: Sequence[object]) -> NDArray[np.int64]:
        """The numbers, ascending, of the documents that meet an SQL condition over id, title, text and metadata."""
        try:
            # As one text: a hundred thousand rows of one number each would take ten times as long to hand over.
            sql = f"SELECT group_concat(doc) FROM documents WHERE ({where}) AND {self._living}"
            ((numbers,),) = self.catalogue.rows(sql, parameters)
        except OverflowError as error:
            raise FilterError(f"the filter has a number that is too large to compare: {error}") from None
        return np.sort(np.fromstring(numbers or "", np.int64, sep=","))

    def filtered(self, filter: str) -> NDArray[np.int64]:
        """The numbers, ascending, of the documents that a filter accepts. Kept for the next search: nothing changes."""
        found = self._filtered.get(filter)
        if found is None:
            from plait.filters import compile_filter
            from plait.storage.field_indexes import read_columns  # most searches have no filter

            condition = compile_filter(filter, read_columns(self.catalogue))
            found = self.matching(condition.sql, condition.parameters)
            found.flags.writeable = False
            if len(self._filtered) >= KEPT_FILTERS:
                self._filtered.clear()
            self._filtered[filter] = found
        return found

    def unknown_filter_fields(self, filter: str) -> str:
        """What to say of fields that the filter names and no document has; empty if there are none."""
        from plait.filters.unknown_fields import unknown_filter_fields

        return unknown_filter_fields(self.catalogue.rows, filter, self._living)

    def fetch(self, docs: Sequence[int]) -> list[StoredDocument]:
        """The documents of these numbers, in this order, each compared with the digest of its content."""
        found = self._by_number("doc, id, text, title, metadata, digest, segment, first_row, n_rows", docs)
        for _, id, text, title, metadata, digest, *_ in found:
            if not digest_holds(id, text, title, metadata, digest):
                raise CorruptIndexError(
                    f"document {id!r:.100} of {self.path} is not what was written; run plait check {self.path}"
                )
        return [
            StoredDocument(doc, id, text, title, json.loads(metadata), segment, first_row, n_rows)
            for doc, id, text, title, metadata, _, segment, first_row, n_rows in found
        ]

    def fetch_ids(self, docs: Sequence[int]) -> list[str]:
        """The ids of these numbers, in this order; texts are not read."""
        return [id for _, id in self._by_number("doc, id", docs)]

    def _by_number(self, columns: str, docs: Sequence[int]) -> list[tuple[Any, ...]]:
        numbers = [int(doc) for doc in docs]
        rows: dict[int, tuple[Any, ...]] = {}
        for chunk in chunks(list(dict.fromkeys(numbers))):
            named = f"doc IN ({marks(len(chunk))}) AND {self._living}"
            found = self.catalogue.rows(f"SELECT {columns} FROM documents WHERE {named}", chunk)
            rows.update((row[0], row) for row in found)
        missing = [doc for doc in numbers if doc not in rows]
        if missing:
            raise CorruptIndexError(
                f"index {self.path} has no document numbered {missing[0]}, though its rows name it; "
                f"run `plait check {self.path}`"
            )
        return [rows[doc] for doc in numbers]

    def lookup(self, ids: Sequence[str]) -> dict[str, int]:
        """The numbers of those ids that are there."""
        found: dict[str, int] = {}
        check_ids(ids)
        for chunk in chunks(list(dict.fromkeys(ids))):
            named = f"id IN ({marks(len(chunk))}) AND {self._living}"
            found.update(self.catalogue.rows(f"SELECT id, doc FROM documents WHERE {named}", chunk))
        return found

    def close(self) -> None:
        """Ends the view; arrays that are still held stay readable. A second call does nothing."""
        self.catalogue.close()

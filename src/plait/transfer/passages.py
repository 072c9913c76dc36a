"""The passages of an index with their stored vectors, a batch at a time: what every export reads."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from plait.embeddings import Embeddings, MultiVectors, SparseVectors
from plait.records import Document, Span
from plait.storage.merge import take_coded_rows
from plait.storage.segment import Segment, segment_errors
from plait.storage.snapshot import Snapshot, StoredDocument
from plait.storage.store import IMPORTED

if TYPE_CHECKING:
    from plait.index import Index

BATCH_DOCUMENTS = 500


@dataclass(frozen=True, slots=True, eq=False)
class PassageBatch:
    """Documents, the spans of their passages, and one item of each kind of embedding for each passage."""

    documents: list[Document]
    spans: list[list[Span]]
    embeddings: Embeddings

    @property
    def n_passages(self) -> int:
        return sum(map(len, self.spans))


class Passages:
    """The passages of one state of an index, for an export."""

    def __init__(
        self,
        index: Index,
        *,
        filter: str | None = None,
        vectors: bool = True,
        on_progress: Callable[[int, int | None], None] | None = None,
    ) -> None:
        self.index, self.spec, self.model = index, index.spec, model_name(index)
        self.vectors = vectors
        has_codes = any(segment.coded is not None for segment in index.snapshot.segments)
        self.multi_type = np.dtype(np.float32 if has_codes else np.float16)  # of multi vectors: codes decode to float32
        self._snapshot, self._filter, self._on_progress = index.snapshot, filter, on_progress

    def batches(self, batch_size: int = BATCH_DOCUMENTS) -> Iterator[PassageBatch]:
        n_read = 0
        total = self._snapshot.n_rows if self._filter is None else None
        for batch in read_passages(self._snapshot, filter=self._filter, batch_size=batch_size, vectors=self.vectors):
            yield batch
            n_read += batch.n_passages
            if self._on_progress is not None:
                self._on_progress(n_read, total)


def read_passages(
    snapshot: Snapshot, *, filter: str | None = None, batch_size: int = BATCH_DOCUMENTS, vectors: bool = True
) -> Iterator[PassageBatch]:
    """All documents that a filter accepts, in the order in which they were added. Compressed multi vectors are decoded
    from their finest codes; without `vectors` no embeddings are read."""
    reader = _Reader(snapshot, vectors=vectors)
    last = 0
    while numbers := snapshot.batch_after(last, batch_size, filter):
        last = numbers[-1]
        yield reader.read(snapshot.fetch(numbers))


def model_name(index: Index) -> str:
    """The model that made the vectors of an index; empty if that is unknown."""
    properties = index.info().properties
    imported = properties.get(IMPORTED)
    named = properties.get("model") or (imported.get("model") if isinstance(imported, dict) else "")
    return str(named or "")


class _Reader:
    def __init__(self, snapshot: Snapshot, *, vectors: bool) -> None:
        self._spec = snapshot.spec if vectors else None
        self._segments = {segment.number: segment for segment in snapshot.segments}
        self._forward: tuple[int, SparseVectors] | None = None  # the sparse vectors of one segment, by row

    def read(self, stored: list[StoredDocument]) -> PassageBatch:
        documents = [Document(one.id, one.text, one.title, one.metadata, one.sections, one.origin) for one in stored]
        spans: list[list[Span]] = []
        dense: list[NDArray[np.float32]] = []
        sparse: list[SparseVectors] = []
        multi: list[MultiVectors] = []
        for one in stored:
            segment = self._segments[one.segment]
            rows = slice(one.first_row, one.first_row + one.n_rows)
            starts, ends = segment.starts[rows].tolist(), segment.ends[rows].tolist()
            spans.append([Span(start, end) for start, end in zip(starts, ends, strict=True)])
            if self._spec is None:
                continue
            if self._spec.dense is not None:
                assert segment.dense is not None
                dense.append(segment.dense[rows])
            if self._spec.sparse is not None:
                sparse.append(self._sparse(segment).take(range(rows.start, rows.stop)))
            if self._spec.multi is not None:
                multi.append(_multi(segment, rows))
        return PassageBatch(
            documents,
            spans,
            Embeddings(
                dense=np.concatenate(dense) if dense else None,
                sparse=_joined_sparse(sparse) if sparse else None,
                multi=_joined_multi(multi) if multi else None,
            ),
        )

    def _sparse(self, segment: Segment) -> SparseVectors:
        """The postings of a segment, sorted by row. Documents come in the order of segments, so one is enough."""
        if self._forward is None or self._forward[0] != segment.number:
            self._forward = (segment.number, _forward_sparse(segment))
        return self._forward[1]


def _forward_sparse(segment: Segment) -> SparseVectors:
    index = segment.sparse
    assert index is not None
    with segment_errors(segment, "sparse"):
        terms = np.repeat(index.terms, np.diff(index.offsets))
        order = np.argsort(index.rows, kind="stable")  # terms ascend, and stay so within a row
        rows = index.rows[order]
        weights = index.impacts[order].astype(np.float32) * index.scales[rows]
        offsets = np.searchsorted(rows, np.arange(segment.n_rows + 1)).astype(np.int64)
        return SparseVectors(terms[order].astype(np.int32), weights.astype(np.float32), offsets)


def _multi(segment: Segment, rows: slice) -> MultiVectors:
    stored = segment.coded if segment.multi is None else segment.multi
    assert stored is not None
    offsets = stored.offsets[rows.start : rows.stop + 1]
    begin, end = int(offsets[0]), int(offsets[-1])
    relative = (offsets - begin).astype(np.int64)
    if segment.multi is not None:
        return MultiVectors(segment.multi.values[begin:end], relative)
    assert segment.coded is not None
    with segment_errors(segment):
        codec, coded = segment.coded.codes_8bit or (segment.coded.codec, segment.coded.rows)
        return MultiVectors(codec.decode(take_coded_rows(coded, np.arange(begin, end))), relative)


def _joined_sparse(parts: list[SparseVectors]) -> SparseVectors:
    lengths = np.concatenate([np.diff(part.offsets) for part in parts])
    offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths, dtype=np.int64)])
    terms = np.concatenate([part.terms for part in parts])
    return SparseVectors(terms, np.concatenate([part.weights for part in parts]), offsets)


def _joined_multi(parts: list[MultiVectors]) -> MultiVectors:
    lengths = np.concatenate([np.diff(part.offsets) for part in parts])
    offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths, dtype=np.int64)])
    return MultiVectors(np.concatenate([part.values for part in parts]), offsets)

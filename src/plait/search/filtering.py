"""Which documents and rows of a snapshot may be found: rows that are not deleted, of documents that a filter accepts.

A `DocFilter` computes its rows once and keeps them. Those of recent filters are kept as long as their snapshot: an
equal filter then costs nothing, where selecting its rows would take as long as a search.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from plait.checks import as_list, shown
from plait.errors import QueryError
from plait.locks import ForkSafeLock
from plait.search.multivector.item_filter import ItemFilter
from plait.storage.segment import Segment
from plait.storage.snapshot import Snapshot

T = TypeVar("T")

Rows = NDArray[np.int64] | None  # rows of a segment, ascending; None: all

# Documents that are this much rarer than rows are looked up one by one; otherwise all rows are compared with them.
RARE = 16
MAX_FILTERS = 4  # whose rows are kept for a snapshot
MAX_SHOWN = 5  # ids in an error message
# Shared by filters: making a lock for each of them would take 2 % of a search of few candidates.
_LOCKS = [ForkSafeLock() for _ in range(16)]


class SegmentRows:
    """The rows of one segment that may be found."""

    def __init__(self, segment: Segment, base: int, rows: Rows) -> None:
        """`base` is the number of the segment's first row, counted over all segments."""
        self.segment, self.base, self.rows = segment, base, rows

    def __len__(self) -> int:
        return self.segment.n_rows if self.rows is None else len(self.rows)

    @property
    def numbers(self) -> NDArray[np.int64]:
        """The rows, also where they are all."""
        return np.arange(self.segment.n_rows) if self.rows is None else self.rows

    @property
    def docs(self) -> NDArray[np.int64]:
        """The document of each row."""
        return self.segment.docs if self.rows is None else self.segment.docs[self.rows]

    @cached_property
    def bits(self) -> NDArray[np.uint8] | None:
        """One bit for each row of the segment, as the kernels read them; None: all rows."""
        if self.rows is None:
            return None
        accepted = np.zeros(self.segment.n_rows, bool)
        accepted[self.rows] = True
        return np.packbits(accepted, bitorder="little")

    @cached_property
    def item_filter(self) -> ItemFilter:
        """The same for the methods that search a compressed segment."""
        assert self.segment.coded is not None
        return ItemFilter(self.segment.coded, self.rows, self.bits)

    @cached_property
    def n_documents(self) -> int:
        docs = self.docs
        return 1 + int(np.count_nonzero(docs[1:] != docs[:-1]))


class DocFilter:
    """The documents of one snapshot that may be found. Threads may share it."""

    def __init__(self, segments: Sequence[Segment], docs: NDArray[np.int64] | None) -> None:
        """`docs` are document numbers, ascending; None: all."""
        self.docs, self._segments = docs, segments
        self._lock = _LOCKS[id(self) // 64 % len(_LOCKS)]
        self._segment_rows: list[SegmentRows] | None = None
        self._derived: dict[str, Any] = {}

    @property
    def segment_rows(self) -> list[SegmentRows]:
        """The segments that have rows of these documents."""
        if self._segment_rows is None:
            with self._lock:
                if self._segment_rows is None:
                    self._segment_rows = list(rows_of_documents(self._segments, self.docs))
        return self._segment_rows

    def derived(self, name: str, make: Callable[[list[SegmentRows]], T]) -> T:
        """What `make` derives from the rows, made once and stored with them. Each stage uses its own name."""
        if name not in self._derived:
            with self._lock:
                if name not in self._derived:
                    self._derived[name] = make(self.segment_rows)
        derived: T = self._derived[name]
        return derived


class _SnapshotFilters:
    """The filters of one snapshot whose rows are kept. It must not refer to the snapshot, which would then stay."""

    def __init__(self, segments: Sequence[Segment]) -> None:
        self.everything = DocFilter(segments, None)
        self.by_text: dict[str, DocFilter] = {}


_filters: WeakKeyDictionary[Snapshot, _SnapshotFilters] = WeakKeyDictionary()
_filters_lock = ForkSafeLock()


def _filters_of(snapshot: Snapshot) -> _SnapshotFilters:
    known = _filters.get(snapshot)
    if known is None:
        with _filters_lock:
            known = _filters.get(snapshot)
            if known is None:
                known = _filters[snapshot] = _SnapshotFilters(snapshot.segments)
    return known


def or_everything(snapshot: Snapshot, doc_filter: DocFilter | None) -> DocFilter:
    """The filter, or one that accepts every document."""
    return _filters_of(snapshot).everything if doc_filter is None else doc_filter


def filter_documents(snapshot: Snapshot, filter: str) -> DocFilter | None:
    """The documents that a filter expression accepts; None if it accepts all."""
    known = _filters_of(snapshot).by_text
    doc_filter = known.get(filter)  # one step: another thread may clear the cache at any time
    if doc_filter is not None:
        return doc_filter
    docs = snapshot.filtered(filter)
    if len(docs) == snapshot.n_documents:
        return None  # selecting rows would only take time
    if len(known) >= MAX_FILTERS:
        known.clear()
    return known.setdefault(filter, DocFilter(snapshot.segments, docs))


def filter_candidates(snapshot: Snapshot, ids: Sequence[str], within: DocFilter | None = None) -> DocFilter:
    """The documents of these ids that `within` accepts; QueryError for an id that is not in the index."""
    ids = as_list("candidates", ids, "ids", QueryError)
    numbers = snapshot.lookup(ids)
    missing = [id for id in dict.fromkeys(ids) if id not in numbers]
    if missing:
        raise QueryError(
            f"{len(missing)} of the candidates are not in the index: {', '.join(map(shown, missing[:MAX_SHOWN]))}"
            f"{' ...' if len(missing) > MAX_SHOWN else ''}; leave them out, or add them first"
        )
    docs = np.unique(np.fromiter(numbers.values(), np.int64, len(numbers)))
    if within is not None and within.docs is not None:
        docs = np.intersect1d(docs, within.docs)
    return DocFilter(snapshot.segments, docs)


def live_documents(snapshot: Snapshot) -> NDArray[np.int64]:
    """The numbers of all documents, ascending; read from the segments, not from the catalogue."""
    docs = [segment.docs if segment.live is None else segment.docs[segment.live] for segment in snapshot.segments]
    return np.unique(np.concatenate(docs)) if docs else np.zeros(0, np.int64)


def rows_of_documents(segments: Sequence[Segment], docs: NDArray[np.int64] | None) -> Iterator[SegmentRows]:
    """The rows of these documents, ascending, or of all, in each segment that has any; deleted rows are left out."""
    base = 0
    # The slice of `docs` within each segment's range, for all segments at once: a selective filter misses most.
    ranges = None if docs is None else np.searchsorted(docs, [segment.span for segment in segments])
    for number, segment in enumerate(segments):
        in_range = None if docs is None or ranges is None else docs[ranges[number, 0] : ranges[number, 1]]
        if segment.n_rows and (in_range is None or len(in_range)):
            rows = _live_rows(segment, in_range)
            if rows is None or len(rows):
                yield SegmentRows(segment, base, rows)
        base += segment.n_rows


def _live_rows(segment: Segment, docs: NDArray[np.int64] | None) -> Rows:
    """The rows of these documents that are not deleted, ascending."""
    if docs is None:
        return None if segment.live is None else np.flatnonzero(segment.live)
    if RARE * len(docs) < segment.n_rows:
        rows = _look_up(segment.docs, docs)
        return rows if segment.live is None else rows[segment.live[rows]]
    accepted = _contains(docs, segment.docs)
    return np.flatnonzero(accepted if segment.live is None else accepted & segment.live)


def _look_up(row_docs: NDArray[np.int64], docs: NDArray[np.int64]) -> NDArray[np.int64]:
    """The rows of these documents. Both ascend, so the rows of a document are consecutive."""
    begins, ends = np.searchsorted(row_docs, docs), np.searchsorted(row_docs, docs, side="right")
    lengths = ends - begins
    return np.repeat(begins - (np.cumsum(lengths) - lengths), lengths) + np.arange(lengths.sum())


def _contains(sorted_set: NDArray[np.int64], values: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Which values are in the set. Both ascend, so each value takes one binary search and no hashing."""
    if len(sorted_set) == 0:
        return np.zeros(len(values), bool)
    position = np.minimum(np.searchsorted(sorted_set, values), len(sorted_set) - 1)
    return np.asarray(sorted_set[position] == values)

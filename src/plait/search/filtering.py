"""Which rows of a snapshot may be found: those that are alive, of documents that a filter accepts.

A filter that is asked again has the same answer while the snapshot lives, so its rows are kept, in the forms that
searching needs them: choosing them anew would take as long as a search.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from plait.search.multivector.item_filter import Chosen
from plait.storage.segment import Segment
from plait.storage.store import Snapshot

T = TypeVar("T")

Rows = NDArray[np.int64] | None  # of a segment; None is all of them
Allowed = NDArray[np.int64] | None  # sorted document numbers; None is all of them

# Documents are looked up one by one where they are this much rarer than rows; else all rows are compared with them.
FEW = 16
KEPT = 4  # filters whose rows are kept


class Eligible:
    """The rows of one segment that may be found."""

    def __init__(self, segment: Segment, base: int, rows: Rows) -> None:
        self.segment, self.base, self.rows = segment, base, rows  # the base is the number of the segment's first row

    def __len__(self) -> int:
        return self.segment.n_rows if self.rows is None else len(self.rows)

    @property
    def numbers(self) -> NDArray[np.int64]:
        """The same, named one by one."""
        return np.arange(self.segment.n_rows) if self.rows is None else self.rows

    @cached_property
    def bits(self) -> NDArray[np.uint8] | None:
        """A bit for each row, as the kernels read them; None where all are eligible."""
        if self.rows is None:
            return None
        keep = np.zeros(self.segment.n_rows, bool)
        keep[self.rows] = True
        return np.packbits(keep, bitorder="little")

    @cached_property
    def chosen(self) -> Chosen:
        """The same of a compressed segment, as the methods of searching it need them."""
        assert self.segment.coded is not None
        return Chosen(self.segment.coded, self.rows, self.bits)

    @cached_property
    def n_documents(self) -> int:
        """How many there are to be found."""
        docs = self.segment.docs if self.rows is None else self.segment.docs[self.rows]
        return 1 + int(np.count_nonzero(docs[1:] != docs[:-1]))


def eligible(snapshot: Snapshot, allowed: Allowed) -> list[Eligible]:
    """The segments that have rows to be found."""
    return kept(snapshot, allowed, "rows", lambda: list(_found(snapshot, allowed)))


def kept(snapshot: Snapshot, allowed: Allowed, what: str, make: Callable[[], T]) -> T:
    """What `make` gives for a filter, made once where the filter lasts and kept for the next search with it."""
    # What nobody can change is what the snapshot gave for a filter; the same array is the same filter.
    if allowed is not None and allowed.flags.writeable:
        return make()
    known = snapshot.kept_rows.get(id(allowed))
    if known is None or known[0] is not allowed:
        if len(snapshot.kept_rows) >= KEPT:
            snapshot.kept_rows.clear()
        known = snapshot.kept_rows[id(allowed)] = allowed, {}
    held: dict[str, T] = known[1]
    if what not in held:
        held[what] = make()
    return held[what]


def candidate_rows(snapshot: Snapshot, allowed: Allowed) -> Iterator[tuple[Segment, int, Rows]]:
    """Each segment with the number of its first row and the rows to score; None is all of them."""
    for own in eligible(snapshot, allowed):
        yield own.segment, own.base, own.rows


def _found(snapshot: Snapshot, allowed: Allowed) -> Iterator[Eligible]:
    base = 0
    # Which of the named ones can be in a segment, for all segments at once: few are in most segments none.
    near = None if allowed is None else np.searchsorted(allowed, [segment.span for segment in snapshot.segments])
    for number, segment in enumerate(snapshot.segments):
        own = None if allowed is None or near is None else allowed[near[number, 0] : near[number, 1]]
        if segment.n_rows and (own is None or len(own)):
            rows = _rows_of(segment, own)
            if rows is None or len(rows):
                yield Eligible(segment, base, rows)
        base += segment.n_rows


def _rows_of(segment: Segment, allowed: Allowed) -> Rows:
    """The live rows of these documents, ascending."""
    if allowed is None:
        return None if segment.live is None else np.flatnonzero(segment.live)
    if FEW * len(allowed) < segment.n_rows:
        rows = _looked_up(segment.docs, allowed)
        return rows if segment.live is None else rows[segment.live[rows]]
    inside = _contains(allowed, segment.docs)
    return np.flatnonzero(inside if segment.live is None else inside & segment.live)


def _looked_up(docs: NDArray[np.int64], wanted: NDArray[np.int64]) -> NDArray[np.int64]:
    """The places in `docs` of what is wanted. Both ascend; the rows of a document stand together."""
    begins, ends = np.searchsorted(docs, wanted), np.searchsorted(docs, wanted, side="right")
    lengths = ends - begins
    return np.repeat(begins - (np.cumsum(lengths) - lengths), lengths) + np.arange(lengths.sum())


def _contains(sorted_set: NDArray[np.int64], values: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Which values are in the set. Both ascend, so this needs one search each and no hashing."""
    if len(sorted_set) == 0:
        return np.zeros(len(values), bool)
    place = np.minimum(np.searchsorted(sorted_set, values), len(sorted_set) - 1)
    return np.asarray(sorted_set[place] == values)

"""`SegmentGroup`: segments of one codec, which are searched as if they were one. A single segment is a group of one.

A segment that is not compressed belongs to the group whose centroids its vectors were assigned to. It is new and
small: all its passages are compared by centroids, and the best are scored by their vectors.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from plait.codec.coded_items import CodedItems
from plait.embeddings import MultiVectors
from plait.locks import once_property
from plait.scoring.residual import Cells
from plait.search.filtering import DocFilter, SegmentRows, or_everything
from plait.storage.files.residual import same_codec
from plait.storage.segment import Segment, segment_errors
from plait.storage.snapshot import Snapshot

RowNumbers = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class CodedPart:
    """The compressed passages of one segment, and which of them may be found."""

    items: CodedItems
    rows: RowNumbers | None = None  # ascending; None: all
    allowed_bits: NDArray[np.uint8] | None = None  # the same, one bit for each passage
    guard: AbstractContextManager[None] = field(
        default_factory=nullcontext
    )  # turns kernel errors into CorruptIndexError

    @property
    def numbers(self) -> RowNumbers:
        return np.arange(len(self.items)) if self.rows is None else self.rows


@dataclass(frozen=True, slots=True, eq=False)
class UncompressedParts:
    """The passages of several segments that are not compressed. Their centroid ids are copied into one array, two bytes
    a vector, so that one call compares all of them."""

    vectors: list[MultiVectors]  # of each segment
    rows: list[RowNumbers]  # of each segment, those that may be found
    cells: Cells
    begins: RowNumbers  # of the centroid ids of each row
    ends: RowNumbers

    @classmethod
    def of(cls, parts: Sequence[SegmentRows]) -> UncompressedParts:
        all_vectors, all_rows, begins, ends, n_before = [], [], [], [], 0
        cells: list[NDArray[Any]] = []
        for part in parts:
            vectors, near = part.segment.multi, part.segment.centroid_ids_file
            assert vectors is not None
            assert near is not None
            rows = part.numbers
            with segment_errors(part.segment, "uncompressed"):
                near.check_values()
            all_vectors.append(vectors)
            all_rows.append(rows)
            cells.append(near.centroid_ids)
            begins.append(n_before + vectors.offsets[rows])
            ends.append(n_before + vectors.offsets[rows + 1])
            n_before += len(near.centroid_ids)
        return cls(all_vectors, all_rows, np.concatenate(cells), np.concatenate(begins), np.concatenate(ends))


class SegmentGroup:
    """Segments of one codec, at least one of which is compressed; or one segment without a codec."""

    def __init__(self, parts: Sequence[SegmentRows]) -> None:
        compressed = [part for part in parts if part.segment.coded is not None]
        self.n_uncompressed = len(parts) - len(compressed)
        self._uncompressed = [part for part in parts if part.segment.coded is None]
        self.parts = [*compressed, *self._uncompressed]
        self.coded = [
            CodedPart(part.segment.coded, part.rows, part.bits, segment_errors(part.segment))
            for part in compressed
            if part.segment.coded is not None
        ]

    def __len__(self) -> int:
        """The passages that may be found."""
        return sum(len(part) for part in self.parts)

    @property
    def n_rows(self) -> int:
        """All passages."""
        return sum(part.segment.n_rows for part in self.parts)

    @once_property
    def n_documents(self) -> int:
        return sum(part.n_documents for part in self.parts)

    @once_property
    def uncompressed(self) -> UncompressedParts | None:
        return UncompressedParts.of(self._uncompressed) if self._uncompressed else None


def segment_groups(snapshot: Snapshot, doc_filter: DocFilter | None = None) -> list[SegmentGroup]:
    """All segments with rows that may be found: those of one codec together, the others one by one."""
    return or_everything(snapshot, doc_filter).derived("segment groups", _group)


def _group(parts: Sequence[SegmentRows]) -> list[SegmentGroup]:
    groups: list[list[SegmentRows]] = []
    for part in sorted(parts, key=lambda part: part.segment.coded is None):  # compressed ones first
        group = next((group for group in groups if _share_codec(group[0].segment, part.segment)), None)
        if group is None:
            groups.append([part])
        else:
            group.append(part)
    return [SegmentGroup(group) for group in groups]


def _share_codec(first: Segment, other: Segment) -> bool:
    if first.coded is None or first.codebook_crc != other.codebook_crc:
        return False
    if other.coded is not None:
        return same_codec(first.coded, other.coded)
    return other.centroid_ids_file is not None and other.centroid_ids_file.n_centroids == len(
        first.coded.codec.codebook
    )

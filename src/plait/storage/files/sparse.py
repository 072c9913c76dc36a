"""sparse.plait: the sparse vectors of a segment, as an inverted index.

terms, offsets                    the terms that occur, ascending; term i owns the postings offsets[i] to offsets[i + 1]
rows, impacts                     one for each posting: a row of the segment, ascending within a term, and an impact
                                  from 1 to 255
row_scales                        one for each row: a weight is impact times scale; the largest impact of a row is 255
max_weights                       the largest weight of each term
frequent_terms, window_maxima     the terms that have window maxima, and their largest weight in each window of rows, in
                                  255ths of the term's largest weight, rounded up; attribute window_rows is the size of
                                  a window

The file has no forward index: a search finds the weights of a row in the postings of the query's terms, and a merge
goes through the postings. That halves the bytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from plait.codec.impacts import (
    MAX_IMPACT,
    WINDOW_ROWS,
    frequent_terms,
    max_per_range,
    n_windows,
    run_lengths,
    window_maxima,
    with_window_maxima,
)
from plait.errors import InputError
from plait.scoring.sparse import Impacts
from plait.storage.files.residual import check_offsets
from plait.storage.segment_file import ArraySource, FileRecord, SegmentFile, write_file

if TYPE_CHECKING:
    from plait.storage.merge import LiveRows

SPARSE = "sparse.plait"
MAX_WINDOW_ROWS = 1 << 20
MAX_SCALE = 1e30
BLOCK_POSTINGS = 1 << 20  # that a merge holds in memory at a time


class SparseFile:
    """The file of one segment. The constructor checks sizes, which takes the same time at any size."""

    def __init__(self, file: SegmentFile, n_rows: int, vocabulary: int) -> None:
        self._file, self._vocabulary = file, vocabulary
        terms = file.array("terms", "<i4", (None,))
        rows = file.array("rows", "<u4", (None,))
        self._impacts = read_impacts(file, terms, file.array("offsets", "<i8", (len(terms) + 1,)), rows, n_rows=n_rows)

    def impacts(self) -> Impacts:
        """The inverted index. Checks terms, offsets and scales; the kernels skip postings of rows that do not exist.
        Terms and offsets are copied: searches rely on the values that were checked."""
        index = replace(self._impacts, terms=self._impacts.terms.copy(), offsets=self._impacts.offsets.copy())
        with self._file.checking():
            check_offsets("offsets", index.offsets, len(index.rows))
            if len(index.terms) and (index.terms[0] < 0 or index.terms[-1] >= self._vocabulary):
                raise InputError(
                    f"its terms go from {index.terms[0]} to {index.terms[-1]}, but the vocabulary has "
                    f"{self._vocabulary}"
                )
            _check_ascending("terms", index.terms)
            _check_ascending("frequent_terms", index.frequent)
            if len(index.frequent) and index.frequent[-1] >= len(index.terms):
                raise InputError(f"window maxima belong to term {index.frequent[-1]} of {len(index.terms)}")
            check_scales(index, MAX_SCALE)
        return index

    def check_values(self) -> None:
        """Reads every posting, and compares the derived arrays with the postings."""
        index = self.impacts()
        with self._file.checking():
            check_posting_rows(index)
            largest = np.zeros(len(index), np.uint8)
            np.maximum.at(largest, index.rows, index.impacts)
            filled = largest > 0
            wrong_scale = np.any((index.scales > 0) != filled)
            if np.any(index.impacts == 0) or np.any(largest[filled] != MAX_IMPACT) or wrong_scale:
                raise InputError("impacts and scales do not match: the largest impact of every row must be 255")
            expected = with_window_maxima(
                index.terms, index.offsets, index.rows, index.impacts, index.scales, window_rows=index.window_rows
            )
            check_same_bounds(expected, index)


def read_impacts(
    file: SegmentFile,
    terms: NDArray[np.int32],
    offsets: NDArray[np.int64],
    rows: NDArray[np.uint32],
    *,
    n_rows: int,
) -> Impacts:
    """The arrays that sparse.plait and text_index.plait have in common."""
    window_rows = file.attributes.get("window_rows")
    if type(window_rows) is not int or not 1 <= window_rows <= MAX_WINDOW_ROWS:
        raise file.damaged(f"attribute 'window_rows' is {window_rows!r:.50}; it must be from 1 to {MAX_WINDOW_ROWS}")
    frequent = file.array("frequent_terms", "<u4", (None,))
    return Impacts(
        terms,
        offsets,
        rows,
        file.array("impacts", "|u1", (len(rows),)),
        file.array("row_scales", "<f4", (n_rows,)),
        file.array("max_weights", "<f4", (len(terms),)),
        frequent,
        file.array("window_maxima", "|u1", (len(frequent), n_windows(n_rows, window_rows))),
        window_rows,
    )


def impact_arrays(index: Impacts) -> list[ArraySource]:
    """The arrays that sparse.plait and text_index.plait have in common, but for terms, offsets and rows."""
    return [
        ArraySource.of("impacts", "|u1", index.impacts),
        ArraySource.of("row_scales", "<f4", index.scales),
        ArraySource.of("max_weights", "<f4", index.peaks),
        ArraySource.of("frequent_terms", "<u4", index.frequent),
        ArraySource.of("window_maxima", "|u1", index.maxima),
    ]


def write_sparse(path: Path, index: Impacts, *, number: int) -> FileRecord:
    """Writes the file of segment `number` for one batch of rows."""
    arrays = [
        ArraySource.of("terms", "<i4", index.terms),
        ArraySource.of("offsets", "<i8", index.offsets),
        ArraySource.of("rows", "<u4", index.rows),
        *impact_arrays(index),
    ]
    return write_file(path, "sparse", arrays, attributes={"segment": number, "window_rows": index.window_rows})


def check_posting_rows(index: Impacts) -> None:
    """Raises InputError unless the rows of every term ascend, exist, and are at least one."""
    if len(index.rows) and index.rows.max() >= len(index):
        raise InputError(f"a posting names row {index.rows.max()} of {len(index)}")
    if np.any(np.diff(index.offsets) == 0):
        raise InputError("a term has no row")
    descends = index.rows[1:] <= index.rows[:-1]
    descends[index.offsets[1:-1] - 1] = False  # from one term to the next
    if np.any(descends):
        raise InputError("the rows of a term do not ascend")


def check_scales(index: Impacts, most: float) -> None:
    """Raises InputError for scales or weights outside [0, most]."""
    for name, values in (("row_scales", index.scales), ("max_weights", index.peaks)):
        # Written so that NaN fails too.
        if not np.all((values >= 0) & (values <= most)):
            raise InputError(f"{name} out of range [0, {most:g}]")


def check_same_bounds(expected: Impacts, index: Impacts) -> None:
    """Raises InputError where the bounds of an index do not follow from its postings."""
    for name, attribute in (("max_weights", "peaks"), ("frequent_terms", "frequent"), ("window_maxima", "maxima")):
        if not np.array_equal(getattr(expected, attribute), getattr(index, attribute)):
            raise InputError(f"{name} do not match the postings")


def _check_ascending(name: str, values: NDArray[np.generic]) -> None:
    if np.any(values[1:] <= values[:-1]):  # type: ignore[operator]
        raise InputError(f"{name} do not ascend")


@dataclass(frozen=True, slots=True, eq=False)
class _Source:
    """The postings of one segment, and for each of its rows the row of the new segment, or -1 if it is deleted."""

    impacts: Impacts
    new_rows: NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class _PostingBlock:
    """The merged postings of neighbouring terms."""

    terms: NDArray[np.int32]
    offsets: NDArray[np.int64]  # within the block
    rows: NDArray[np.uint32]
    impacts: NDArray[np.uint8]


def write_merged_sparse(
    path: Path, parts: Sequence[LiveRows], *, number: int, window_rows: int = WINDOW_ROWS
) -> FileRecord:
    """Writes the sparse vectors of all parts as one file: impacts and scales are copied, bounds are computed again.
    Goes through the postings once for each array, so that none is in memory whole."""
    sources, scales = _sources(parts)
    windows = n_windows(len(scales), window_rows)
    block_terms, block_counts, block_peaks = [], [], []
    for block in _merged_blocks(sources):
        block_terms.append(block.terms)
        block_counts.append(np.diff(block.offsets))
        block_peaks.append(max_per_range(block.impacts * scales[block.rows], block.offsets))
    terms, counts = _joined(block_terms, np.int32), _joined(block_counts, np.int64)
    peaks = _joined(block_peaks, np.float32)
    frequent = frequent_terms(counts, len(scales), window_rows)
    n_postings = int(counts.sum())

    def maxima() -> Iterator[NDArray[np.uint8]]:
        first = 0
        for block in _merged_blocks(sources):
            in_block = slice(*np.searchsorted(frequent, [first, first + len(block.terms)]))
            block_frequent = frequent[in_block] - np.uint32(first)
            weights = block.impacts * scales[block.rows]
            block_max = peaks[first : first + len(block.terms)]
            yield window_maxima(block.offsets, block.rows, weights, block_max, block_frequent, windows, window_rows)
            first += len(block.terms)

    arrays = [
        ArraySource.of("terms", "<i4", terms),
        ArraySource.of("offsets", "<i8", np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])),
        ArraySource("rows", "<u4", (n_postings,), (block.rows for block in _merged_blocks(sources))),
        ArraySource("impacts", "|u1", (n_postings,), (block.impacts for block in _merged_blocks(sources))),
        ArraySource.of("row_scales", "<f4", scales),
        ArraySource.of("max_weights", "<f4", peaks),
        ArraySource.of("frequent_terms", "<u4", frequent),
        ArraySource("window_maxima", "|u1", (len(frequent), windows), maxima()),
    ]
    return write_file(path, "sparse", arrays, attributes={"segment": number, "window_rows": window_rows})


def _sources(parts: Sequence[LiveRows]) -> tuple[list[_Source], NDArray[np.float32]]:
    sources, scales, first = [], [], 0
    for part in parts:
        impacts = part.segment.sparse
        assert impacts is not None
        new_rows = np.full(len(impacts), -1, np.int64)
        new_rows[part.rows] = first + np.arange(len(part.rows))
        sources.append(_Source(impacts, new_rows))
        scales.append(impacts.scales[part.rows])
        first += len(part.rows)
    return sources, _joined(scales, np.float32)


def _merged_blocks(sources: Sequence[_Source]) -> Iterator[_PostingBlock]:
    """All terms that have a live row, about `BLOCK_POSTINGS` postings at a time; a term is never split."""
    terms = np.unique(_joined([source.impacts.terms for source in sources], np.int32))
    counts = np.zeros(len(terms), np.int64)
    for source in sources:
        counts[np.searchsorted(terms, source.impacts.terms)] += np.diff(source.impacts.offsets)
    ends, start = np.cumsum(counts), 0
    while start < len(terms):
        before = int(ends[start - 1]) if start else 0
        stop = max(int(np.searchsorted(ends, before + BLOCK_POSTINGS, side="right")), start + 1)
        yield _merged_block(sources, int(terms[start]), int(terms[stop - 1]))
        start = stop


def _merged_block(sources: Sequence[_Source], first_term: int, last_term: int) -> _PostingBlock:
    terms, rows, impacts = [], [], []
    for source in sources:
        index = source.impacts
        low, high = np.searchsorted(index.terms, [first_term, last_term + 1])
        postings = slice(index.offsets[low], index.offsets[high])
        new_rows = source.new_rows[index.rows[postings]]
        live = new_rows >= 0
        terms.append(np.repeat(index.terms[low:high], np.diff(index.offsets[low : high + 1]))[live])
        rows.append(new_rows[live].astype(np.uint32))
        impacts.append(index.impacts[postings][live])
    all_terms = _joined(terms, np.int32)
    order = np.argsort(all_terms, kind="stable")  # the parts are in the order of rows, which stays within a term
    block_terms, counts = run_lengths(all_terms[order])
    offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])
    return _PostingBlock(block_terms, offsets, _joined(rows, np.uint32)[order], _joined(impacts, np.uint8)[order])


def _joined(arrays: Sequence[NDArray[Any]], dtype: type[np.generic]) -> NDArray[Any]:
    return np.concatenate(arrays).astype(dtype, copy=False) if arrays else np.zeros(0, dtype)

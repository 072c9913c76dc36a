"""The sparse strands of several segments as one file, some terms at a time. Impacts and scales are copied, bounds are
made anew; what is deleted is left behind."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from plait.codec.impacts import WINDOW_ROWS, frequent_terms, max_per_range, n_windows, run_lengths, window_maxima
from plait.scoring.sparse import Impacts
from plait.storage.files.sparse import attributes_of
from plait.storage.merge import Part
from plait.storage.segment_file import FileRecord
from plait.storage.segment_file_writer import ArraySource, write_file

BLOCK_ENTRIES = 1 << 20  # postings that are held at a time


@dataclass(frozen=True, slots=True, eq=False)
class _Source:
    """The postings of one part, and the row of the new segment that each of its rows becomes, or -1."""

    impacts: Impacts
    renumbered: NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class _Block:
    """The merged postings of some neighbouring terms."""

    terms: NDArray[np.int32]
    offsets: NDArray[np.int64]  # within the block
    rows: NDArray[np.uint32]
    impacts: NDArray[np.uint8]


def write_merged(path: Path, parts: Sequence[Part], *, number: int, window_rows: int = WINDOW_ROWS) -> FileRecord:
    """Writes the sparse strand of all parts, one after another. The lists are gone through once for each array, so that
    none is ever held whole."""
    sources, scales = _sources(parts)
    windows = n_windows(len(scales), window_rows)
    terms, counts, peaks = [], [], []
    for block in _blocks(sources):
        terms.append(block.terms)
        counts.append(np.diff(block.offsets))
        peaks.append(max_per_range(block.impacts * scales[block.rows], block.offsets))
    all_terms, all_counts = _joined(terms, np.int32), _joined(counts, np.int64)
    all_peaks = _joined(peaks, np.float32)
    frequent = frequent_terms(all_counts, len(scales), window_rows)
    n_entries = int(all_counts.sum())

    def maxima() -> Iterator[NDArray[np.uint8]]:
        before = 0
        for block in _blocks(sources):
            own = frequent[slice(*np.searchsorted(frequent, [before, before + len(block.terms)]))] - np.uint32(before)
            tops = all_peaks[before : before + len(block.terms)]
            weights = block.impacts * scales[block.rows]
            yield window_maxima(block.offsets, block.rows, weights, tops, own, windows, window_rows)
            before += len(block.terms)

    arrays = [
        ArraySource.of("terms", "<i4", all_terms),
        ArraySource.of("offsets", "<i8", np.concatenate([np.zeros(1, np.int64), np.cumsum(all_counts)])),
        ArraySource("rows", "<u4", (n_entries,), (block.rows for block in _blocks(sources))),
        ArraySource("impacts", "|u1", (n_entries,), (block.impacts for block in _blocks(sources))),
        ArraySource.of("scales", "<f4", scales),
        ArraySource.of("peaks", "<f4", all_peaks),
        ArraySource.of("frequent", "<u4", frequent),
        ArraySource("maxima", "|u1", (len(frequent), windows), maxima()),
    ]
    return write_file(path, "sparse", arrays, attributes=attributes_of(number, window_rows))


def _sources(parts: Sequence[Part]) -> tuple[list[_Source], NDArray[np.float32]]:
    sources, scales, first = [], [], 0
    for part in parts:
        impacts = part.segment.sparse
        assert impacts is not None
        renumbered = np.full(len(impacts), -1, np.int64)
        renumbered[part.rows] = first + np.arange(len(part.rows))
        sources.append(_Source(impacts, renumbered))
        scales.append(impacts.scales[part.rows])
        first += len(part.rows)
    return sources, _joined(scales, np.float32)


def _blocks(sources: Sequence[_Source]) -> Iterator[_Block]:
    """All terms that have a live row, about `BLOCK_ENTRIES` postings at a time; a term is never cut in two."""
    terms = np.unique(_joined([source.impacts.terms for source in sources], np.int32))
    counts = np.zeros(len(terms), np.int64)
    for source in sources:
        counts[np.searchsorted(terms, source.impacts.terms)] += np.diff(source.impacts.offsets)
    ends, start = np.cumsum(counts), 0
    while start < len(terms):
        before = int(ends[start - 1]) if start else 0
        stop = max(int(np.searchsorted(ends, before + BLOCK_ENTRIES, side="right")), start + 1)
        yield _merged(sources, int(terms[start]), int(terms[stop - 1]))
        start = stop


def _merged(sources: Sequence[_Source], first: int, last: int) -> _Block:
    """The postings of the terms from first to last."""
    terms, rows, impacts = [], [], []
    for source in sources:
        held = source.impacts
        low, high = np.searchsorted(held.terms, [first, last + 1])
        own = slice(held.offsets[low], held.offsets[high])
        renumbered = source.renumbered[held.rows[own]]
        live = renumbered >= 0
        terms.append(np.repeat(held.terms[low:high], np.diff(held.offsets[low : high + 1]))[live])
        rows.append(renumbered[live].astype(np.uint32))
        impacts.append(held.impacts[own][live])
    all_terms = _joined(terms, np.int32)
    order = np.argsort(all_terms, kind="stable")  # parts are in the order of rows, which stays within a term
    there, counts = run_lengths(all_terms[order])
    offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])
    return _Block(there, offsets, _joined(rows, np.uint32)[order], _joined(impacts, np.uint8)[order])


def _joined(arrays: Sequence[NDArray[Any]], dtype: type[np.generic]) -> NDArray[Any]:
    return np.concatenate(arrays).astype(dtype, copy=False) if arrays else np.zeros(0, dtype)

"""Impacts: the weights of sparse vectors in 8 bits, and the inverted index over them.

An impact is a weight in 255ths of the largest weight of its row. The scale belongs to the row, not to the segment or
the term, so merging segments copies impacts and nothing is rounded twice.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from plait.embeddings import SparseVectors
from plait.scoring.sparse import Impacts

MAX_IMPACT = 255
MIN_WEIGHT, MAX_WEIGHT = 1e-30, 1e30  # smaller weights count as 0; larger weights are refused
WINDOW_ROWS = 4096


def quantize(sparse: SparseVectors) -> tuple[SparseVectors, NDArray[np.uint8], NDArray[np.float32]]:
    """The rows without terms of weight 0, the impact of each entry, and the scale of each row.

    Impacts are at least 1, so that a shared term always counts. The largest of a row is 255.
    """
    is_stored = sparse.weights >= MIN_WEIGHT
    before = np.concatenate([[0], np.cumsum(is_stored)])
    rows = SparseVectors(sparse.terms[is_stored], sparse.weights[is_stored], before[sparse.offsets])
    largest = max_per_range(rows.weights, rows.offsets)
    scales = (largest / np.float32(MAX_IMPACT)).astype(np.float32)
    entry_scales = np.repeat(scales.astype(np.float64), np.diff(rows.offsets))
    impacts = np.clip(np.rint(rows.weights / entry_scales), 1, MAX_IMPACT).astype(np.uint8)
    return rows, impacts, scales


def max_per_range(values: NDArray[np.float32], offsets: NDArray[np.int64]) -> NDArray[np.float32]:
    """The largest of values[offsets[i]:offsets[i + 1]] for each i; 0 for an empty range."""
    largest = np.zeros(len(offsets) - 1, np.float32)
    filled = np.flatnonzero(np.diff(offsets))
    if len(filled):
        largest[filled] = np.maximum.reduceat(values, offsets[filled])
    return largest


def invert(sparse: SparseVectors, *, window_rows: int = WINDOW_ROWS) -> Impacts:
    """The inverted index of sparse vectors."""
    rows, impacts, scales = quantize(sparse)
    owners = np.repeat(np.arange(len(rows), dtype=np.uint32), np.diff(rows.offsets))
    order = np.argsort(rows.terms, kind="stable")  # entries are in the order of rows, and stay so within a term
    terms, counts = run_lengths(rows.terms[order])
    offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])
    return with_window_maxima(terms, offsets, owners[order], impacts[order], scales, window_rows=window_rows)


def with_window_maxima(
    terms: NDArray[np.int32],
    offsets: NDArray[np.int64],
    rows: NDArray[np.uint32],
    impacts: NDArray[np.uint8],
    scales: NDArray[np.float32],
    *,
    window_rows: int,
) -> Impacts:
    """The index of these postings, with the peaks and window maxima computed from them."""
    weights = impacts * scales[rows]
    peaks = max_per_range(weights, offsets)
    frequent = frequent_terms(np.diff(offsets), len(scales), window_rows)
    maxima = window_maxima(offsets, rows, weights, peaks, frequent, n_windows(len(scales), window_rows), window_rows)
    return Impacts(terms, offsets, rows, impacts, scales, peaks, frequent, maxima, window_rows)


def n_windows(n_rows: int, window_rows: int) -> int:
    return -(-n_rows // window_rows)


def frequent_terms(counts: NDArray[np.int64], n_rows: int, window_rows: int) -> NDArray[np.uint32]:
    """The positions of the terms that get window maxima: those whose maxima take no more bytes than their impacts."""
    return np.flatnonzero(counts >= max(n_windows(n_rows, window_rows), 1)).astype(np.uint32)


def window_maxima(
    offsets: NDArray[np.int64],
    rows: NDArray[np.uint32],
    weights: NDArray[np.float32],
    peaks: NDArray[np.float32],
    frequent: NDArray[np.uint32],
    n_windows: int,
    window_rows: int,
) -> NDArray[np.uint8]:
    """(frequent, windows): the largest weight in each window in 255ths of the peak, rounded up."""
    maxima = np.zeros((len(frequent), n_windows), np.uint8)
    for line, term in enumerate(frequent):
        entries = slice(offsets[term], offsets[term + 1])
        windows, counts = run_lengths(rows[entries] // window_rows)
        largest = np.maximum.reduceat(weights[entries], np.cumsum(counts) - counts)
        step = float(peaks[term] / np.float32(MAX_IMPACT))
        maxima[line, windows] = np.clip(np.ceil(largest / step), 1, MAX_IMPACT)
    return maxima


def run_lengths(values: NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """The value and the length of each run of equal neighbours."""
    starts = np.flatnonzero(np.concatenate([np.ones(len(values[:1]), bool), values[1:] != values[:-1]]))
    return values[starts], np.diff(np.append(starts, len(values)))

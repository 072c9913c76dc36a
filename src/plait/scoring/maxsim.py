"""Exact late interaction: MaxSim of many documents, the alignment of one document, and the k largest scores.

Document arrays are never converted or copied, so a mapped file is scored in place.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
from numpy.typing import NDArray

from plait import _core
from plait.checks import check_array, check_count, check_type
from plait.embeddings import MultiVectors, Rows
from plait.errors import ConfigError, InputError


def maxsim(
    query: Rows,
    documents: MultiVectors,
    *,
    items: NDArray[np.int64] | None = None,
    n_threads: int = 1,
) -> NDArray[np.float32]:
    """The MaxSim of each document, or of the documents `items` in that order: (documents,) or (items,).

    The sum over the rows of `query` (n_query, dim) of the best dot product with a row of the document; 0 for a document
    without rows. Scores are the same bits for any `n_threads`, and whether a document is scored alone or with others.
    A NaN dot product never wins.
    """
    check_type("documents", documents, MultiVectors, "plait.MultiVectors", InputError)
    query = _checked_query(query, documents.values)
    check_count("n_threads", n_threads)
    if items is not None:
        items = _checked_items(items)
    offsets = np.ascontiguousarray(documents.offsets)
    n_scored = len(documents) if items is None else len(items)
    scores = np.empty(n_scored, np.float32)

    def score(begin: int, end: int) -> None:
        if items is None:
            _core.maxsim(query, documents.values, offsets[begin : end + 1], scores[begin:end])
        else:
            _core.maxsim_items(query, documents.values, offsets, items[begin:end], scores[begin:end])

    try:
        if n_threads == 1 or n_scored < 2:
            score(0, n_scored)
        else:
            bounds = _even_slices(offsets, items, n_threads)
            with ThreadPoolExecutor(n_threads) as pool:
                list(pool.map(score, bounds[:-1], bounds[1:]))
    except ValueError as error:
        raise InputError(f"{error}; offsets must ascend within the rows, and items must be document numbers") from error
    return scores


def align(query: Rows, rows: Rows) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """For each row of `query`, the row of one document with the best dot product (the first of equal ones), and that
    product: both (n_query,). For a document without rows, -1 and 0."""
    query = _checked_query(query, rows)
    best_rows = np.empty(len(query), np.int64)
    scores = np.empty(len(query), np.float32)
    _core.align(query, rows, best_rows, scores)
    return best_rows, scores


def top_k(scores: NDArray[np.float32], k: int) -> NDArray[np.int64]:
    """The positions of the k largest scores (all, if there are fewer), largest first; equal scores by position."""
    if scores.ndim != 1 or scores.dtype != np.float32:
        raise InputError(
            f"scores have shape {scores.shape} and type {scores.dtype}; they must be one-dimensional float32"
        )
    if k < 0:
        raise ConfigError(f"k is {k}; it must be 0 or more")
    if np.isnan(scores).any():
        raise InputError(f"score {int(np.argmax(np.isnan(scores)))} is NaN; NaN cannot be ordered")
    best = np.empty(min(k, len(scores)), np.int64)
    _core.top_k(np.require(scores, requirements=["C", "A"]), best)
    return best


def _checked_query(query: Rows, rows: Rows) -> NDArray[np.float32]:
    """The query as contiguous rows; raises InputError if it cannot be scored against `rows`."""
    check_array("the query", query, "float32 of (n_query, dim)")
    if query.ndim != 2 or query.dtype != np.float32:
        raise InputError(
            f"the query has shape {query.shape} and type {query.dtype}; it must be float32 of (n_query, dim)"
        )
    if 0 in query.shape:
        raise InputError(f"the query has shape {query.shape}; it needs at least one row and one dimension")
    if not np.isfinite(query).all():
        raise InputError("the query holds NaN or infinity; its scores would be meaningless")
    if rows.ndim != 2 or rows.dtype not in (np.float32, np.float16):
        raise InputError(
            f"the rows have shape {rows.shape} and type {rows.dtype}; they must be float32 or float16 of (rows, dim)"
        )
    if query.shape[1] != rows.shape[1]:
        raise InputError(
            f"the query has {query.shape[1]} dimensions and the documents have {rows.shape[1]}; encode both with the "
            "same model"
        )
    if not rows.flags.c_contiguous:
        raise InputError("the rows are not contiguous; pass numpy.ascontiguousarray(rows), which copies them")
    return np.ascontiguousarray(query)


def _checked_items(items: NDArray[np.int64]) -> NDArray[np.int64]:
    check_array("items", items, "int64")
    if items.ndim != 1 or items.dtype != np.int64:
        raise InputError(f"items have shape {items.shape} and type {items.dtype}; they must be one-dimensional int64")
    return np.ascontiguousarray(items)


def _even_slices(offsets: NDArray[np.int64], items: NDArray[np.int64] | None, n_slices: int) -> list[int]:
    """Bounds of `n_slices` runs of items with about the same number of rows each; a run may be empty."""
    if items is None:
        rows_before = offsets - offsets[0]
    else:
        if len(items) and not (items.min() >= 0 and items.max() < len(offsets) - 1):
            raise ValueError(f"items go from {items.min()} to {items.max()}, of {len(offsets) - 1}")
        rows_before = np.concatenate(([0], np.cumsum(offsets[items + 1] - offsets[items])))
    shares = rows_before[-1] * np.arange(1, n_slices) / n_slices
    inner = np.minimum(np.searchsorted(rows_before, shares), len(rows_before) - 1)
    return [0, *(int(bound) for bound in inner), len(rows_before) - 1]

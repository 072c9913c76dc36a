"""Weights of tokens to weighted terms: the sparse strand. Computed on pairs of (term, weight), so that the size of the
vocabulary never matters."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from plait.embeddings import SparseVectors
from plait.errors import ModelError

TERMS_OUTPUT = "terms"  # a graph's output of (texts, length): the term that each token counts as
TermWeights = tuple[NDArray[np.int32], NDArray[np.float32]]  # ids, ascending, and the weights beside them


def max_pool_terms(
    ids: Sequence[NDArray[np.int64]], weights: NDArray[np.float32], *, query_tf: float = 0.0
) -> SparseVectors:
    """The terms of each text: ids (tokens,) of each, and weights (texts, at least the longest). A term that occurs more
    than once has the largest of its weights, and of the sum of the others the share `repeats`; a weight of 0 is no
    term."""
    longest = max((len(item) for item in ids), default=0)
    if weights.ndim != 2 or weights.shape[0] != len(ids) or weights.shape[1] < longest:
        raise ModelError(f"the graph gives token weights of {weights.shape} for {len(ids)} texts of up to {longest}")
    lengths = np.array([len(item) for item in ids], np.int64)
    texts = np.repeat(np.arange(len(ids)), lengths)
    terms = np.concatenate([*ids, np.zeros(0, np.int64)])
    values = weights[np.arange(weights.shape[1]) < lengths[:, None]]
    kept = values > 0
    texts, terms, values = texts[kept], terms[kept], values[kept]
    # The largest weight of a term comes first, and the first of each (text, term) is kept.
    order = np.lexsort((-values, terms, texts))
    texts, terms, values = texts[order], terms[order], values[order]
    first = np.ones(len(texts), np.bool_)
    first[1:] = (texts[1:] != texts[:-1]) | (terms[1:] != terms[:-1])
    largest = values[first].astype(np.float32)
    if query_tf and len(values):
        sums = np.add.reduceat(values.astype(np.float64), np.flatnonzero(first))
        largest = ((1 - query_tf) * largest + query_tf * sums).astype(np.float32)
    counts = np.bincount(texts[first], minlength=len(ids))
    offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    return SparseVectors(terms[first].astype(np.int32), largest, offsets)


def sparse_vectors(
    ids: Sequence[NDArray[np.int64]],
    weights: NDArray[np.float32],
    *,
    is_query: bool,
    query_tf: float = 0.0,
    length_norm: float = 0.0,
) -> SparseVectors:
    """The sparse strand of texts as a model's card reads it: `query_tf` is for queries, `length_norm` for passages."""
    if is_query:
        return max_pool_terms(ids, weights, query_tf=query_tf)
    return divide_by_length(max_pool_terms(ids, weights), length_norm)


def divide_by_length(rows: SparseVectors, power: float) -> SparseVectors:
    """The same terms, the weights of each text divided by this power of their sum; a text without terms stays so."""
    if not power:
        return rows
    counts = np.diff(rows.offsets)
    sums = np.bincount(np.repeat(np.arange(len(counts)), counts), rows.weights, len(counts))
    weights = rows.weights * np.repeat(np.maximum(sums, np.finfo(np.float32).tiny) ** -power, counts)
    return SparseVectors(rows.terms, weights.astype(np.float32), rows.offsets)


def concatenate_terms(items: Sequence[TermWeights]) -> SparseVectors:
    """One batch of the terms of texts."""
    offsets = np.zeros(len(items) + 1, np.int64)
    np.cumsum([len(terms) for terms, _ in items], out=offsets[1:])
    return SparseVectors(
        np.concatenate([np.zeros(0, np.int32), *(terms for terms, _ in items)]),
        np.concatenate([np.zeros(0, np.float32), *(weights for _, weights in items)]),
        offsets,
    )

"""Token weights to sparse vectors. Works on (term, weight) pairs, so the size of the vocabulary does not matter."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from plait.embeddings import SparseVectors
from plait.errors import ModelError

TERMS_OUTPUT = "terms"  # an output of the graph, (texts, length): the term id of each token
QUERY_OUTPUT = "sparse_query"  # an output of the graph, (texts, length): the weight of each token of a query
TermWeights = tuple[NDArray[np.int32], NDArray[np.float32]]  # term ids, ascending, and their weights


def sparse_vectors(
    ids: Sequence[NDArray[np.int64]],
    weights: NDArray[np.float32],
    *,
    is_query: bool,
    query_tf: float = 0.0,
    length_norm: float = 0.0,
) -> SparseVectors:
    """The sparse vectors of texts by the settings of `SparseSpec`: `query_tf` is for queries, `length_norm` for
    passages."""
    if is_query:
        return max_pool_terms(ids, weights, query_tf=query_tf)
    return divide_by_length(max_pool_terms(ids, weights), length_norm)


def max_pool_terms(
    ids: Sequence[NDArray[np.int64]], weights: NDArray[np.float32], *, query_tf: float = 0.0
) -> SparseVectors:
    """The terms of each text, from ids (tokens,) and weights (texts, at least the longest text).

    The weight of a repeated term is (1 - query_tf) * largest + query_tf * sum. Tokens of weight 0 are dropped.
    """
    longest = max((len(item) for item in ids), default=0)
    if weights.ndim != 2 or weights.shape[0] != len(ids) or weights.shape[1] < longest:
        raise ModelError(
            f"the graph gives token weights of shape {weights.shape} for {len(ids)} texts of up to {longest} tokens"
        )
    lengths = np.array([len(item) for item in ids], np.int64)
    texts = np.repeat(np.arange(len(ids)), lengths)
    terms = np.concatenate([*ids, np.zeros(0, np.int64)])
    values = weights[np.arange(weights.shape[1]) < lengths[:, None]]
    positive = values > 0
    texts, terms, values = texts[positive], terms[positive], values[positive]
    # Sorted so that the largest weight of each (text, term) comes first.
    order = np.lexsort((-values, terms, texts))
    texts, terms, values = texts[order], terms[order], values[order]
    first = np.ones(len(texts), np.bool_)
    first[1:] = (texts[1:] != texts[:-1]) | (terms[1:] != terms[:-1])
    pooled = values[first].astype(np.float32)
    if query_tf and len(values):
        sums = np.add.reduceat(values.astype(np.float64), np.flatnonzero(first))
        pooled = ((1 - query_tf) * pooled + query_tf * sums).astype(np.float32)
    counts = np.bincount(texts[first], minlength=len(ids))
    offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    return SparseVectors(terms[first].astype(np.int32), pooled, offsets)


def vocabulary_vectors(weights: NDArray[np.float32], *, length_norm: float = 0.0) -> SparseVectors:
    """The sparse vectors of texts from weights over the vocabulary (texts, terms), as SPLADE gives them."""
    texts, terms = np.nonzero(weights > 0)
    offsets = np.concatenate([[0], np.cumsum(np.bincount(texts, minlength=len(weights)))]).astype(np.int64)
    vectors = SparseVectors(terms.astype(np.int32), weights[texts, terms].astype(np.float32), offsets)
    return divide_by_length(vectors, length_norm)


def divide_by_length(vectors: SparseVectors, power: float) -> SparseVectors:
    """The weights of each vector divided by this power of their sum. An empty vector stays empty."""
    if not power:
        return vectors
    counts = np.diff(vectors.offsets)
    sums = np.bincount(np.repeat(np.arange(len(counts)), counts), vectors.weights, len(counts))
    weights = vectors.weights * np.repeat(np.maximum(sums, np.finfo(np.float32).tiny) ** -power, counts)
    return SparseVectors(vectors.terms, weights.astype(np.float32), vectors.offsets)


def concatenate_terms(items: Sequence[TermWeights]) -> SparseVectors:
    """One batch from the terms of single texts."""
    offsets = np.zeros(len(items) + 1, np.int64)
    np.cumsum([len(terms) for terms, _ in items], out=offsets[1:])
    return SparseVectors(
        np.concatenate([np.zeros(0, np.int32), *(terms for terms, _ in items)]),
        np.concatenate([np.zeros(0, np.float32), *(weights for _, weights in items)]),
        offsets,
    )

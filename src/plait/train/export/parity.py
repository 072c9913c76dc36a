"""Two encoders side by side on the same texts: how far their strands are apart, and how far they may be."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from plait.embeddings import Embeddings, MultiVectors, SparseVectors
from plait.encode.protocol import Encoder
from plait.errors import ModelError

# Rows have length one. The two add in different orders, and twelve layers make of that some 1e-6.
TOLERANCE = 1e-4
# The least mean cosine of int8 to fp32. Rounding costs a model some 0.01; below this something else is wrong.
LEAST_COSINE = 0.9


@dataclass(frozen=True, slots=True)
class Difference:
    """How far a strand of one encoder is from that of another."""

    largest: float  # difference of any two numbers; of the sparse strand, as a part of the largest weight above 1
    cosine: float  # mean over vectors, or over texts for the sparse strand


@dataclass(frozen=True, slots=True)
class Parity:
    """All strands, over queries and documents."""

    embeddings: dict[str, Difference]
    n_texts: int


def compare(one: Encoder, other: Encoder, queries: Sequence[str], documents: Sequence[str]) -> Parity:
    """The strands of both, number by number; ModelError if they have different strands or numbers of rows."""
    pairs = [
        (one.encode_queries(queries), other.encode_queries(queries)),
        (one.encode_documents(documents), other.encode_documents(documents)),
    ]
    found: dict[str, Difference] = {}
    for name in pairs[0][0].present():
        parts = [_pairs(first, second, name) for first, second in pairs]
        gaps = [np.abs(left - right).max(initial=0) for part in parts for left, right in part]
        cosines = np.concatenate([_cosines(left, right) for part in parts for left, right in part] or [np.ones(1)])
        scale = max([1.0, *(np.abs(left).max(initial=0) for part in parts for left, _ in part)])
        found[name] = Difference(float(max(gaps, default=0)) / float(scale), float(cosines.mean()))
    return Parity(found, len(queries) + len(documents))


def check_same(parity: Parity) -> None:
    """Refuses a graph that computes something else than torch does."""
    for name, seen in parity.embeddings.items():
        if not seen.largest <= TOLERANCE:
            raise ModelError(
                f"the {name} strand of the graph is {seen.largest:.2g} away from torch's, and {TOLERANCE:.0e} is "
                f"allowed; the model was not written. Please report which backbone it has"
            )


def check_rounded(parity: Parity) -> None:
    """Refuses an int8 graph that rounding has made another model."""
    for name, seen in parity.embeddings.items():
        if not seen.cosine >= LEAST_COSINE:
            raise ModelError(
                f"rounded to int8, the {name} strand has a mean cosine of {seen.cosine:.3f} with what it was, and "
                f"{LEAST_COSINE} is the least; the model was not written. Export it with --precision fp32"
            )


Pair = tuple[NDArray[np.float32], NDArray[np.float32]]


def _pairs(one: Embeddings, other: Embeddings, name: str) -> list[Pair]:
    first, second = one.present()[name], other.present().get(name)
    if isinstance(first, SparseVectors) and isinstance(second, SparseVectors):
        return [_spread(first, second, item) for item in range(len(first))]
    if isinstance(first, MultiVectors) and isinstance(second, MultiVectors):
        if not np.array_equal(first.offsets, second.offsets):
            raise ModelError(f"the two keep different rows of the {name} strand: {first.offsets}, {second.offsets}")
        return [(first.values.astype(np.float32), second.values.astype(np.float32))]
    if isinstance(first, np.ndarray) and isinstance(second, np.ndarray):
        return [(first, second)]
    raise ModelError(f"only one of the two has a {name} strand")


def _spread(one: SparseVectors, other: SparseVectors, item: int) -> Pair:
    """The terms of one text, those of both, as rows: 0 where one of them lacks a term."""
    found = []
    terms = np.union1d(*(rows.terms[rows.offsets[item] : rows.offsets[item + 1]] for rows in (one, other)))
    for rows in (one, other):
        own = slice(rows.offsets[item], rows.offsets[item + 1])
        spread = np.zeros((1, len(terms)), np.float32)
        spread[0, np.searchsorted(terms, rows.terms[own])] = rows.weights[own]
        found.append(spread)
    return found[0], found[1]


def _cosines(one: NDArray[np.float32], other: NDArray[np.float32]) -> NDArray[np.float64]:
    """Of each row with its twin; two rows of zeros are alike."""
    lengths = np.linalg.norm(one, axis=1) * np.linalg.norm(other, axis=1)
    same = (np.abs(one).max(axis=1, initial=0) == 0) & (np.abs(other).max(axis=1, initial=0) == 0)
    products = (one * other).sum(axis=1) / np.maximum(lengths, 1e-12)
    return np.where(same, 1.0, products).astype(np.float64)

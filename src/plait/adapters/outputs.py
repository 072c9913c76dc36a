"""What other libraries return, as plait's arrays: tensors of any device and precision, arrays, nested lists, sparse
matrices, mappings. Wrong counts, ragged rows and values that are not finite become a ModelError.

No library is imported: a tensor is known by its methods.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from plait.checks import shown
from plait.codec.impacts import MAX_WEIGHT
from plait.embeddings import MultiVectors, SparseVectors
from plait.errors import ModelError

Floats = NDArray[np.float32]


def dense_vectors(value: object, n_texts: int, model: str) -> Floats:
    """One vector for each text: (texts, dim)."""
    array = _array(value, model)
    if array.ndim != 2 or len(array) != n_texts or array.shape[1] == 0:
        raise ModelError(
            f"{model} gave an array of shape {array.shape} for {n_texts} texts; dense vectors have shape "
            f"({n_texts}, dimensions)"
        )
    return _finite(array, model)


def multi_vectors(value: object, n_texts: int, model: str) -> MultiVectors:
    """Any number of vectors for each text, from a list of (rows, dim) arrays or an array of (texts, rows, dim)."""
    items = _items(value, n_texts, model)
    rows = [_array(item, model) for item in items]
    dims = {item.shape[1] for item in rows if item.ndim == 2 and item.shape[1]}
    if len(dims) != 1 or any(item.ndim != 2 and item.size for item in rows):
        shapes = shown([item.shape for item in rows], 200)
        raise ModelError(f"{model} gave arrays of the shapes {shapes}; multi vectors are (rows, dimensions) for a text")
    dim = dims.pop()
    return MultiVectors.from_items([_finite(item.reshape(-1, dim), model) for item in rows])


def sparse_vectors(value: Any, n_texts: int, model: str) -> tuple[SparseVectors, int | None]:
    """The weighted terms of each text, and the size of the vocabulary if the value says it.

    The value is a sparse or dense (texts, vocabulary) matrix of torch, scipy or numpy, or one mapping of term ids, as
    numbers or text, to weights for each text.
    """
    if hasattr(value, "tocoo"):
        matrix = value.tocoo()
        return _from_entries(matrix.row, matrix.col, matrix.data, matrix.shape, n_texts, model)
    if hasattr(value, "coalesce") and _is_sparse_tensor(value):
        tensor = value.detach().cpu().coalesce()
        rows, terms = tensor.indices().numpy()
        return _from_entries(rows, terms, tensor.values().float().numpy(), tuple(tensor.shape), n_texts, model)
    if isinstance(value, Sequence) and all(isinstance(item, Mapping) for item in value):
        return _from_mappings(_items(value, n_texts, model), model), None
    array = dense_vectors(value, n_texts, model)
    rows, terms = np.nonzero(array)
    return _from_entries(rows, terms, array[rows, terms], array.shape, n_texts, model)


def pair_scores(value: object, n_pairs: int, model: str) -> Floats:
    """One score for each pair: (pairs,). A last axis of one label is dropped."""
    array = _array(value, model)
    if array.shape == (n_pairs, 1):
        array = array[:, 0]
    if array.ndim == 0 and n_pairs == 1:
        array = array[None]
    if array.shape != (n_pairs,):
        raise ModelError(
            f"{model} gave scores of shape {array.shape} for {n_pairs} pairs; a cross-encoder for ranking gives one "
            f"score for each pair"
        )
    return _finite(array, model)


def unit_dense(vectors: Floats) -> Floats:
    """Rows of length 1; a row of zeros stays as it is."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.asarray(vectors / np.where(lengths > 0, lengths, 1), np.float32)


def unit_sparse(vectors: SparseVectors) -> SparseVectors:
    """Items of length 1; an item without terms stays as it is."""
    counts = np.diff(vectors.offsets)
    items = np.repeat(np.arange(len(counts)), counts)
    squares = np.bincount(items, vectors.weights.astype(np.float64) ** 2, len(counts))
    lengths = np.sqrt(squares)[items]
    weights = np.divide(vectors.weights, lengths, out=np.zeros(len(lengths)), where=lengths > 0)
    return SparseVectors(vectors.terms, weights.astype(np.float32), vectors.offsets)


def unit_multi(vectors: MultiVectors) -> MultiVectors:
    """Rows of length 1."""
    return MultiVectors(unit_dense(np.asarray(vectors.values, np.float32)), vectors.offsets)


def plain_numbers(value: object) -> Any:
    """A tensor as a numpy array: off its device, out of autograd, bfloat16 as float32. Other values as they are."""
    if hasattr(value, "detach"):
        tensor = value.detach()
        if _is_sparse_tensor(tensor):
            tensor = tensor.to_dense()
        if getattr(tensor, "is_floating_point", lambda: True)():
            tensor = tensor.float()
        return tensor.cpu().numpy()
    return value


def _array(value: object, model: str) -> Floats:
    """Numbers of any container as a float32 array."""
    value = plain_numbers(value)
    if isinstance(value, list | tuple):
        value = [plain_numbers(item) for item in value]
    try:
        array = np.asarray(value)
    except ValueError:  # numpy's word for rows of different lengths
        array = np.asarray(None)
    if array.dtype.kind not in "fiu":
        raise ModelError(
            f"{model} gave {type(value).__name__} {shown(value)}, which is no array of numbers with rows of one "
            f"length; return a numpy array, a tensor or nested lists"
        )
    with np.errstate(over="ignore"):  # a value too large for float32 becomes infinite, which is refused
        return np.ascontiguousarray(array, np.float32)


def _finite(array: Floats, model: str) -> Floats:
    wrong = np.argwhere(~np.isfinite(array))
    if len(wrong):
        at = tuple(int(axis) for axis in wrong[0])
        raise ModelError(
            f"{model} gave {len(wrong)} values that are NaN or infinite, the first ({array[at]}) at {at}; a model in "
            f"half precision may overflow: try single precision"
        )
    return array


def _items(value: object, n_texts: int, model: str) -> list[Any]:
    try:
        items: list[Any] = list(plain_numbers(value))
    except TypeError:
        raise ModelError(f"{model} gave {shown(value)} instead of one item for each of {n_texts} texts") from None
    if len(items) != n_texts:
        raise ModelError(f"{model} gave {len(items)} items for {n_texts} texts; it must give one for each text")
    return items


def _from_mappings(items: Sequence[Mapping[Any, Any]], model: str) -> SparseVectors:
    rows = np.repeat(np.arange(len(items)), [len(item) for item in items])
    try:
        terms = np.array([int(term) for item in items for term in item], np.int64)
        weights = np.array([float(weight) for item in items for weight in item.values()], np.float32)
    except (TypeError, ValueError) as error:
        raise ModelError(
            f"{model} gave sparse vectors that are no mappings of term ids to weights ({error}): {shown(items, 200)}"
        ) from None
    return _from_entries(rows, terms, weights, (len(items), None), len(items), model)[0]


def _from_entries(
    rows: NDArray[Any], terms: NDArray[Any], weights: NDArray[Any], shape: Sequence[Any], n_texts: int, model: str
) -> tuple[SparseVectors, int | None]:
    """Sparse vectors from (row, term, weight) entries in any order, without repeats. Weights of 0 are dropped."""
    if len(shape) != 2 or shape[0] != n_texts:
        raise ModelError(f"{model} gave a sparse matrix of shape {tuple(shape)} for {n_texts} texts")
    weights = _finite(np.asarray(weights, np.float32), model)
    if len(weights) and not (weights.min() >= 0 and weights.max() <= MAX_WEIGHT):
        raise ModelError(
            f"{model} gave sparse weights from {weights.min()} to {weights.max()}; plait stores weights from 0 to "
            f"{MAX_WEIGHT:g}: a sparse model ends in a ReLU"
        )
    if len(terms) and not 0 <= int(terms.min()) <= int(terms.max()) < 1 << 31:
        raise ModelError(f"{model} gave term ids from {terms.min()} to {terms.max()}; they must be from 0 to 2**31 - 1")
    kept_entries = weights > 0
    rows, terms, weights = rows[kept_entries], terms[kept_entries], weights[kept_entries]
    order = np.lexsort((terms, rows))
    rows, terms, weights = rows[order], terms[order], weights[order]
    if np.any((rows[1:] == rows[:-1]) & (terms[1:] == terms[:-1])):
        raise ModelError(f"{model} gave a term twice for one text; add or take the larger of its weights")
    offsets = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=n_texts))]).astype(np.int64)
    return SparseVectors(terms.astype(np.int32), weights, offsets), shape[1]


def _is_sparse_tensor(value: object) -> bool:
    return "sparse" in str(getattr(value, "layout", ""))

"""Compares a converted model with the golden outputs of the library that its checkpoint comes from.

`golden_of` reads what `make_checkpoints` wrote; `compare` gives one `Parity` for each kind of embedding. The table of
all checkpoints:

    PYTHONPATH=tests python -m convert.parity
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from plait.convert.checkpoint import Overrides
from plait.convert.convert import convert
from plait.embeddings import Embeddings, MultiVectors, SparseVectors
from plait.encode.load import load_model
from plait.rerank.cross_encoder import load_cross

CHECKPOINTS = Path(__file__).parent / "checkpoints"
NAMES = sorted(path.stem for path in CHECKPOINTS.glob("*.npz"))
K = 10
PAIR_DOCUMENTS = 5  # pairs are made of every query and every fifth document, as in make_checkpoints/golden.py
# Scores of the origin that are nearer than this share of the largest are equal: their order is rounding.
TIE = 1e-5
MIN_WEIGHT = 1e-5  # smaller weights of sparse terms are rounding, on one side of zero or the other

# Differences of weights are relative to the weight, or to this one if it is smaller: a weight near zero is a difference
# of large numbers, and its last digits are rounding.
WEIGHT_FLOOR = 0.1

Floats = NDArray[np.float32]
Terms = Mapping[int, float]


@dataclass(frozen=True, slots=True)
class Golden:
    """The outputs of the origin, and what it says about them."""

    name: str
    about: Mapping[str, Any]
    arrays: Mapping[str, NDArray[Any]]

    @property
    def folder(self) -> Path:
        return CHECKPOINTS / self.name

    @property
    def kinds(self) -> list[str]:
        present = {key.split(".")[-1] if key.endswith("dense") else key.split(".")[-2] for key in self.arrays}
        return [kind for kind in ("dense", "sparse", "multi", "pairs") if kind in present]


@dataclass(frozen=True, slots=True)
class Parity:
    """How near the converted model is to its origin, in one kind of embedding."""

    kind: str
    n: int  # vectors, texts with sparse terms, or pairs
    cosine: float  # the smallest; of pairs, between all scores of a query
    difference: float  # the largest, relative to the length of the vector; of weights and scores, to each of them
    same_counts: bool  # as many vectors for every text; the same terms
    same_top: int  # queries with the same best documents
    n_queries: int


@dataclass(frozen=True, slots=True)
class Outputs:
    """The outputs of the converted model on the texts of the golden files."""

    layout: str
    queries: Embeddings | None
    documents: Embeddings | None
    scores: Floats | None


def texts() -> tuple[list[str], list[str]]:
    """The queries and the documents."""
    both = json.loads((CHECKPOINTS / "texts.json").read_text(encoding="utf-8"))
    return both["queries"], both["documents"]


def golden_of(name: str) -> Golden:
    about = json.loads((CHECKPOINTS / f"{name}.json").read_text(encoding="utf-8"))
    with np.load(CHECKPOINTS / f"{name}.npz") as arrays:
        return Golden(name, about, dict(arrays))


def outputs_of(golden: Golden, to: Path, *, folder: Path | None = None) -> Outputs:
    """Converts a checkpoint, or another folder instead of it, and runs the model that it becomes."""
    overrides = Overrides(**golden.about.get("overrides", {}))
    converted = convert(folder or golden.folder, to, precision="fp32", overrides=overrides, n_threads=1)
    queries, documents = texts()
    if "pairs" in golden.kinds:
        pairs = [(query, document) for query in queries for document in documents[::PAIR_DOCUMENTS]]
        return Outputs(converted.layout, None, None, load_cross(to, precision="fp32", n_threads=1).score(pairs))
    encoder = load_model(to, precision="fp32", n_threads=1)
    return Outputs(converted.layout, encoder.encode_queries(queries), encoder.encode_documents(documents), None)


def compare(golden: Golden, outputs: Outputs) -> list[Parity]:
    """One comparison for each kind of embedding that the origin gives."""
    by_kind = {"dense": _compare_dense, "sparse": _compare_sparse, "multi": _compare_multi, "pairs": _compare_pairs}
    return [by_kind[kind](golden, outputs) for kind in golden.kinds]


def _compare_dense(golden: Golden, outputs: Outputs) -> Parity:
    sides = []
    for side, embeddings in _sides(outputs):
        assert embeddings.dense is not None, f"{golden.name} has no dense vectors"
        pair = golden.arrays[f"{side}.dense"].astype(np.float64), embeddings.dense.astype(np.float64)
        # Where only directions are compared, a model may leave its vectors at any length.
        sides.append(tuple(map(_unit, pair)) if golden.about["similarity"] == "cosine" else pair)
    expected, given = (np.concatenate([side[number] for side in sides]) for number in (0, 1))
    assert expected.shape == given.shape, f"{golden.name}: {given.shape}, the origin has {expected.shape}"
    scores = [side_queries @ side_documents.T for side_queries, side_documents in zip(*sides, strict=True)]
    return _parity("dense", expected, given, True, scores[0], scores[1])


def _compare_multi(golden: Golden, outputs: Outputs) -> Parity:
    expected, given, is_same = [], [], True
    vectors: list[MultiVectors] = []
    for side, embeddings in _sides(outputs):
        assert embeddings.multi is not None, f"{golden.name} has no multi vectors"
        vectors.append(embeddings.multi)
        offsets, values = golden.arrays[f"{side}.multi.offsets"], golden.arrays[f"{side}.multi.values"]
        for number, item in enumerate(golden.arrays[f"{side}.multi.items"]):
            rows, own_rows = values[offsets[number] : offsets[number + 1]], embeddings.multi[int(item)]
            is_same &= rows.shape == own_rows.shape
            n_rows = min(len(rows), len(own_rows))
            expected.append(rows[:n_rows])
            given.append(own_rows[:n_rows])
    scores = np.array([[_maxsim(q, d) for d in _items(vectors[1])] for q in _items(vectors[0])])
    both = np.concatenate(expected).astype(np.float64), np.concatenate(given).astype(np.float64)
    return _parity("multi", *both, is_same, golden.arrays["multi.scores"], scores)


def _compare_sparse(golden: Golden, outputs: Outputs) -> Parity:
    sides: list[tuple[list[Terms], list[Terms]]] = []
    for side, embeddings in _sides(outputs):
        assert embeddings.sparse is not None, f"{golden.name} has no sparse vectors"
        names = ("terms", "weights", "offsets")
        stored = SparseVectors(*(golden.arrays[f"{side}.sparse.{name}"] for name in names))
        sides.append((_terms(stored), _terms(embeddings.sparse)))
    expected, given = ([item for side in sides for item in side[number]] for number in (0, 1))
    is_same = all(set(one) == set(other) for one, other in zip(expected, given, strict=True))
    size = 1 + max((term for item in expected + given for term in item), default=0)
    scores = [_matrix(sides[0][number], size) @ _matrix(sides[1][number], size).T for number in (0, 1)]
    both = _matrix(expected, size), _matrix(given, size)
    parity = _parity("sparse", *both, is_same, scores[0], scores[1])
    # Of each weight, not of whole vectors: a large weight must not hide a wrong small one.
    difference = float((np.abs(both[1] - both[0]) / np.maximum(both[0], WEIGHT_FLOOR)).max())
    return Parity("sparse", parity.n, parity.cosine, difference, is_same, parity.same_top, parity.n_queries)


def _compare_pairs(golden: Golden, outputs: Outputs) -> Parity:
    assert outputs.scores is not None
    n_queries = len(texts()[0])
    expected, given = (
        np.asarray(scores, np.float64).reshape(n_queries, -1)
        for scores in (golden.arrays["pairs.scores"], outputs.scores)
    )
    parity = _parity("pairs", expected, given, True, expected, given)
    difference = float((np.abs(given - expected) / np.maximum(np.abs(expected), 1)).max())
    return Parity("pairs", expected.size, parity.cosine, difference, True, parity.same_top, n_queries)


def _parity(
    kind: str,
    expected: NDArray[Any],
    given: NDArray[Any],
    same_counts: bool,
    expected_scores: NDArray[Any],
    scores: NDArray[Any],
) -> Parity:
    lengths = np.linalg.norm(expected, axis=1)
    nothing = (lengths == 0) & (np.linalg.norm(given, axis=1) == 0)
    cosines = np.where(nothing, 1.0, (_unit(expected) * _unit(given)).sum(axis=1))
    differences = np.linalg.norm(given - expected, axis=1) / np.where(lengths == 0, 1, lengths)
    same_top = sum(same_best(one, other) for one, other in zip(expected_scores, scores, strict=True))
    return Parity(
        kind, len(expected), float(cosines.min()), float(differences.max()), same_counts, same_top, len(scores)
    )


def same_best(expected: NDArray[Any], given: NDArray[Any], k: int = K) -> bool:
    """Whether the best k documents are the same. Documents whose scores the origin cannot tell from that of the last
    one may take its position."""
    tie = TIE * float(np.abs(expected).max())
    last = np.sort(expected)[-k]
    best = np.argsort(-given, kind="stable")[:k]
    return bool((expected[best] >= last - tie).all())


def _sides(outputs: Outputs) -> list[tuple[str, Embeddings]]:
    assert outputs.queries is not None
    assert outputs.documents is not None
    return [("queries", outputs.queries), ("documents", outputs.documents)]


def _items(vectors: MultiVectors) -> list[NDArray[Any]]:
    return [vectors[item] for item in range(len(vectors))]


def _terms(vectors: SparseVectors) -> list[Terms]:
    items = (vectors[item] for item in range(len(vectors)))
    return [
        {int(term): float(weight) for term, weight in zip(*item, strict=True) if weight > MIN_WEIGHT} for item in items
    ]


def _matrix(items: Sequence[Terms], size: int) -> NDArray[np.float64]:
    matrix = np.zeros((len(items), size))
    for row, item in zip(matrix, items, strict=True):
        row[list(item)] = list(item.values())
    return matrix


def _maxsim(query: NDArray[Any], document: NDArray[Any]) -> float:
    return float((query @ document.T).max(axis=1).sum())


def _unit(vectors: NDArray[Any]) -> NDArray[Any]:
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    unit: NDArray[Any] = vectors / np.where(lengths == 0, 1, lengths)
    return unit


def main(names: Sequence[str]) -> None:
    print(f"{'checkpoint':28} {'kind':6} {'n':>5}  {'cosine':>10} {'difference':>10}  counts  top {K}")
    for name in names:
        golden = golden_of(name)
        with tempfile.TemporaryDirectory() as scratch:
            try:
                outputs = outputs_of(golden, Path(scratch) / name)
                results = compare(golden, outputs)
            except Exception as error:  # the table shows every checkpoint
                print(f"{name:28} {type(error).__name__}: {error!s:.300}")
                continue
        for result in results:
            counts = "same" if result.same_counts else "DIFFER"
            numbers = f"{result.n:5}  {result.cosine:.8f} {result.difference:10.1e}"
            print(f"{name:28} {result.kind:6} {numbers}  {counts:6}  {result.same_top}/{result.n_queries}")


if __name__ == "__main__":
    main(sys.argv[1:] or NAMES)

"""A committee of retrievers: each voice scores every candidate of a query, and the scores are added.

The voices are the dense vectors of some encoders, MaxSim over the whole token states of some, and BM25. Token states
are centred on the mean of the collection. Scores of a voice are standardised over the candidates of the query, so that
a weight means the same for every voice.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import plait
from plait.embeddings import Embeddings, MultiVectors
from plait.encode.load import load_model
from plait.encode.onnx import OnnxEncoder
from plait.evaluate.rank import rank_queries

Floats = NDArray[np.float32]
States = NDArray[np.float16]  # centred token states of one text
N_FROM_EACH = 20  # candidates that BM25 and each dense voice give
N_WORDS_SCORED = 300  # documents that BM25 scores for a query; others have 0
WEIGHT_DENSE, WEIGHT_STATES, WEIGHT_BM25 = 0.7, 1.0, 0.7


@dataclass(frozen=True, slots=True, eq=False)
class Candidates:
    """The candidates of a query and what the committee thinks of them, best first."""

    numbers: NDArray[np.int64]  # of passages
    scores: NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class _Encoded:
    """Passages and queries by one encoder. `states` are left out for a dense model."""

    dense: Floats
    query_dense: Floats
    states: list[States] | None
    query_states: list[States] | None


def candidates_of(
    queries: Sequence[str], passages: Sequence[str], models: Sequence[Path], *, n_threads: int
) -> Iterator[Candidates]:
    """What the committee retrieves for each query among the passages."""
    encoders = [load_model(model, n_threads=n_threads) for model in models]
    encoded = [_encode(encoder, queries, passages) for encoder in encoders]
    nearest = [_nearest(one, N_FROM_EACH) for one in encoded]
    with tempfile.TemporaryDirectory() as folder:
        by_words = _bm25(Path(folder), queries, passages, models[-1], encoded[-1].dense, n_threads=n_threads)
        for number, (words, word_scores) in enumerate(by_words):
            numbers = np.unique(np.concatenate([rows[number] for rows in nearest] + [words[:N_FROM_EACH]]))
            columns: list[tuple[float, NDArray[np.floating]]] = []
            for one in encoded:
                columns.append((WEIGHT_DENSE, one.dense[numbers] @ one.query_dense[number]))
                if one.states is not None and one.query_states is not None:
                    columns.append((WEIGHT_STATES, _maxsim(one.query_states[number], [one.states[n] for n in numbers])))
            known = dict(zip(words.tolist(), word_scores.tolist(), strict=True))
            columns.append((WEIGHT_BM25, np.array([known.get(int(n), 0.0) for n in numbers])))
            scores = sum(weight * _standardised(column) for weight, column in columns)
            scores = np.asarray(scores) / sum(weight for weight, _ in columns)
            order = np.argsort(-scores, kind="stable")
            yield Candidates(numbers[order], scores[order])


def _encode(encoder: OnnxEncoder, queries: Sequence[str], passages: Sequence[str]) -> _Encoded:
    asked, answered = encoder.encode_queries(list(queries)), encoder.encode_documents(list(passages))
    assert asked.dense is not None
    assert answered.dense is not None
    states = query_states = None
    if answered.multi is not None and asked.multi is not None:
        mean = answered.multi.values.mean(axis=0, dtype=np.float64).astype(np.float32)
        states, query_states = _centred(answered.multi, mean), _centred(asked.multi, mean)
    return _Encoded(_unit(answered.dense), _unit(asked.dense), states, query_states)


def _centred(rows: MultiVectors, mean: Floats) -> list[States]:
    return [_unit(rows[item].astype(np.float32) - mean).astype(np.float16) for item in range(len(rows))]


def _unit(rows: NDArray[np.floating]) -> Floats:
    values = np.asarray(rows, np.float32)
    return np.asarray(values / np.maximum(np.linalg.norm(values, axis=-1, keepdims=True), 1e-9), np.float32)


def _nearest(one: _Encoded, n: int) -> list[NDArray[np.int64]]:
    rows: list[NDArray[np.int64]] = []
    for start in range(0, len(one.query_dense), 256):
        scores = one.query_dense[start : start + 256] @ one.dense.T
        rows += list(np.argpartition(-scores, min(n, scores.shape[1] - 1), axis=1)[:, :n].astype(np.int64))
    return rows


def _maxsim(query: States, documents: Sequence[States]) -> Floats:
    rows = np.concatenate(documents).astype(np.float32)
    starts = np.cumsum([0, *(len(document) for document in documents[:-1])])
    best: Floats = np.maximum.reduceat(query.astype(np.float32) @ rows.T, starts, axis=1).mean(axis=0)
    return best


def _standardised(column: NDArray[np.floating]) -> NDArray[np.float64]:
    values = np.asarray(column, np.float64)
    return np.asarray((values - values.mean()) / max(float(values.std()), 1e-6))


def _bm25(
    folder: Path, queries: Sequence[str], passages: Sequence[str], model: Path, dense: Floats, *, n_threads: int
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.float64]]]:
    """For each query the passages that BM25 finds, with their scores. The index wants vectors of its model as well."""
    documents = [{"id": str(number), "text": text} for number, text in enumerate(passages)]
    with plait.open(folder / "index", create=True, model=model, n_threads=n_threads) as index:
        index.add_embeddings(documents, Embeddings(dense=dense))
        for query in queries:
            (ranking,) = rank_queries(index, [query], min(N_WORDS_SCORED, len(passages)), mode="bm25")
            yield np.array([int(id) for id, _ in ranking], np.int64), np.array([score for _, score in ranking])

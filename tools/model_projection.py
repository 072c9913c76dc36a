"""Fits the projection of the multi strand: from the model's token states to fewer dimensions, so that MaxSim ranks
documents as it does with whole states. Fitted by gradient descent on that ranking; principal components keep variance,
which is not the same: on cranfield they ranked worse than random directions."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]


NEAR_DEPTH = 20  # how many of the documents nearest to a query are drawn from


@dataclass(frozen=True, slots=True)
class States:
    """Token states of some texts; text i owns values[offsets[i]:offsets[i + 1]]."""

    values: Floats
    offsets: NDArray[np.int64]

    def take(self, items: NDArray[np.int64]) -> States:
        lengths = self.offsets[items + 1] - self.offsets[items]
        rows = np.concatenate([np.arange(self.offsets[item], self.offsets[item + 1]) for item in items])
        return States(self.values[rows], np.concatenate([[0], np.cumsum(lengths)]))


@dataclass(frozen=True, slots=True, kw_only=True)
class FitConfig:
    """How the projection is fitted."""

    dim: int = 128
    n_steps: int = 4000
    n_queries: int = 24  # of a step
    n_near: int = 3  # documents of a step for each query: those near it, its own among them
    rate: float = 5e-3
    temperature: float = 1.0  # of the softmax over documents, in units of MaxSim
    seed: int = 0


def fit_projection(queries: States, documents: States, config: FitConfig) -> Floats:
    """The (hidden, dim) matrix whose MaxSim comes nearest to that of whole states, by the divergence of their
    distributions over documents. Documents near a query are drawn with it: telling those apart is the task."""
    rng = np.random.default_rng(config.seed)
    hidden = queries.values.shape[1]
    matrix = np.linalg.qr(rng.standard_normal((hidden, config.dim)))[0].astype(np.float32)
    first, second = np.zeros_like(matrix), np.zeros_like(matrix)
    near = np.argsort(-_means(queries) @ _means(documents).T, axis=1)[:, :NEAR_DEPTH]
    for step in range(1, config.n_steps + 1):
        picked = rng.choice(len(near), config.n_queries, replace=False)
        drawn = [rng.choice(near[query], config.n_near, replace=False) for query in picked]
        items = np.unique(np.concatenate([near[picked, 0], *drawn]))
        gradient = _gradient(matrix, queries.take(picked), documents.take(items), config.temperature)
        first = 0.9 * first + 0.1 * gradient
        second = 0.99 * second + 0.01 * gradient**2
        rate = config.rate * 0.5 * (1 + np.cos(np.pi * step / config.n_steps))
        matrix -= rate * (first / (1 - 0.9**step)) / (np.sqrt(second / (1 - 0.99**step)) + 1e-8)
    return matrix


def _gradient(matrix: Floats, queries: States, documents: States, temperature: float) -> Floats:
    """Of KL(whole || projected) with respect to the matrix."""
    wanted, _ = _maxsim(_unit(queries.values)[0], _unit(documents.values)[0], queries.offsets, documents.offsets)
    query_rows, query_lengths = _unit(queries.values @ matrix)
    document_rows, document_lengths = _unit(documents.values @ matrix)
    got, best = _maxsim(query_rows, document_rows, queries.offsets, documents.offsets)
    n_queries = len(wanted)
    by_score = (_softmax(got / temperature) - _softmax(wanted / temperature)) / (temperature * n_queries)
    owner = np.repeat(np.arange(n_queries), np.diff(queries.offsets))
    weight = np.zeros((len(query_rows), len(document_rows)), np.float32)
    np.put_along_axis(weight, best, by_score[owner], axis=1)
    by_query = _through_unit(weight @ document_rows, query_rows, query_lengths)
    by_document = _through_unit(weight.T @ query_rows, document_rows, document_lengths)
    gradient: Floats = queries.values.T @ by_query + documents.values.T @ by_document
    return gradient


def _means(states: States) -> Floats:
    """The mean state of each text, of length one."""
    return _unit(np.add.reduceat(states.values, states.offsets[:-1], axis=0))[0]


def _maxsim(
    query_rows: Floats, document_rows: Floats, query_offsets: NDArray[np.int64], document_offsets: NDArray[np.int64]
) -> tuple[Floats, NDArray[np.int64]]:
    """Scores (queries, documents), and for each query row its best row of each document."""
    similar = query_rows @ document_rows.T
    best = np.empty((len(query_rows), len(document_offsets) - 1), np.int64)
    for place, (start, end) in enumerate(pairwise(document_offsets)):
        best[:, place] = start + similar[:, start:end].argmax(axis=1)
    taken = np.take_along_axis(similar, best, axis=1)
    return np.add.reduceat(taken, query_offsets[:-1], axis=0), best


def _unit(rows: Floats) -> tuple[Floats, Floats]:
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    return rows / lengths, lengths


def _through_unit(gradient: Floats, rows: Floats, lengths: Floats) -> Floats:
    """The gradient before rows were brought to length one."""
    through: Floats = (gradient - rows * (gradient * rows).sum(axis=1, keepdims=True)) / lengths
    return through


def _softmax(scores: Floats) -> Floats:
    raised = np.exp(scores - scores.max(axis=1, keepdims=True))
    result: Floats = raised / raised.sum(axis=1, keepdims=True)
    return result

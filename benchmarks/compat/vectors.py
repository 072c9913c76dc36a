"""Multi vectors of made-up documents and queries: topics with noise. The queries are noisy halves of documents."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

DIM, N_ROWS, N_QUERY_ROWS = 128, 64, 32
N_TOPICS, TOPICS_OF_DOCUMENT = 2000, 12
NOISE, QUERY_NOISE = 0.6, 0.8

Floats = NDArray[np.float32]


def make_vectors(n_documents: int, n_queries: int, seed: int = 0) -> tuple[Floats, Floats, NDArray[np.int64]]:
    """(documents, rows, dim), (queries, rows, dim), and the document that each query comes from."""
    random = np.random.default_rng(seed)
    topics = _unit(random.standard_normal((N_TOPICS, DIM)))
    chosen = random.integers(0, N_TOPICS, (n_documents, TOPICS_OF_DOCUMENT))
    of_rows = np.take_along_axis(chosen, random.integers(0, TOPICS_OF_DOCUMENT, (n_documents, N_ROWS)), axis=1)
    noise = random.standard_normal((n_documents, N_ROWS, DIM)) * (NOISE / DIM**0.5)
    documents = _unit(topics[of_rows] + noise)
    sources = random.choice(n_documents, n_queries, replace=n_queries > n_documents)
    noise = random.standard_normal((n_queries, N_QUERY_ROWS, DIM)) * (QUERY_NOISE / DIM**0.5)
    queries = _unit(documents[sources][:, ::2] + noise)
    return documents.astype(np.float32), queries.astype(np.float32), sources


def _unit(vectors: NDArray[np.floating]) -> NDArray[np.floating]:
    return np.asarray(vectors / np.linalg.norm(vectors, axis=-1, keepdims=True))

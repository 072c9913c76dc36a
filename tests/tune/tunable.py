"""An index that is large enough to be searched by probing, of vectors in clusters as those of texts are."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import plait
from plait.embeddings import Embeddings, MultiVectors
from plait.encode.protocol import EmbeddingSpec
from storage.grouped_tokens import unit

DIM, N_PASSAGES, N_TOPICS = 32, 1100, 60


def passages(first_seed: int, n_passages: int, *, n_rows: int = 6) -> MultiVectors:
    """Each passage has a topic; its rows are near to some middles of it, and a few to any."""
    middles = np.random.default_rng(0).standard_normal((N_TOPICS, 12, DIM))
    rng = np.random.default_rng(first_seed)
    items = []
    for _ in range(n_passages):
        topics = np.where(rng.random(n_rows) < 0.8, rng.integers(N_TOPICS), rng.integers(0, N_TOPICS, n_rows))
        items.append(unit(middles[topics, rng.integers(0, 12, n_rows)] + 0.7 * rng.standard_normal((n_rows, DIM))))
    return MultiVectors.from_items(items)


def make_index(path: Path, *, bits: int = 2, keep_8bit: bool = False) -> Path:
    with plait.open(path, create=True, spec=EmbeddingSpec(multi=DIM), n_threads=1) as index:
        documents = [{"id": str(number), "text": f"passage {number}"} for number in range(N_PASSAGES)]
        index.add_embeddings(documents, Embeddings(multi=passages(1, N_PASSAGES)))
        index.compact(bits=bits, keep_8bit=keep_8bit)
    return path


def recall(index: plait.Index, k: int = 10, *, n_queries: int = 40) -> float:
    """Of searches with queries that tuning never saw."""
    queries = Embeddings(multi=passages(99, n_queries, n_rows=5))
    hits = index.search_embeddings(queries, k, mode="multi")
    exact = index.search_embeddings(queries, k, mode="multi", exact=True)
    shared = [{hit.id for hit in one} & {hit.id for hit in other} for one, other in zip(hits, exact, strict=True)]
    return float(np.mean([len(ids) / k for ids in shared]))

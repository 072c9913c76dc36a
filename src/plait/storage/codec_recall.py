"""What codes lose, measured while the vectors are still there: of the items that are best by the vectors, the share
that is best by the codes. Queries are made of stored rows; a sample of items stands for the corpus."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from plait.codec.codebook import CentroidQuery
from plait.codec.coded_items import CodedItems
from plait.codec.residual import residual_query
from plait.codec.train import add_noise, draw_neighbouring_rows
from plait.embeddings import MultiVectors
from plait.scoring.maxsim import maxsim, top_k
from plait.scoring.residual import residual_maxsim
from plait.storage.compress import map_in_order
from plait.storage.connection import ReadTransaction
from plait.storage.merge import Part

KEY = "codes_recall"
K = 10
N_QUERIES = 40
MOST_ITEMS = 10_000
MOST_VECTORS = 600_000  # float16 of 128 dimensions: 150 MB, and some seconds
FEWEST_ITEMS = 4 * K  # with fewer, nearly all are among the best


def codes_recall(parts: Sequence[Part], items: CodedItems, *, n_threads: int = 1, seed: int = 0) -> float | None:
    """The recall at 10 of exhaustive search over the finest codes; None where there are too few items, or vectors gone.

    Item i of `items` is row i of the parts, one after another.
    """
    if any(part.segment.multi is None for part in parts):
        return None
    rng = np.random.default_rng(seed)
    counts = np.concatenate([part.ends - part.begins for part in parts])
    drawn = rng.permutation(np.flatnonzero(counts))[:MOST_ITEMS]
    sample = np.sort(drawn[np.cumsum(counts[drawn]) <= MOST_VECTORS])
    if len(sample) < FEWEST_ITEMS:
        return None
    vectors = _vectors(parts, sample)
    sources = rng.choice(len(sample), min(N_QUERIES, len(sample)), replace=False)
    queries = [(int(source), _query(vectors, int(source), rng)) for source in sources]

    def recall(asked: tuple[int, NDArray[np.float32]]) -> float:
        source, query = asked
        by_vectors, by_codes = maxsim(query, vectors), _code_scores(query, items, sample)
        by_vectors[source] = by_codes[source] = -np.inf  # finding what it was drawn from is no test
        return len(np.intersect1d(top_k(by_vectors, K), top_k(by_codes, K))) / K

    return round(float(np.mean(list(map_in_order(recall, queries, n_threads=n_threads)))), 4)


def _query(vectors: MultiVectors, source: int, rng: np.random.Generator) -> NDArray[np.float32]:
    rows = vectors[source]
    return add_noise(rows[draw_neighbouring_rows(len(rows), rng)].astype(np.float32), rng)


def _vectors(parts: Sequence[Part], sample: NDArray[np.int64]) -> MultiVectors:
    """The vectors of the sampled rows, as they are stored."""
    drawn, first = [], 0
    for part in parts:
        own = sample[slice(*np.searchsorted(sample, [first, first + len(part.rows)]))] - first
        assert part.segment.multi is not None
        values = part.segment.multi.values
        drawn += [values[part.begins[row] : part.ends[row]] for row in own]
        first += len(part.rows)
    return MultiVectors.from_items(drawn)


def _code_scores(query: NDArray[np.float32], items: CodedItems, sample: NDArray[np.int64]) -> NDArray[np.float32]:
    codec, rows = items.codes_8bit or (items.codec, items.rows)
    cells = CentroidQuery.of(query, codec.codebook)
    asked = residual_query(query, codec, cells.table(codec.codebook), cells.scale)
    return residual_maxsim(asked, rows, *items.bounds(sample))


def write_codes_recall(connection: sqlite3.Connection, recall: float | None) -> None:
    """Keeps it with the index, or forgets it where it is not known; within a transaction."""
    connection.execute("DELETE FROM meta WHERE key = ?", [KEY])
    if recall is not None:
        connection.execute("INSERT INTO meta VALUES (?, ?)", [KEY, recall])


def read_codes_recall(view: ReadTransaction) -> float | None:
    """What `compact` measured; None where it is not known, or what is kept cannot be a recall."""
    rows = view.rows("SELECT value FROM meta WHERE key = ?", [KEY])
    value = rows[0][0] if rows else None
    return float(value) if isinstance(value, int | float) and 0 < value <= 1 else None

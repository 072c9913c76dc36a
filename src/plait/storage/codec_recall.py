"""How well the codec of an index fits its vectors. Both measures are saved in the catalogue.

Codes recall: the share of the best passages by the float vectors that are among the best by the codes. It is measured
when a codec is fitted, while the float vectors are still there, with synthetic queries on a sample of passages.

Drift: the error of vectors coded later with the same codec, relative to its error when it was fitted.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from plait.codec.assign import NearestCentroids
from plait.codec.codebook import CentroidQuery
from plait.codec.coded_items import CodedItems
from plait.codec.residual import residual_query
from plait.codec.train import FittedCodec, add_noise, draw_neighbouring_rows, sample_rows, squared_error
from plait.embeddings import MultiVectors, Rows
from plait.scoring.maxsim import maxsim, top_k
from plait.scoring.residual import residual_maxsim
from plait.storage.catalogue import delete_meta, write_meta
from plait.storage.connection import ReadTransaction
from plait.storage.merge import LiveRows, map_in_order, sample_vectors
from plait.storage.stored_values import stored_json

CODES_RECALL, DRIFT = "codes_recall", "drift"  # keys of meta
K = 10
N_QUERIES = 40
MAX_ITEMS = 10_000
MAX_VECTORS = 600_000  # float16 of 128 dimensions: 150 MB, and a few seconds
MIN_ITEMS = 4 * K  # with fewer, nearly all are among the best
DRIFT_SAMPLE = 4096  # vectors: precise to two digits, in a few milliseconds


def measure_codes_recall(
    parts: Sequence[LiveRows], items: CodedItems, *, n_threads: int = 1, seed: int = 0
) -> float | None:
    """The recall at 10 of exhaustive search over the finest codes. None if there are too few items, or if the float
    vectors of some are gone. Item i of `items` is row i of the parts, one after another."""
    if any(part.segment.multi is None for part in parts):
        return None
    rng = np.random.default_rng(seed)
    counts = np.concatenate([part.ends - part.begins for part in parts])
    drawn = rng.permutation(np.flatnonzero(counts))[:MAX_ITEMS]
    sample = np.sort(drawn[np.cumsum(counts[drawn]) <= MAX_VECTORS])
    if len(sample) < MIN_ITEMS:
        return None
    vectors = _stored_vectors(parts, sample)
    sources = rng.choice(len(sample), min(N_QUERIES, len(sample)), replace=False)
    queries = [(int(source), _synthetic_query(vectors, int(source), rng)) for source in sources]

    def recall(source_and_query: tuple[int, NDArray[np.float32]]) -> float:
        source, query = source_and_query
        by_vectors, by_codes = maxsim(query, vectors), _code_scores(query, items, sample)
        by_vectors[source] = by_codes[source] = -np.inf  # a query always finds the passage it was drawn from
        return len(np.intersect1d(top_k(by_vectors, K), top_k(by_codes, K))) / K

    return round(float(np.mean(list(map_in_order(recall, queries, n_threads=n_threads)))), 4)


def _synthetic_query(vectors: MultiVectors, source: int, rng: np.random.Generator) -> NDArray[np.float32]:
    rows = vectors[source]
    return add_noise(rows[draw_neighbouring_rows(len(rows), rng)].astype(np.float32), rng)


def _stored_vectors(parts: Sequence[LiveRows], sample: NDArray[np.int64]) -> MultiVectors:
    drawn: list[Rows] = []
    first = 0
    for part in parts:
        rows = sample[slice(*np.searchsorted(sample, [first, first + len(part.rows)]))] - first
        assert part.segment.multi is not None
        values = part.segment.multi.values
        whole = [values[part.begins[row] : part.ends[row]] for row in rows]
        drawn += whole if part.projection is None else [part.projection.project(vectors) for vectors in whole]
        first += len(part.rows)
    return MultiVectors.from_items(drawn)


def _code_scores(query: NDArray[np.float32], items: CodedItems, sample: NDArray[np.int64]) -> NDArray[np.float32]:
    codec, rows = items.codes_8bit or (items.codec, items.rows)
    centroids = CentroidQuery.of(query, codec.codebook)
    table = centroids.table(codec.codebook.centroids, fine=items.codes_8bit is not None)
    coded_query = residual_query(query, codec, table, centroids.scale)
    return residual_maxsim(coded_query, rows, *items.bounds(sample))


def write_codes_recall(connection: sqlite3.Connection, recall: float | None) -> None:
    """Saves the measurement, or removes it if it is None; within a transaction."""
    if recall is None:
        delete_meta(connection, CODES_RECALL)
    else:
        write_meta(connection, CODES_RECALL, recall)


def read_codes_recall(view: ReadTransaction) -> float | None:
    """The saved measurement; None if there is none, or if it is damaged."""
    rows = view.rows("SELECT value FROM meta WHERE key = ?", [CODES_RECALL])
    value = rows[0][0] if rows else None
    return float(value) if isinstance(value, int | float) and 0 < value <= 1 else None


@dataclass(frozen=True, slots=True)
class Drift:
    """The vectors that a codec was not fitted to, and their error relative to the vectors that it was fitted to."""

    n_vectors: int
    ratio: float

    @staticmethod
    def combined(one: Drift | None, other: Drift | None) -> Drift | None:
        """The mean of two groups of vectors."""
        if one is None or other is None:
            return one or other
        n_vectors = one.n_vectors + other.n_vectors
        return Drift(n_vectors, (one.n_vectors * one.ratio + other.n_vectors * other.ratio) / n_vectors)


def measure_drift(parts: Sequence[LiveRows], fitted: FittedCodec, *, seed: int) -> Drift | None:
    """The drift of vectors that are not coded yet, from a sample; None if there are no such vectors."""
    n_vectors = sum(part.n_vectors for part in parts)
    if not n_vectors:
        return None
    positions = sample_rows(n_vectors, min(n_vectors, DRIFT_SAMPLE), seed=seed)
    sample = sample_vectors(parts, positions).astype("float32")
    coded = fitted.codec.encode(sample, NearestCentroids.from_codebook(fitted.codec.codebook).assign(sample))
    error = squared_error(sample, fitted.codec.decode(coded)) / len(sample)
    return Drift(n_vectors, error / max(fitted.error, 1e-12))


def write_drift(connection: sqlite3.Connection, drift: Drift | None) -> None:
    """Saves the drift, or removes it if it is None; within a transaction."""
    if drift is None:
        delete_meta(connection, DRIFT)
    else:
        write_meta(connection, DRIFT, json.dumps({"n_vectors": drift.n_vectors, "ratio": drift.ratio}))


def read_drift(view: ReadTransaction | sqlite3.Connection) -> Drift | None:
    """The saved drift; None if there is none, or if it is damaged."""
    sql = "SELECT value FROM meta WHERE key = ?"
    rows = view.rows(sql, [DRIFT]) if isinstance(view, ReadTransaction) else view.execute(sql, [DRIFT]).fetchall()
    try:
        saved = stored_json(rows[0][0]) if rows else {}
        drift = Drift(int(saved["n_vectors"]), float(saved["ratio"]))
    except (ValueError, TypeError, KeyError, OverflowError):
        return None
    return drift if drift.n_vectors > 0 and drift.ratio >= 0 else None

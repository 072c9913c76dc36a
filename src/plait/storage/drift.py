"""Drift: how much worse a codec fits the vectors that came since it was fitted. Measured when they are coded with it,
kept with the index, and forgotten when a new one is fitted."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass

from plait.codec.assign import NearestCentroids
from plait.codec.train import FittedCodec, sample_rows, squared_error
from plait.storage.connection import ReadTransaction
from plait.storage.merge import Part, sample_of

KEY = "drift"
SAMPLE = 4096  # vectors: a measurement to two digits, in some milliseconds


@dataclass(frozen=True, slots=True)
class Drift:
    """Vectors that a codec was not fitted to, and their error over the error of those that it was."""

    n_vectors: int
    ratio: float

    @staticmethod
    def together(one: Drift | None, other: Drift | None) -> Drift | None:
        """Of two groups of vectors, the mean."""
        if one is None or other is None:
            return one or other
        n_vectors = one.n_vectors + other.n_vectors
        return Drift(n_vectors, (one.n_vectors * one.ratio + other.n_vectors * other.ratio) / n_vectors)


def drift_of(parts: Sequence[Part], fitted: FittedCodec, *, seed: int) -> Drift | None:
    """That of vectors which are not coded yet, from a sample; None if there are none."""
    n_vectors = sum(part.n_vectors for part in parts)
    if not n_vectors:
        return None
    sample = sample_of(parts, sample_rows(n_vectors, min(n_vectors, SAMPLE), seed=seed)).astype("float32")
    coded = fitted.codec.encode(sample, NearestCentroids.from_codebook(fitted.codec.codebook).assign(sample))
    error = squared_error(sample, fitted.codec.decode(coded)) / len(sample)
    return Drift(n_vectors, error / max(fitted.error, 1e-12))


def write_drift(connection: sqlite3.Connection, drift: Drift | None) -> None:
    """Keeps it with the index, or forgets it; within a transaction."""
    connection.execute("DELETE FROM meta WHERE key = ?", [KEY])
    if drift is not None:
        kept = json.dumps({"n_vectors": drift.n_vectors, "ratio": drift.ratio})
        connection.execute("INSERT INTO meta VALUES (?, ?)", [KEY, kept])


def read_drift(view: ReadTransaction | sqlite3.Connection) -> Drift | None:
    """What was measured; None where nothing was, or what is kept cannot be a drift."""
    sql = "SELECT value FROM meta WHERE key = ?"
    rows = view.rows(sql, [KEY]) if isinstance(view, ReadTransaction) else view.execute(sql, [KEY]).fetchall()
    try:
        kept = json.loads(rows[0][0]) if rows else {}
        drift = Drift(int(kept["n_vectors"]), float(kept["ratio"]))
    except (ValueError, TypeError, KeyError):
        return None
    return drift if drift.n_vectors > 0 and drift.ratio >= 0 else None

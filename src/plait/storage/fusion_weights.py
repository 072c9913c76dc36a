"""The weights of strands that were fitted on judged queries, kept in the catalogue beside the tuned plan.

They are advice, not data: what cannot be read is passed over, and `info` and `check` say so.
"""

from __future__ import annotations

import json
import math
import sqlite3
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from plait.errors import CorruptIndexError
from plait.storage.connection import ReadTransaction

KEY = "weights"


@dataclass(frozen=True, slots=True, kw_only=True)
class FittedWeights:
    """How strands are weighed in hybrid search, and what that was measured to give."""

    fusion: str  # what the weights are for
    weights: Mapping[str, float]  # by strand
    ndcg: float  # at 10, with these weights on queries that took no part in choosing them
    default_ndcg: float  # the same with the default weights
    n_queries: int
    data: str  # what was measured on
    date: str

    def __post_init__(self) -> None:
        texts = all(isinstance(value, str) for value in (self.fusion, self.data, self.date))
        weights = self.weights
        fits = isinstance(weights, dict) and all(map(_is_weight, weights.values()))
        shares = all(type(value) in (int, float) and 0 <= value <= 1 for value in (self.ndcg, self.default_ndcg))
        if not (texts and fits and shares and type(self.n_queries) is int and self.n_queries >= 1):
            raise CorruptIndexError(f"the saved weights cannot be: {asdict(self)!r:.200}")


def _is_weight(value: object) -> bool:
    return type(value) in (int, float) and math.isfinite(value) and value >= 0  # type: ignore[arg-type,operator]


@dataclass(frozen=True, slots=True)
class SavedWeights:
    """What the catalogue has for weights: some, or none, or damage."""

    fitted: FittedWeights | None
    damage: str = ""


def read_weights(view: ReadTransaction) -> SavedWeights:
    """The weights of this state; damage is told, not raised."""
    rows = view.rows("SELECT value FROM meta WHERE key = ?", [KEY])
    if not rows:
        return SavedWeights(None)
    try:
        return SavedWeights(FittedWeights(**json.loads(rows[0][0])))
    except CorruptIndexError as error:
        return SavedWeights(None, str(error))
    except (ValueError, TypeError) as error:
        return SavedWeights(None, f"the saved weights cannot be read ({error!s:.100})")


def write_weights(connection: sqlite3.Connection, fitted: FittedWeights | None) -> None:
    """Keeps weights, or forgets those that are there; within a transaction."""
    connection.execute("DELETE FROM meta WHERE key = ?", [KEY])
    if fitted is not None:
        connection.execute("INSERT INTO meta VALUES (?, ?)", [KEY, json.dumps(asdict(fitted), allow_nan=False)])


def as_fields(read: SavedWeights) -> dict[str, Any] | None:
    """For programs: the weights with `damage`, or None where there are none."""
    if read.fitted is None and not read.damage:
        return None
    return {**({} if read.fitted is None else asdict(read.fitted)), "damage": read.damage}

"""Settings that plait saves in the catalogue: search params for multi vectors, weights of hybrid search, and what
scores mean.

They are defaults, not data. If saved settings are damaged, searches ignore them and `info` and `check` report it.
Params that were tuned for other codes are stale. In both cases searches use the built-in defaults.
"""

from __future__ import annotations

import json
import math
import sqlite3
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from plait.errors import CorruptIndexError
from plait.storage.catalogue import delete_meta, write_meta
from plait.storage.connection import ReadTransaction
from plait.storage.stored_values import stored_json

TUNED_PARAMS, FUSION_WEIGHTS, CALIBRATION = "tuned_params", "fusion_weights", "calibration"  # keys of meta
MAX_INTEGER = 2**31 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class TunedParams:
    """Params of a search over multi vectors, and the recall and time that were measured with them."""

    n_probe: int
    n_candidates: int
    n_code_scored: int
    n_rescored: int
    exhaustive: bool  # score every passage: nothing faster reaches the recall
    k: int  # for which the params were chosen
    target_recall: float  # that the caller asked for
    recall_of: str  # "vectors": share of the best by float vectors; "codes": share of the best by the finest codes
    recall: float  # in those terms, on queries that were not used to choose the params
    recall_in_codes: float  # share of the best by the finest codes
    codes_recall: float | None  # of exhaustive search over the codes, by float vectors; None if not measured
    median_ms: float  # of one query, without encoding it
    exhaustive_ms: float
    n_queries: int  # that were measured
    queries: str  # "given", "words" of documents, or "rows" of passages
    n_passages: int
    date: str
    stale: str = ""  # why the params are no longer used

    def __post_init__(self) -> None:
        for field in fields(self):
            self._check(field.name, getattr(self, field.name))

    def _check(self, name: str, value: object) -> None:
        if name in ("recall_of", "queries", "date", "stale"):
            valid = isinstance(value, str)
        elif name == "exhaustive":
            valid = isinstance(value, bool)
        elif name in ("target_recall", "recall", "recall_in_codes"):
            valid = _is_number(value, 1)
        elif name == "codes_recall":
            valid = value is None or _is_number(value, 1)
        elif name in ("median_ms", "exhaustive_ms"):
            valid = _is_number(value, MAX_INTEGER)
        else:
            valid = type(value) is int and 1 <= value <= MAX_INTEGER
        if not valid:
            raise CorruptIndexError(f"the saved search params have {name} = {value!r:.60}")


@dataclass(frozen=True, slots=True, kw_only=True)
class FittedWeights:
    """The weight of each list in hybrid search, and the quality that was measured with them."""

    fusion: str  # the fusion method that the weights are for
    weights: Mapping[str, float]  # by kind of embedding, or bm25
    ndcg: float  # at 10, on queries that were not used to choose the weights
    default_ndcg: float  # the same with the default weights
    n_queries: int
    data: str  # name of the judged queries
    date: str

    def __post_init__(self) -> None:
        texts = all(isinstance(value, str) for value in (self.fusion, self.data, self.date))
        weights = isinstance(self.weights, dict) and all(
            _is_number(value, math.inf) and math.isfinite(value) for value in self.weights.values()
        )
        measures = _is_number(self.ndcg, 1) and _is_number(self.default_ndcg, 1)
        if not (texts and weights and measures and type(self.n_queries) is int and self.n_queries >= 1):
            raise CorruptIndexError(f"the saved weights are invalid: {asdict(self)!r:.200}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """What scores mean on an index: see plait.search.calibration.

    `bounds` depend on the model and stay for the life of the index. `unrelated` describes the best scores of queries
    that are about nothing in the index; it is measured again when the index has grown.
    """

    bounds: Mapping[str, tuple[float, float]]  # by kind: the score of unrelated texts, and the highest score
    weights: Mapping[str, float]  # of the hybrid search that `unrelated` was measured with
    unrelated_mean: float | None  # None: the index had too few documents
    unrelated_deviation: float | None
    n_queries: int  # that were measured
    n_documents: int  # that the index had then
    date: str

    def __post_init__(self) -> None:
        bounds = isinstance(self.bounds, dict) and all(
            len(pair) == 2 and all(_is_finite(value) for value in pair) and -pair[1] < pair[0] < pair[1]
            for pair in self.bounds.values()
        )
        weights = isinstance(self.weights, dict) and all(_is_finite(value) for value in self.weights.values())
        unrelated = (self.unrelated_mean, self.unrelated_deviation)
        measured = unrelated == (None, None) or all(_is_number(value, 1) for value in unrelated)
        counts = all(type(count) is int and count >= 0 for count in (self.n_queries, self.n_documents))
        if not (bounds and weights and measured and counts and isinstance(self.date, str)):
            raise CorruptIndexError(f"the saved calibration is invalid: {asdict(self)!r:.200}")


@dataclass(frozen=True, slots=True)
class SavedCalibration:
    """The calibration of the catalogue, if there is one, or why it cannot be read."""

    usable: Calibration | None
    damage: str = ""

    def to_dict(self) -> dict[str, Any] | None:
        """The calibration and `damage`; None if nothing is saved."""
        if self.usable is None and not self.damage:
            return None
        return {**({} if self.usable is None else asdict(self.usable)), "damage": self.damage}


def read_calibration(view: ReadTransaction) -> SavedCalibration:
    rows = view.rows("SELECT value FROM meta WHERE key = ?", [CALIBRATION])
    return parse_calibration(rows[0][0] if rows else None)


def parse_calibration(stored: object) -> SavedCalibration:
    """A calibration from its entry in meta, which may be absent or damaged."""
    if stored is None:
        return SavedCalibration(None)
    try:
        return SavedCalibration(Calibration(**stored_json(stored)))
    except CorruptIndexError as error:
        return SavedCalibration(None, str(error))
    except (ValueError, TypeError) as error:
        return SavedCalibration(None, f"the saved calibration cannot be read ({error!s:.100})")


def write_calibration(connection: sqlite3.Connection, calibration: Calibration | None) -> None:
    """Saves a calibration, or removes the saved one; within a transaction."""
    if calibration is None:
        delete_meta(connection, CALIBRATION)
    else:
        write_meta(connection, CALIBRATION, json.dumps(asdict(calibration), allow_nan=False))


def _is_finite(value: object) -> bool:
    return type(value) in (int, float) and math.isfinite(value)  # type: ignore[arg-type]


def _is_number(value: object, most: float) -> bool:
    return type(value) in (int, float) and 0 <= value <= most  # type: ignore[operator]


@dataclass(frozen=True, slots=True)
class SavedParams:
    """The tuned params of the catalogue, if there are any, or why they cannot be read."""

    params: TunedParams | None
    damage: str = ""

    @property
    def usable(self) -> TunedParams | None:
        """The params that searches use."""
        return None if self.params is None or self.params.stale else self.params

    def to_dict(self) -> dict[str, Any] | None:
        """The params and `damage`; None if nothing is saved."""
        if self.params is None and not self.damage:
            return None
        return {**({} if self.params is None else asdict(self.params)), "damage": self.damage}


@dataclass(frozen=True, slots=True)
class SavedWeights:
    """The fitted weights of the catalogue, if there are any, or why they cannot be read."""

    fitted: FittedWeights | None
    damage: str = ""

    def to_dict(self) -> dict[str, Any] | None:
        """The weights and `damage`; None if nothing is saved."""
        if self.fitted is None and not self.damage:
            return None
        return {**({} if self.fitted is None else asdict(self.fitted)), "damage": self.damage}


def read_tuned_params(view: ReadTransaction) -> SavedParams:
    rows = view.rows("SELECT value FROM meta WHERE key = ?", [TUNED_PARAMS])
    try:
        return SavedParams(_parse_params(rows[0][0]) if rows else None)
    except CorruptIndexError as error:
        return SavedParams(None, str(error))


def write_tuned_params(connection: sqlite3.Connection, params: TunedParams | None) -> None:
    """Saves params, or removes the saved ones; within a transaction."""
    if params is None:
        delete_meta(connection, TUNED_PARAMS)
    else:
        write_meta(connection, TUNED_PARAMS, json.dumps(asdict(params), allow_nan=False))


def mark_tuned_params_stale(connection: sqlite3.Connection, reason: str) -> None:
    """Marks saved params as stale, within the transaction that makes them so. Damaged ones stay as they are."""
    row = connection.execute("SELECT value FROM meta WHERE key = ?", [TUNED_PARAMS]).fetchone()
    if row is None:
        return
    try:
        params = _parse_params(row[0])
    except CorruptIndexError:
        return
    write_tuned_params(connection, replace(params, stale=params.stale or reason))


def _parse_params(stored: object) -> TunedParams:
    if not isinstance(stored, str):
        raise CorruptIndexError(f"the saved search params cannot be read (they are {type(stored).__name__})")
    try:
        return TunedParams(**stored_json(stored))
    except (ValueError, TypeError) as error:
        raise CorruptIndexError(f"the saved search params cannot be read ({error!s:.100})") from None


def read_fusion_weights(view: ReadTransaction) -> SavedWeights:
    rows = view.rows("SELECT value FROM meta WHERE key = ?", [FUSION_WEIGHTS])
    if not rows:
        return SavedWeights(None)
    try:
        return SavedWeights(FittedWeights(**stored_json(rows[0][0])))
    except CorruptIndexError as error:
        return SavedWeights(None, str(error))
    except (ValueError, TypeError) as error:
        return SavedWeights(None, f"the saved weights cannot be read ({error!s:.100})")


def write_fusion_weights(connection: sqlite3.Connection, fitted: FittedWeights | None) -> None:
    """Saves weights, or removes the saved ones; within a transaction."""
    if fitted is None:
        delete_meta(connection, FUSION_WEIGHTS)
    else:
        write_meta(connection, FUSION_WEIGHTS, json.dumps(asdict(fitted), allow_nan=False))

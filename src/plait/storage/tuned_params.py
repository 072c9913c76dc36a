"""The plan that tuning saves with an index: how many go from each stage of a search to the next, and what that was
measured to give. It is kept in the catalogue, so it is committed and read with the state it belongs to.

A plan is advice, not data. One that cannot be read is passed over, and `info` and `check` say so; one for another codec
is stale. Both leave the defaults.
"""

from __future__ import annotations

import json
import sqlite3
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from plait.errors import CorruptIndexError
from plait.storage.connection import ReadTransaction

KEY = "tuned"
LARGEST = 2**31 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class TunedParams:
    """Settings of a search, and what they were measured to reach."""

    n_probe: int
    n_candidates: int
    n_code_scored: int
    n_rescored: int
    exhaustive: bool  # every passage is scored: nothing cheaper reaches the recall
    k: int  # for which the settings were chosen
    target_recall: float  # the recall that was asked for
    recall_of: str  # what it is a share of: "vectors" as they were, or what exhaustive search finds in the "codes"
    recall: float  # of that, measured on queries that took no part in choosing
    recall_in_codes: float  # of what exhaustive search over the finest codes finds
    codes_recall: float | None  # what exhaustive search over the codes finds of the vectors' best; None if not known
    median_ms: float  # of a query, without encoding it
    exhaustive_ms: float
    n_queries: int  # that were measured on
    queries: str  # what kind they are: "given", "words" of documents, or "rows" of passages
    n_passages: int
    date: str
    stale: str = ""  # why it is not used any more

    def __post_init__(self) -> None:
        for field in fields(self):
            self._check(field.name, getattr(self, field.name))

    def _check(self, name: str, value: object) -> None:
        if name in ("recall_of", "queries", "date", "stale"):
            fits = isinstance(value, str)
        elif name == "exhaustive":
            fits = isinstance(value, bool)
        elif name in ("target_recall", "recall", "recall_in_codes"):
            fits = type(value) in (int, float) and 0 <= value <= 1  # type: ignore[operator]
        elif name == "codes_recall":
            fits = value is None or (type(value) in (int, float) and 0 <= value <= 1)  # type: ignore[operator]
        elif name in ("median_ms", "exhaustive_ms"):
            fits = type(value) in (int, float) and 0 <= value < LARGEST  # type: ignore[operator]
        else:
            fits = type(value) is int and 1 <= value <= LARGEST
        if not fits:
            raise CorruptIndexError(f"the saved plan has {name} = {value!r:.60}")


def to_json(plan: TunedParams) -> str:
    return json.dumps(asdict(plan), allow_nan=False)


def from_json(stored: object) -> TunedParams:
    """The plan, or CorruptIndexError if it is not one."""
    if not isinstance(stored, str):
        raise CorruptIndexError(f"the saved plan cannot be read (it is {type(stored).__name__})")
    try:
        return TunedParams(**json.loads(stored))
    except (ValueError, TypeError) as error:
        raise CorruptIndexError(f"the saved plan cannot be read ({error!s:.100})") from None


@dataclass(frozen=True, slots=True)
class SavedParams:
    """What the catalogue has for a plan: one, or none, or damage."""

    params: TunedParams | None
    damage: str = ""

    @property
    def usable(self) -> TunedParams | None:
        """The plan that searches go by."""
        return None if self.params is None or self.params.stale else self.params


def read_tuned_params(view: ReadTransaction) -> SavedParams:
    """The plan of this state; damage is told, not raised."""
    rows = view.rows("SELECT value FROM meta WHERE key = ?", [KEY])
    if not rows:
        return SavedParams(None)
    try:
        return SavedParams(from_json(rows[0][0]))
    except CorruptIndexError as error:
        return SavedParams(None, str(error))


def write_tuned_params(connection: sqlite3.Connection, plan: TunedParams | None) -> None:
    """Keeps a plan, or forgets the one that is there; within a transaction."""
    connection.execute("DELETE FROM meta WHERE key = ?", [KEY])
    if plan is not None:
        connection.execute("INSERT INTO meta VALUES (?, ?)", [KEY, to_json(plan)])


def mark_stale(connection: sqlite3.Connection, why: str) -> None:
    """Says of a plan that is there why it is not to be used; within the transaction that makes it so."""
    row = connection.execute("SELECT value FROM meta WHERE key = ?", [KEY]).fetchone()
    if row is None:
        return
    try:
        plan = from_json(row[0])
    except CorruptIndexError:
        return  # damage stays what it is: `info` tells of it
    write_tuned_params(connection, replace(plan, stale=plan.stale or why))


def as_fields(read: SavedParams) -> dict[str, Any] | None:
    """For programs: the plan with `damage`, or None where there is none."""
    if read.params is None and not read.damage:
        return None
    return {**({} if read.params is None else asdict(read.params)), "damage": read.damage}

"""Runs: what came back for each query, best first; and the TREC files that hold them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from plait.errors import InputError

Run = Mapping[str, Sequence[tuple[str, float]]]  # query id -> (document id, score), best first

TAG = "plait"


def ordered(ranking: Sequence[tuple[str, float]]) -> list[tuple[str, float]]:
    """By score, highest first; equal scores by id, so that a run does not depend on how an index was built."""
    return sorted(ranking, key=lambda entry: (-entry[1], entry[0]))


def without_self(run: Run) -> dict[str, list[tuple[str, float]]]:
    """The run without documents whose id is that of the query: some sets ask with texts of their own corpus."""
    return {query: [entry for entry in ranking if entry[0] != query] for query, ranking in run.items()}


def write_run(path: str | Path, run: Run, *, tag: str = TAG) -> None:
    """Writes `query Q0 document rank score tag`; ranks count from 1 and scores fall strictly.

    Other tools sort by score, which they keep in 32 bits, and break ties as they like. So a score that is not below
    the one before it is lowered by the least that 32 bits can show, and every tool reads the order as it is here.
    """
    lines = []
    for query, ranking in run.items():
        _check_id(query, "query")
        above = np.float32(np.inf)
        for rank, (document, score) in enumerate(ordered(ranking), 1):
            _check_id(document, "document")
            if not math.isfinite(score):
                raise InputError(f"document {document!r} has the score {score} for query {query!r}; it must be finite")
            above = min(np.float32(score), np.nextafter(above, np.float32(-np.inf)))
            lines.append(f"{query} Q0 {document} {rank} {above:.9g} {tag}\n")
    Path(path).write_text("".join(lines), encoding="utf-8")


def _check_id(id: str, what: str) -> None:
    if not id or any(char.isspace() for char in id):
        raise InputError(f"the {what} id {id!r} is empty or has a space, which a TREC run cannot hold")


def read_run(path: str | Path) -> dict[str, list[tuple[str, float]]]:
    """A run from a TREC file; each query's documents by score, then by the rank that is given."""
    entries: dict[str, list[tuple[float, int, str]]] = {}
    for number, line in enumerate(Path(path).read_text(encoding="utf-8").splitlines(), 1):
        if not line.strip():
            continue
        try:
            query, _, document, rank, score, _ = line.split()
            entries.setdefault(query, []).append((-float(score), int(rank), document))
        except ValueError:
            raise InputError(
                f"{path}, line {number}: expected 'query Q0 document rank score tag', got {line:.60}"
            ) from None
    return {query: [(document, -score) for score, _, document in sorted(found)] for query, found in entries.items()}

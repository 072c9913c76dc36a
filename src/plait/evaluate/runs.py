"""Runs: the ranked documents of each query, best first; and TREC run files."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np

from plait.errors import InputError, SourceError
from plait.evaluate.dataset_files import lines_of

Ranked = Sequence[tuple[str, float]]  # (document id, score), best first
Run = Mapping[str, Ranked]  # by query id

DEFAULT_TAG = "plait"
MAX_SCORE = float(np.finfo(np.float32).max)


def ordered(ranking: Ranked) -> list[tuple[str, float]]:
    """Sorted by score, highest first; equal scores by id, so that a run does not depend on how an index was built."""
    return sorted(ranking, key=lambda entry: (-entry[1], entry[0]))


def without_self(run: Run, k: int | None = None) -> dict[str, list[tuple[str, float]]]:
    """The run without documents that have the id of their query, as in datasets whose queries are texts of the corpus;
    cut to the first k documents of each query unless k is None."""
    return {query: [entry for entry in ranking if entry[0] != query][:k] for query, ranking in run.items()}


def n_self_first(run: Run) -> int:
    """The number of queries whose first document has the id of the query; 0 if they are fewer than one in ten. Such
    queries are documents of the corpus. Below a tenth, plain numbers as ids may coincide by chance."""
    n_first = sum(ordered(ranking)[0][0] == query for query, ranking in run.items() if ranking)
    return n_first if 10 * n_first >= len(run) else 0


def write_run(path: str | Path, run: Run, *, tag: str = DEFAULT_TAG) -> None:
    """Writes `query Q0 document rank score tag`; ranks count from 1 and scores decrease strictly.

    Other tools sort by score in 32 bits and break ties in different ways. A score that is not below the one before it
    is therefore lowered to the next smaller float32, and every tool reads the same order.
    """
    lines = []
    for query, ranking in run.items():
        _check_id(query, "query")
        entries = ordered(ranking)
        for document, score in entries:
            _check_id(document, "document")
            if not math.isfinite(score):
                raise InputError(f"document {document!r} has the score {score} for query {query!r}; it must be finite")
        scores = strictly_decreasing([score for _, score in entries])
        for rank, ((document, _), score) in enumerate(zip(entries, scores, strict=True), 1):
            lines.append(f"{query} Q0 {document} {rank} {score:.9g} {tag}\n")
    Path(path).write_text("".join(lines), encoding="utf-8")


def _check_id(id: str, what: str) -> None:
    if not id or any(char.isspace() for char in id):
        raise InputError(f"the {what} id {id!r} is empty or has a space, which a TREC run does not allow")


def strictly_decreasing(scores: Sequence[float]) -> list[float]:
    """Non-increasing scores as float32, each lowered as little as needed to be below the one before."""
    lowered: list[float] = np.asarray(scores, np.float32).tolist()
    for rank in range(1, len(lowered)):
        if lowered[rank] >= lowered[rank - 1]:
            lowered[rank] = float(np.nextafter(np.float32(lowered[rank - 1]), np.float32(-np.inf)))
    return lowered


def read_run(path: str | Path, *, notes: list[str] | None = None) -> dict[str, list[tuple[str, float]]]:
    """A run from a TREC file, `query Q0 document rank score tag`, or an MS MARCO file, `query document rank`.

    The order is that of trec_eval: by score in 32 bits, equal scores by descending id. The ranks of a TREC file are
    ignored; if they contradict the scores, a sentence is added to `notes`. The returned scores decrease strictly, so
    that sorting by score gives the same order. A repeated document or a score that is not finite is a SourceError that
    names the line.
    """
    run: dict[str, dict[str, float]] = {}
    ranks: dict[str, list[tuple[int, float]]] = {}
    for line in lines_of(path):
        columns = line.text.split()
        try:
            query, document, rank, score = _parse_entry(columns)
        except (ValueError, IndexError):
            raise SourceError(
                f"{path}, line {line.number}: expected 'query Q0 document rank score tag', got {line.text:.60}"
            ) from None
        if not abs(score) <= MAX_SCORE:
            raise SourceError(
                f"{path}, line {line.number}: the score of document {document!r} for query {query!r} is "
                f"{columns[-2]}; it must be finite in 32 bits"
            )
        ranking = run.setdefault(query, {})
        if document in ranking:
            raise SourceError(
                f"{path}, line {line.number}: document {document!r} occurs a second time for query {query!r}; keep "
                f"one of the lines"
            )
        ranking[document] = score
        if notes is not None:
            ranks.setdefault(query, []).append((rank, score))
    if notes is not None and (n := sum(map(_ranks_contradict_scores, ranks.values()))):
        notes.append(f"for {n} of {len(run)} queries the ranks contradict the scores; scores count, as in trec_eval")
    return {query: _trec_eval_order(ranking) for query, ranking in run.items()}


def _parse_entry(columns: list[str]) -> tuple[str, str, int, float]:
    if len(columns) == 3:
        query, document, rank = columns
        return query, document, int(rank), -float(int(rank))
    query, _, document, rank, score, _ = columns
    return query, document, int(rank), float(score)


def _ranks_contradict_scores(entries: list[tuple[int, float]]) -> bool:
    """True if a document has a better rank than the next one, and a lower score."""
    entries.sort()
    return any(rank < next_rank and score < next_score for (rank, score), (next_rank, next_score) in pairwise(entries))


def _trec_eval_order(ranking: Mapping[str, float]) -> list[tuple[str, float]]:
    ids = sorted(ranking, reverse=True)
    scores = np.array([ranking[id] for id in ids], np.float32)
    order = np.argsort(-scores, kind="stable").tolist()
    return list(zip((ids[index] for index in order), strictly_decreasing(scores[order].tolist()), strict=True))

"""Runs: what came back for each query, best first; and the TREC files that hold them."""

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

TAG = "plait"
MAX_SCORE = float(np.finfo(np.float32).max)


def ordered(ranking: Ranked) -> list[tuple[str, float]]:
    """By score, highest first; equal scores by id, so that a run does not depend on how an index was built."""
    return sorted(ranking, key=lambda entry: (-entry[1], entry[0]))


def without_self(run: Run, k: int | None = None) -> dict[str, list[tuple[str, float]]]:
    """The run without documents whose id is that of the query: some sets ask with texts of their own corpus. Of what is
    left, the first k of each query, or all."""
    return {query: [entry for entry in ranking if entry[0] != query][:k] for query, ranking in run.items()}


def n_self_first(run: Run) -> int:
    """For how many queries the first document has the id of the query; 0 if these are fewer than one in ten. Where ids
    are mere numbers some coincide, but a query that is a document of the corpus finds itself first."""
    n_first = sum(ordered(ranking)[0][0] == query for query, ranking in run.items() if ranking)
    return n_first if 10 * n_first >= len(run) else 0


def write_run(path: str | Path, run: Run, *, tag: str = TAG) -> None:
    """Writes `query Q0 document rank score tag`; ranks count from 1 and scores fall strictly.

    Other tools sort by score, which they keep in 32 bits, and break ties as they like. So a score that is not below
    the one before it is lowered by the least that 32 bits can show, and every tool reads the order as it is here.
    """
    lines = []
    for query, ranking in run.items():
        _check_id(query, "query")
        entries = ordered(ranking)
        for document, score in entries:
            _check_id(document, "document")
            if not math.isfinite(score):
                raise InputError(f"document {document!r} has the score {score} for query {query!r}; it must be finite")
        scores = falling([score for _, score in entries])
        for rank, ((document, _), score) in enumerate(zip(entries, scores, strict=True), 1):
            lines.append(f"{query} Q0 {document} {rank} {score:.9g} {tag}\n")
    Path(path).write_text("".join(lines), encoding="utf-8")


def _check_id(id: str, what: str) -> None:
    if not id or any(char.isspace() for char in id):
        raise InputError(f"the {what} id {id!r} is empty or has a space, which a TREC run cannot hold")


def falling(scores: Sequence[float]) -> list[float]:
    """Scores that do not rise, in 32 bits, each lowered as little as makes it lower than the one before."""
    kept: list[float] = np.asarray(scores, np.float32).tolist()
    for place in range(1, len(kept)):
        if kept[place] >= kept[place - 1]:
            kept[place] = float(np.nextafter(np.float32(kept[place - 1]), np.float32(-np.inf)))
    return kept


def read_run(path: str | Path, *, notes: list[str] | None = None) -> dict[str, list[tuple[str, float]]]:
    """A run from a TREC file, `query Q0 document rank score tag`, or from MS MARCO's, `query document rank`.

    The order is that of trec_eval: by score in 32 bits, equal scores by id, the greater first; the ranks in a TREC
    file are not looked at, but if they contradict the scores, a sentence is added to `notes`. Scores come back so that
    they fall strictly, and whoever sorts them finds that order. A document twice for a query and a score that is not
    a number are refused with their line.
    """
    run: dict[str, dict[str, float]] = {}
    ranks: dict[str, list[tuple[int, float]]] = {}
    for line in lines_of(path):
        columns = line.text.split()
        try:
            query, document, rank, score = _entry(columns)
        except (ValueError, IndexError):
            raise SourceError(
                f"{path}, line {line.number}: expected 'query Q0 document rank score tag', got {line.text:.60}"
            ) from None
        if not abs(score) <= MAX_SCORE:
            raise SourceError(
                f"{path}, line {line.number}: the score of document {document!r} for query {query!r} is "
                f"{columns[-2]}; it must be a finite number of 32 bits"
            )
        ranking = run.setdefault(query, {})
        if document in ranking:
            raise SourceError(
                f"{path}, line {line.number}: document {document!r} is there a second time for query {query!r}; a run "
                f"has each document once"
            )
        ranking[document] = score
        if notes is not None:
            ranks.setdefault(query, []).append((rank, score))
    if notes is not None and (n := sum(map(_contradict, ranks.values()))):
        notes.append(f"for {n} of {len(run)} queries the ranks contradict the scores; scores count, as in trec_eval")
    return {query: _as_trec_eval(ranking) for query, ranking in run.items()}


def _entry(columns: list[str]) -> tuple[str, str, int, float]:
    if len(columns) == 3:
        query, document, rank = columns
        return query, document, int(rank), -float(int(rank))
    query, _, document, rank, score, _ = columns
    return query, document, int(rank), float(score)


def _contradict(entries: list[tuple[int, float]]) -> bool:
    """Whether some document has a lower rank number than the next and a lower score too."""
    entries.sort()
    return any(rank < next_rank and score < next_score for (rank, score), (next_rank, next_score) in pairwise(entries))


def _as_trec_eval(ranking: Mapping[str, float]) -> list[tuple[str, float]]:
    ids = sorted(ranking, reverse=True)
    scores = np.array([ranking[id] for id in ids], np.float32)
    order = np.argsort(-scores, kind="stable").tolist()
    return list(zip((ids[place] for place in order), falling(scores[order].tolist()), strict=True))

"""Judgements: which documents answer which query, and how well. TREC files, MS MARCO's, and the TSV of BEIR folders."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from plait.errors import SourceError
from plait.evaluate.lines import lines_of
from plait.readers.lines import Line

Qrels = dict[str, dict[str, int]]  # query id -> document id -> how relevant; 0 and below is judged and not relevant

FORMS = {3: "a query id, a document id and a whole number, with tabs between", 4: "'query 0 document relevance'"}


def read_qrels(file: str | Path) -> Qrels:
    """Judgements from a TREC file (four columns) or a TSV file (three columns, perhaps with a header).

    The first line says which it is. A document that is judged twice with different results is refused.
    """
    lines = list(lines_of(file))
    return judgements(lines, file, n_columns=3 if lines and lines[0].text.count("\t") == 2 else 4)


def judgements(lines: Iterable[Line], file: str | Path, *, n_columns: int) -> Qrels:
    """The judgements in lines of three or four columns; errors name the file and the line."""
    qrels: Qrels = {}
    for line in lines:
        columns = line.text.split("\t") if n_columns == 3 else line.text.split()
        try:
            query, document, relevance = _judgement(columns, n_columns)
        except (ValueError, OverflowError):
            if n_columns == 3 and line.number == 1:
                continue  # the header
            raise SourceError(f"{file}, line {line.number}: expected {FORMS[n_columns]}; got {line.text:.60}") from None
        judged = qrels.setdefault(query, {})
        if judged.setdefault(document, relevance) != relevance:
            raise SourceError(
                f"{file}, line {line.number}: document {document!r} was judged {judged[document]} for query {query!r} "
                f"before, and is judged {relevance} here; keep one of them"
            )
    if not qrels:
        raise SourceError(f"{file} holds no judgements")
    return qrels


def _judgement(columns: list[str], n_columns: int) -> tuple[str, str, int]:
    if len(columns) != n_columns or float(columns[-1]) != int(float(columns[-1])):
        raise ValueError
    return columns[0], columns[-2], int(float(columns[-1]))


def n_without_relevant(qrels: Qrels) -> int:
    """How many queries have no relevant document: every run scores 0 for them."""
    return sum(all(relevance <= 0 for relevance in judged.values()) for judged in qrels.values())

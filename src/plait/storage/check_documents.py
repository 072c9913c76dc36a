"""Whether the documents of the catalogue and the rows of the segments tell the same story."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from plait.storage.connection import ReadTransaction
from plait.storage.deletes import not_deleted
from plait.storage.documents import digest_holds
from plait.storage.segment import Segment

BATCH = 1000  # documents whose texts are held at a time


def check_contents(segments: Mapping[int, Segment], view: ReadTransaction) -> list[str]:
    """The problems of these segments: rows without documents, documents without rows, contents that were changed.

    One pass over the documents; those of other segments are passed over.
    """
    problems = [problem for segment in segments.values() for problem in _row_problems(segment)]
    claimed = {number: np.zeros(segment.n_rows, bool) for number, segment in segments.items()}
    last, lives = -1, not_deleted(view.count("format"))
    while True:
        rows = view.rows(
            f"SELECT doc, id, title, text, metadata, digest, segment, first_row, n_rows, {lives} FROM documents"
            " WHERE doc > ? ORDER BY doc LIMIT ?",
            [last, BATCH],
        )
        if not rows:
            break
        last = rows[-1][0]
        for doc, id, title, text, metadata, digest, number, first_row, n_rows, is_alive in rows:
            if not digest_holds(id, text, title, metadata, digest):
                problems.append(f"document {id!r} does not match the digest of its content; it was changed")
            if type(first_row) is not int or type(n_rows) is not int:
                problems.append(f"document {id!r} claims rows that cannot be: {first_row!r:.50}, {n_rows!r:.50}")
            elif is_alive and number in segments:
                own = slice(first_row, first_row + n_rows)
                problems += [
                    f"document {id!r} of segment {number} {problem}"
                    for problem in _claim(segments[number], claimed[number], doc, own, len(text))
                ]
    for number, segment in segments.items():
        problems += _claim_problems(segment, claimed[number])
    return problems


def _row_problems(segment: Segment) -> list[str]:
    problems = []
    if np.any(segment.docs[1:] < segment.docs[:-1]):
        problems.append(f"segment {segment.number}: its rows are not in the order of their documents")
    if np.any(segment.starts > segment.ends):
        problems.append(f"segment {segment.number}: a passage ends before it starts")
    return problems


def _claim(segment: Segment, claimed: NDArray[np.bool_], doc: int, own: slice, n_characters: int) -> list[str]:
    """Marks the rows of a document; says what is wrong with them."""
    if not 0 <= own.start < own.stop <= segment.n_rows or np.any(segment.docs[own] != doc):
        return [f"claims rows {own.start} to {own.stop}, which are not its own"]
    claimed[own] = True
    if segment.ends[own].max() > n_characters:
        return [f"has a passage that ends beyond its text of {n_characters} characters"]
    return []


def _claim_problems(segment: Segment, claimed: NDArray[np.bool_]) -> list[str]:
    live = np.ones(segment.n_rows, bool) if segment.live is None else segment.live
    counts = {
        "live and belong to no document": int(np.sum(live & ~claimed)),
        "deleted and belong to a document": int(np.sum(claimed & ~live)),
    }
    return [f"segment {segment.number}: {count} rows are {what}" for what, count in counts.items() if count]

"""From document numbers to what people read: ids, texts and the passage that won."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate

import numpy as np

from plait.encode.chunking import with_title
from plait.records import Hit, Span
from plait.search.candidates import numbers_of
from plait.search.ranking import UNKNOWN_ROW, Ranking
from plait.storage.segment import Segment
from plait.storage.store import Snapshot, StoredDocument
from plait.text.analyser import Analyser


def load_hits(snapshot: Snapshot, query: str, ranking: Ranking) -> list[Hit]:
    """The hits of one query, best first."""
    stored = snapshot.fetch([int(doc) for doc in ranking.docs])
    by_number = {segment.number: segment for segment in snapshot.segments}
    starts = [0, *accumulate(segment.n_rows for segment in snapshot.segments)]
    hits = []
    for place, document in enumerate(stored):
        row = int(ranking.rows[place])
        if row == UNKNOWN_ROW:
            span = _span_with_most_words(by_number[document.segment], document, query, snapshot.analyser)
        else:
            which = bisect_right(starts, row) - 1
            span = _span(snapshot.segments[which], row - starts[which])
        hits.append(
            Hit(
                id=document.id,
                score=float(ranking.scores[place]),
                text=document.text,
                title=document.title,
                metadata=document.metadata,
                span=span,
                scores={name: float(part[place]) for name, part in ranking.parts.items() if not np.isnan(part[place])},
            )
        )
    return hits


def load_texts(snapshot: Snapshot, ids: Sequence[str]) -> list[str]:
    """Title and text of each document, in the order of the ids; QueryError for an id that is not in the index."""
    numbers_of(snapshot, ids)  # raises for ids that are not in the index
    numbers = snapshot.lookup(ids)
    return [with_title(document.title, document.text) for document in snapshot.fetch([numbers[id] for id in ids])]


def _span(segment: Segment, row: int) -> Span:
    return Span(int(segment.starts[row]), int(segment.ends[row]))


def _span_with_most_words(segment: Segment, document: StoredDocument, query: str, analyser: Analyser) -> Span:
    """BM25 scores whole documents, so the passage to show is the first of those that hold most of the query's words."""
    spans = list(_spans(segment, document))
    if len(spans) == 1:
        return spans[0]
    words = analyser.words(query)
    return max(spans, key=lambda span: len(words & analyser.words(document.text[span.start : span.end])))


def _spans(segment: Segment, document: StoredDocument) -> Iterator[Span]:
    for row in range(document.first_row, document.first_row + document.n_rows):
        yield _span(segment, row)

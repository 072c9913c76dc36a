"""From document numbers to hits: stored documents are fetched once for a search, with the passage to show of each."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from itertools import accumulate
from math import isnan
from typing import NamedTuple

from plait.encode.chunking import with_title
from plait.records import Hit, Passage, Span, headings_at, location_at
from plait.search.filtering import filter_candidates
from plait.search.ranking import UNKNOWN_ROW, Ranking
from plait.storage.segment import Segment
from plait.storage.snapshot import Snapshot, StoredDocument
from plait.text.analyser import Analyser


class FoundDocument(NamedTuple):
    """A stored document, and the span of the passage that was found."""

    stored: StoredDocument
    span: Span

    @property
    def passage(self) -> str:
        """The passage with its title, as cross-encoders read it."""
        return with_title(self.stored.title, self.stored.text[self.span.start : self.span.end])


def fetch_documents(snapshot: Snapshot, query: str, ranking: Ranking) -> dict[int, FoundDocument]:
    """The documents of a ranking, by number."""
    by_number = {segment.number: segment for segment in snapshot.segments}
    starts = [0, *accumulate(segment.n_rows for segment in snapshot.segments)]
    documents = {}
    for row, stored in zip(ranking.rows.tolist(), snapshot.fetch(ranking.docs.tolist()), strict=True):
        if row == UNKNOWN_ROW:
            span = _best_span(by_number[stored.segment], stored, query, snapshot.analyser)
        else:
            number = bisect_right(starts, row) - 1
            span = _span(snapshot.segments[number], row - starts[number])
        documents[stored.doc] = FoundDocument(stored, span)
    return documents


def make_hits(
    ranking: Ranking, documents: Mapping[int, FoundDocument], positions: Sequence[int] | None = None
) -> list[Hit]:
    """The hits of one query from its documents by number: all, best first, or those at some positions of its ranking,
    in this order."""
    parts = [(name, part.tolist()) for name, part in ranking.parts.items()]
    docs, scores = ranking.docs.tolist(), ranking.scores.tolist()
    hits = []
    for position in range(len(docs)) if positions is None else positions:
        doc, score = docs[position], scores[position]
        stored, span = documents[doc]
        hits.append(
            Hit(
                id=stored.id,
                score=score,
                text=stored.text,
                title=stored.title,
                metadata=stored.metadata,
                span=span,
                scores={name: values[position] for name, values in parts if not isnan(values[position])},
                passages=(Passage(stored.text[span.start : span.end], span, score),),
                headings=headings_at(stored.sections, span.start),
                location=location_at(stored.sections, stored.text, span.start),
            )
        )
    return hits


def load_hits(snapshot: Snapshot, query: str, ranking: Ranking) -> list[Hit]:
    """The hits of one query, best first."""
    return make_hits(ranking, fetch_documents(snapshot, query, ranking))


def load_texts(snapshot: Snapshot, ids: Sequence[str]) -> list[str]:
    """Title and text of each document, in the order of the ids; QueryError for an id that is not in the index."""
    filter_candidates(snapshot, ids)  # raises for ids that are not in the index
    numbers = snapshot.lookup(ids)
    return [with_title(document.title, document.text) for document in snapshot.fetch([numbers[id] for id in ids])]


def passage_spans(segment: Segment, document: StoredDocument) -> list[Span]:
    """The spans of all passages of a document of this segment."""
    return [_span(segment, row) for row in range(document.first_row, document.first_row + document.n_rows)]


def _span(segment: Segment, row: int) -> Span:
    return Span(int(segment.starts[row]), int(segment.ends[row]))


def _best_span(segment: Segment, document: StoredDocument, query: str, analyser: Analyser) -> Span:
    """For a document that was scored whole, as BM25 does: the first passage with the most words of the query."""
    spans = passage_spans(segment, document)
    if len(spans) == 1:
        return spans[0]
    words = analyser.words(query)
    return max(spans, key=lambda span: len(words & analyser.words(document.text[span.start : span.end])))

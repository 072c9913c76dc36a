"""Why a hit is a hit: the scores of a search taken apart, list by list, word by word and token by token."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from plait.encode.protocol import TermReader, TokenReader
from plait.errors import CorruptIndexError, DocumentError, InputError
from plait.records import Explanation, Hit, ScorePart, Span, TermMatch, TokenMatch, TokenMatches, WordMatch
from plait.scoring.sparse import score_rows, shared_terms
from plait.search.alignment import NO_ROW, Alignment, CodedPassage, explain_multi
from plait.search.bm25 import bm25_word_scores
from plait.search.hits import load_hits
from plait.search.ranking import UNKNOWN_ROW, QueryBatch, Ranking
from plait.search.sparse import sparse_queries
from plait.search.tokens import NOWHERE, Token, document_tokens, query_tokens
from plait.storage.segment import Segment
from plait.storage.store import Snapshot, StoredDocument
from plait.text.query_terms import count_terms

# Lists that are not made from the multi strand: other strands, and what a cross-encoder gives.
OTHER_LISTS = {"bm25", "dense", "sparse", "rerank", "anncur", "adacur", "axn", "predicted", "round"}


class Explainer:
    """Explains documents for one query of a batch, with what a plan ranked for it. `reader` knows which token each
    vector stands for; without one, vectors are told by number."""

    def __init__(
        self, snapshot: Snapshot, batch: QueryBatch, number: int, ranking: Ranking, reader: TokenReader | None
    ) -> None:
        self._snapshot, self._ranking, self._reader = snapshot, ranking, reader
        self._query, embeddings = batch.texts[number], batch.embeddings
        self._used = tuple(ranking.parts)
        # Any list that is not one of these was made from the multi strand, whatever its plan is called.
        uses_multi = any(name not in OTHER_LISTS for name in self._used)
        self._dense = embeddings.dense[number] if embeddings.dense is not None and "dense" in self._used else None
        self._sparse = sparse_queries(snapshot, batch)[number] if "sparse" in self._used else None
        self._multi = None
        if embeddings.multi is not None and uses_multi:
            self._multi = np.ascontiguousarray(embeddings.multi[number], np.float32)
            self._asked, self._query_note = query_tokens(reader, self._query, len(self._multi))

    def explained(self, hits: Sequence[Hit]) -> list[Hit]:
        """The hits of the ranking, in its order, with their explanations."""
        stored = self._snapshot.fetch([int(doc) for doc in self._ranking.docs])
        return [
            replace(hit, explanation=self._of(document, hit.span, place))
            for place, (hit, document) in enumerate(zip(hits, stored, strict=True))
        ]

    def explain(self, hit: Hit | str) -> Explanation:
        """A hit, or the document of an id, whether the ranking has it or not."""
        id = hit if isinstance(hit, str) else hit.id
        number = self._snapshot.lookup([id]).get(id)
        if number is None:
            raise DocumentError(f"there is no document {id!r} in this index, so there is nothing to explain")
        document = self._snapshot.fetch([number])[0]
        found = np.flatnonzero(self._ranking.docs == number)
        place = int(found[0]) if len(found) else None
        if isinstance(hit, Hit) and hit.span in self._spans(document):
            return self._of(document, hit.span, place)
        row = UNKNOWN_ROW if place is None else int(self._ranking.rows[place])
        if row == UNKNOWN_ROW:
            row = self._best_row(document)
        chosen = Ranking(np.array([number]), np.zeros(1, np.float32), np.array([row]))
        return self._of(document, load_hits(self._snapshot, self._query, chosen)[0].span, place)

    def _of(self, document: StoredDocument, span: Span, place: int | None) -> Explanation:
        return Explanation(
            id=document.id,
            query=self._query,
            score=None if place is None else float(self._ranking.scores[place]),
            rank=None if place is None else place + 1,
            span=span,
            parts=tuple(self._part(name, place) for name in self._used),
            multi=None if self._multi is None else self._tokens(document, span),
            dense=self._dense_score(document, place),
            bm25=self._words(document) if "bm25" in self._used else None,
            sparse=None if self._sparse is None else self._terms(document),
        )

    def _part(self, name: str, place: int | None) -> ScorePart:
        ranking = self._ranking
        if place is None or np.isnan(ranking.parts[name][place]):
            return ScorePart(name, None, None, 0.0)
        score = float(ranking.parts[name][place])
        if name not in ranking.gains:  # one list alone: nothing was fused
            return ScorePart(name, score, place + 1, 1.0)
        total = sum(float(gains[place]) for gains in ranking.gains.values())
        share = float(ranking.gains[name][place]) / total if total else 0.0
        return ScorePart(name, score, int(ranking.ranks[name][place]), share)

    # -- dense

    def _dense_score(self, document: StoredDocument, place: int | None) -> float | None:
        if self._dense is None:
            return None
        if place is not None and not np.isnan(self._ranking.parts["dense"][place]):
            return float(self._ranking.parts["dense"][place])
        return float(self._dense_scores(document).max())

    def _dense_scores(self, document: StoredDocument) -> NDArray[np.float32]:
        """Of each passage."""
        vectors = self._segment(document).dense
        assert vectors is not None
        assert self._dense is not None
        return np.asarray(vectors[document.first_row : document.first_row + document.n_rows] @ self._dense)

    # -- words

    def _words(self, document: StoredDocument) -> tuple[WordMatch, ...]:
        """The words of the query that the document holds, those that add most first."""
        held = bm25_word_scores(self._snapshot, self._query, document.doc)
        asked = [(word, term.is_prefix) for word, (term, _) in held.items()]
        counts = count_terms(document.title, document.text, asked, self._snapshot.analyser)
        found = [
            WordMatch(word, count, part.n_documents, part.idf, part.score)
            for (word, (_, part)), count in zip(held.items(), counts, strict=True)
        ]
        return tuple(sorted(found, key=lambda match: -match.score))

    # -- terms

    def _terms(self, document: StoredDocument) -> tuple[TermMatch, ...]:
        """What the query shares with the passage that this strand likes best; the products add up to its score."""
        impacts = self._segment(document).sparse
        assert impacts is not None
        assert self._sparse is not None
        rows = np.arange(document.first_row, document.first_row + document.n_rows)
        best = int(rows[np.argmax(score_rows(impacts, self._sparse, rows))])
        reader = self._reader if isinstance(self._reader, TermReader) else None
        found = [
            TermMatch(
                shared.term,
                reader.term(shared.term) if reader else "",
                shared.in_query,
                shared.in_row,
                shared.in_query * shared.in_row,
            )
            for shared in shared_terms(impacts, self._sparse, best)
        ]
        return tuple(sorted(found, key=lambda match: (-match.score, match.term)))

    # -- tokens

    def _tokens(self, document: StoredDocument, span: Span) -> TokenMatches:
        assert self._multi is not None
        row = document.first_row + self._spans(document).index(span)
        alignment = self._aligned(document, row)
        held, note = document_tokens(self._reader, document, span, self._n_vectors(document, row))
        scores = alignment.scores.astype(np.float64)
        total = float(scores.sum())
        return TokenMatches(
            score=total,
            matches=tuple(
                _match(self._asked[number], held, alignment, number, total) for number in range(len(self._multi))
            ),
            note=" ".join(filter(None, (self._query_note, note))),
        )

    def _aligned(self, document: StoredDocument, row: int) -> Alignment:
        assert self._multi is not None
        segment = self._segment(document)
        try:
            if segment.coded is not None:
                return explain_multi(self._multi, CodedPassage(segment.coded, row), floor=self._ranking.floor)
            assert segment.multi is not None
            return explain_multi(self._multi, segment.multi[row])
        except InputError as error:
            raise CorruptIndexError(
                f"the vectors of document {document.id!r} cannot be read ({error}); run plait check"
            ) from error

    def _best_row(self, document: StoredDocument) -> int:
        """The best passage by the finest strand there is, counted over all segments; UNKNOWN_ROW if there is none."""
        rows = range(document.first_row, document.first_row + document.n_rows)
        if self._multi is not None:
            best = max(rows, key=lambda row: float(self._aligned(document, row).scores.sum()))
        elif self._dense is not None:
            best = document.first_row + int(np.argmax(self._dense_scores(document)))
        else:
            return UNKNOWN_ROW
        place = self._snapshot.segments.index(self._segment(document))
        return best + sum(segment.n_rows for segment in self._snapshot.segments[:place])

    def _n_vectors(self, document: StoredDocument, row: int) -> int:
        segment = self._segment(document)
        held = segment.coded if segment.coded is not None else segment.multi
        assert held is not None
        return int(held.offsets[row + 1] - held.offsets[row])

    # -- places

    def _segment(self, document: StoredDocument) -> Segment:
        return next(segment for segment in self._snapshot.segments if segment.number == document.segment)

    def _spans(self, document: StoredDocument) -> list[Span]:
        segment, first = self._segment(document), document.first_row
        return [Span(int(segment.starts[row]), int(segment.ends[row])) for row in range(first, first + document.n_rows)]


def _match(asked: Token, held: Sequence[Token], alignment: Alignment, number: int, total: float) -> TokenMatch:
    row, similarity = int(alignment.rows[number]), float(alignment.scores[number])
    token = NOWHERE if row == NO_ROW else held[row]
    return TokenMatch(
        query=asked.surface,
        query_span=asked.span,
        token=token.surface,
        field=token.field,
        span=token.span,
        row=row,
        similarity=similarity,
        share=similarity / total if total > 0 else 0.0,
        imputed=bool(alignment.imputed[number]),
    )

"""Explanations of hits: the score by list, by word, by sparse term and by token."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from plait.checks import check_type, shown
from plait.encode.protocol import TermReader, TokenReader
from plait.errors import CorruptIndexError, DocumentError, InputError
from plait.records import Explanation, Hit, ScorePart, Span, TermMatch, TokenMatch, TokenMatches, WordMatch
from plait.scoring.sparse import score_rows, shared_terms
from plait.search.alignment import (
    NO_ROW,
    NO_TOKEN,
    Alignment,
    CodedPassage,
    Token,
    document_tokens,
    explain_multi,
    query_tokens,
)
from plait.search.bm25 import bm25_word_scores
from plait.search.hits import FoundDocument, fetch_documents, passage_spans
from plait.search.modes import find_mode, mode_names
from plait.search.query import QueryBatch, sparse_queries
from plait.search.ranking import UNKNOWN_ROW, Ranking
from plait.storage.segment import Segment
from plait.storage.store import Snapshot, StoredDocument
from plait.text.query_terms import count_terms


class Explainer:
    """Explains documents for one query of a batch, from the ranking that a plan made. `reader` knows the token of each
    vector, the names of terms, or both; without it, vectors and terms are shown by number."""

    def __init__(
        self,
        snapshot: Snapshot,
        batch: QueryBatch,
        number: int,
        ranking: Ranking,
        reader: TokenReader | TermReader | None,
    ) -> None:
        self._snapshot, self._ranking, self._statistics = snapshot, ranking, batch.statistics
        self._reader = reader if isinstance(reader, TokenReader) else None
        self._term_reader = reader if isinstance(reader, TermReader) else None
        self._query, embeddings = batch.texts[number], batch.embeddings
        self._asked = batch.asked[number] if batch.asked else None
        self._encoded = self._query if self._asked is None else self._asked.text  # its tokens have the vectors
        self._lists = tuple(ranking.parts)
        self._dense = embeddings.dense[number] if embeddings.dense is not None and "dense" in self._lists else None
        self._sparse = sparse_queries(snapshot, batch)[number] if "sparse" in self._lists else None
        self._multi = None
        if embeddings.multi is not None and any(map(_is_multi_vector, self._lists)):
            self._multi = np.ascontiguousarray(embeddings.multi[number], np.float32)
            self._query_tokens, self._query_note = query_tokens(self._reader, self._encoded, len(self._multi))

    def explain_hits(
        self, hits: Sequence[Hit], documents: Mapping[int, FoundDocument], positions: Sequence[int]
    ) -> list[Hit]:
        """The hits, which are at these positions of the ranking, with explanations; `documents` are by number."""
        docs = self._ranking.docs.tolist()
        return [
            replace(hit, explanation=self._explain(documents[docs[position]].stored, hit.span, position))
            for hit, position in zip(hits, positions, strict=True)
        ]

    def text_matches(self, document: StoredDocument, span: Span) -> TokenMatches | None:
        """The tokens of a passage, its title left out, that the tokens of the query match; None for a search without
        multi vectors."""
        return None if self._multi is None else self._tokens(document, span, text_only=True)

    def explain(self, hit: Hit | str) -> Explanation:
        """Explains a hit, or the document of an id, also if it is not in the ranking."""
        check_type("what is to be explained", hit, (str, Hit), "a hit or the id of a document", DocumentError)
        id = hit if isinstance(hit, str) else hit.id
        number = self._snapshot.lookup([id]).get(id)
        if number is None:
            raise DocumentError(f"there is no document {shown(id)} in this index, so there is nothing to explain")
        document = self._snapshot.fetch([number])[0]
        positions = np.flatnonzero(self._ranking.docs == number)
        position = int(positions[0]) if len(positions) else None
        if isinstance(hit, Hit) and hit.span in self._spans(document):
            return self._explain(document, hit.span, position)
        row = UNKNOWN_ROW if position is None else int(self._ranking.rows[position])
        if row == UNKNOWN_ROW:
            row = self._best_row(document)
        one = Ranking(np.array([number]), np.zeros(1, np.float32), np.array([row]))
        return self._explain(document, fetch_documents(self._snapshot, self._query, one)[number].span, position)

    def _explain(self, document: StoredDocument, span: Span, position: int | None) -> Explanation:
        return Explanation(
            id=document.id,
            query=self._encoded,
            score=None if position is None else float(self._ranking.scores[position]),
            rank=None if position is None else position + 1,
            span=span,
            parts=tuple(self._part(name, position) for name in self._lists),
            multi=None if self._multi is None else self._tokens(document, span),
            dense=self._dense_score(document, position),
            bm25=self._words(document) if "bm25" in self._lists else None,
            sparse=None if self._sparse is None else self._terms(document),
            conditions=() if self._asked is None else self._asked.conditions,
            corrections=()
            if self._asked is None
            else tuple((one.given, one.corrected) for one in self._asked.corrections),
        )

    def _part(self, name: str, position: int | None) -> ScorePart:
        ranking = self._ranking
        if position is None or np.isnan(ranking.parts[name][position]):
            return ScorePart(name, None, None, 0.0)
        score = float(ranking.parts[name][position])
        if name not in ranking.gains:  # a single list: nothing was fused
            return ScorePart(name, score, position + 1, 1.0)
        total = sum(float(gains[position]) for gains in ranking.gains.values())
        share = float(ranking.gains[name][position]) / total if total else 0.0
        return ScorePart(name, score, int(ranking.ranks[name][position]), share)

    # -- dense

    def _dense_score(self, document: StoredDocument, position: int | None) -> float | None:
        if self._dense is None:
            return None
        if position is not None and not np.isnan(self._ranking.parts["dense"][position]):
            return float(self._ranking.parts["dense"][position])
        return float(self._dense_scores(document).max())

    def _dense_scores(self, document: StoredDocument) -> NDArray[np.float32]:
        """The score of each passage."""
        vectors = self._segment(document).dense
        assert vectors is not None
        assert self._dense is not None
        return np.asarray(vectors[document.first_row : document.first_row + document.n_rows] @ self._dense)

    # -- words

    def _words(self, document: StoredDocument) -> tuple[WordMatch, ...]:
        """The words of the query that are in the document, those that add most first."""
        scored = bm25_word_scores(self._snapshot, self._query, document.doc, self._statistics)
        terms = [(word, term.is_prefix) for word, (term, _) in scored.items()]
        counts = count_terms(document.title, document.text, terms, self._snapshot.analyser)
        matches = [
            WordMatch(word, count, part.n_documents, part.idf, part.score)
            for (word, (_, part)), count in zip(scored.items(), counts, strict=True)
        ]
        return tuple(sorted(matches, key=lambda match: -match.score))

    # -- terms

    def _terms(self, document: StoredDocument) -> tuple[TermMatch, ...]:
        """The terms that the query shares with the best passage by sparse score; their products add up to it."""
        impacts = self._segment(document).sparse
        assert impacts is not None
        assert self._sparse is not None
        rows = np.arange(document.first_row, document.first_row + document.n_rows)
        best = int(rows[np.argmax(score_rows(impacts, self._sparse, rows))])
        reader = self._term_reader
        matches = [
            TermMatch(
                shared.term,
                reader.term(shared.term) if reader else "",
                shared.in_query,
                shared.in_row,
                shared.in_query * shared.in_row,
            )
            for shared in shared_terms(impacts, self._sparse, best)
        ]
        return tuple(sorted(matches, key=lambda match: (-match.score, match.term)))

    # -- tokens

    def _tokens(self, document: StoredDocument, span: Span, *, text_only: bool = False) -> TokenMatches:
        assert self._multi is not None
        row = document.first_row + self._spans(document).index(span)
        passage_tokens, note = document_tokens(self._reader, document, span, self._n_vectors(document, row))
        among = None
        if text_only:
            among = np.array([number for number, token in enumerate(passage_tokens) if token.field == "text"], np.int64)
        alignment = self._aligned(document, row, among)
        scores = alignment.scores.astype(np.float64)
        total = float(scores.sum())
        return TokenMatches(
            score=total,
            matches=tuple(
                _match(self._query_tokens[number], passage_tokens, alignment, number, total)
                for number in range(len(self._multi))
            ),
            note=" ".join(filter(None, (self._query_note, note))),
        )

    def _aligned(self, document: StoredDocument, row: int, among: NDArray[np.int64] | None = None) -> Alignment:
        assert self._multi is not None
        segment = self._segment(document)
        try:
            if segment.coded is not None:
                coded = CodedPassage(segment.coded, row)
                return explain_multi(self._multi, coded, floor=self._ranking.imputed, among=among)
            assert segment.multi is not None
            return explain_multi(self._multi, segment.multi[row], among=among)
        except InputError as error:
            raise CorruptIndexError(
                f"the vectors of document {document.id!r} cannot be read ({error}); run plait check"
            ) from error

    def _best_row(self, document: StoredDocument) -> int:
        """The best passage by multi vectors, else by dense vectors, as a row over all segments; else UNKNOWN_ROW."""
        rows = range(document.first_row, document.first_row + document.n_rows)
        if self._multi is not None:
            best = max(rows, key=lambda row: float(self._aligned(document, row).scores.sum()))
        elif self._dense is not None:
            best = document.first_row + int(np.argmax(self._dense_scores(document)))
        else:
            return UNKNOWN_ROW
        position = self._snapshot.segments.index(self._segment(document))
        return best + sum(segment.n_rows for segment in self._snapshot.segments[:position])

    def _n_vectors(self, document: StoredDocument, row: int) -> int:
        segment = self._segment(document)
        vectors = segment.coded if segment.coded is not None else segment.multi
        assert vectors is not None
        return int(vectors.offsets[row + 1] - vectors.offsets[row])

    # -- stored documents

    def _segment(self, document: StoredDocument) -> Segment:
        return next(segment for segment in self._snapshot.segments if segment.number == document.segment)

    def _spans(self, document: StoredDocument) -> list[Span]:
        return passage_spans(self._segment(document), document)


def _is_multi_vector(name: str) -> bool:
    """Whether the scores of a list come from multi vectors: it has the name of a mode that needs them."""
    return name in mode_names() and "multi" in find_mode(name).needs


def _match(
    query_token: Token, passage_tokens: Sequence[Token], alignment: Alignment, number: int, total: float
) -> TokenMatch:
    row, similarity = int(alignment.rows[number]), float(alignment.scores[number])
    token = NO_TOKEN if row == NO_ROW else passage_tokens[row]
    return TokenMatch(
        query=query_token.surface,
        query_span=query_token.span,
        token=token.surface,
        field=token.field,
        span=token.span,
        row=row,
        similarity=similarity,
        share=similarity / total if total > 0 else 0.0,
        imputed=bool(alignment.imputed[number]),
    )

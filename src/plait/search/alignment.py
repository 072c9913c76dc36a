"""Which vector of a passage matches each vector of a query, for float and for compressed rows; and which tokens of the
texts these vectors stand for."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from plait.codec.codebook import CentroidQuery
from plait.codec.coded_items import CodedItems
from plait.codec.residual import residual_query
from plait.embeddings import Rows
from plait.encode.chunking import with_title
from plait.encode.protocol import TokenReader
from plait.errors import InputError
from plait.records import Span
from plait.scoring.maxsim import align
from plait.scoring.residual import residual_scores
from plait.storage.snapshot import StoredDocument

NO_ROW = -1


@dataclass(frozen=True, slots=True, eq=False)
class Alignment:
    """For each row of a query: the row of the passage that matched, counted within the passage, and its score."""

    rows: NDArray[np.int64]  # (n_query,); NO_ROW if none matched
    scores: NDArray[np.float32]  # (n_query,)
    imputed: NDArray[np.bool_]  # (n_query,)


@dataclass(frozen=True, slots=True, eq=False)
class CodedPassage:
    """One item of compressed rows."""

    items: CodedItems
    item: int


def explain_multi(
    query: NDArray[np.float32],
    passage: Rows | CodedPassage,
    *,
    floor: NDArray[np.float32] | None = None,
    among: NDArray[np.int64] | None = None,
) -> Alignment:
    """The best row of a passage for each row of `query` (n_query, dim), the first of equals; of the rows `among`, if
    they are given.

    `floor` (n_query,) has the imputed score of each query row, for methods that impute: a query row whose best score is
    below it is marked as imputed, matches nothing and scores its floor. In a passage without rows nothing matches.
    """
    if among is not None and not len(among):
        rows, scores = np.full(len(query), NO_ROW, np.int64), np.zeros(len(query), np.float32)
    elif isinstance(passage, CodedPassage):
        rows, scores = _align_coded(query, passage, among)
    elif among is None:
        rows, scores = align(query, passage)
    else:
        rows, scores = align(query, np.ascontiguousarray(passage[among], np.float32))
        rows = among[rows]
    imputed = np.zeros(len(query), np.bool_)
    if floor is not None:
        if floor.shape != (len(query),):
            raise InputError(f"the floor has shape {floor.shape}; it needs one value for each of {len(query)} rows")
        imputed = (scores < floor) | (rows == NO_ROW)
        rows, scores = np.where(imputed, NO_ROW, rows), np.where(imputed, floor, scores).astype(np.float32)
    return Alignment(rows, scores, imputed)


def _align_coded(
    query: NDArray[np.float32], passage: CodedPassage, among: NDArray[np.int64] | None
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    items, begin, end = passage.items, *(int(passage.items.offsets[passage.item + add]) for add in (0, 1))
    if begin == end:
        return np.full(len(query), NO_ROW, np.int64), np.zeros(len(query), np.float32)
    codec, rows = items.codes_8bit or (items.codec, items.rows)  # the codes of the last stage of a search
    assert rows.cells is not None
    # Only the cells of the passage are scored: a table of all cells costs as much as a search.
    used_cells, centroids = rows.cells[begin:end], items.codec.codebook.centroids
    if used_cells.max() >= len(centroids):
        raise InputError(f"item {passage.item} has a row in cell {used_cells.max()}; there are {len(centroids)} cells")
    cells = CentroidQuery.of(query, items.codec.codebook)
    table = cells.table(centroids[used_cells], fine=items.codes_8bit is not None)
    positions = np.arange(end - begin)
    within = slice(begin, end)
    passage_rows = replace(
        rows,
        codes=rows.codes[within],
        cells=positions.astype(np.uint32),
        lengths=rows.lengths[within],
        factors=rows.factors[within],
    )
    coded = residual_query(query, codec, table, cells.scale)
    scores = residual_scores(coded, passage_rows, positions)[:, : len(query)]
    best = np.argmax(scores, axis=0) if among is None else among[np.argmax(scores[among], axis=0)]
    return best.astype(np.int64), np.ascontiguousarray(scores[best, np.arange(len(query))])


# -- tokens


@dataclass(frozen=True, slots=True)
class Token:
    """The token that a vector stands for; the span is within the field."""

    surface: str
    field: str  # query, title or text; empty for special tokens
    span: Span | None


NO_TOKEN = Token("", "", None)


def query_tokens(reader: TokenReader | None, query: str, n_rows: int) -> tuple[list[Token], str]:
    """The token of each of the query's vectors, and a note if they are not known."""
    if reader is None or not query:
        return [NO_TOKEN] * n_rows, "the tokens of the query are not known: its vectors were made elsewhere."
    pieces = reader.tokens(query, is_query=True)
    if len(pieces) != n_rows:
        return [NO_TOKEN] * n_rows, _count_mismatch("query", n_rows, pieces)
    return [_token_at(surface, "query", query, span) for surface, span in pieces], ""


def document_tokens(
    reader: TokenReader | None, document: StoredDocument, passage: Span, n_rows: int
) -> tuple[list[Token], str]:
    """The token of each vector of a passage, and a note if they are not known."""
    if reader is None:
        return [NO_TOKEN] * n_rows, "the tokens of the passage are not known: its vectors were made elsewhere."
    pieces = reader.tokens(with_title(document.title, document.text[passage.start : passage.end]), is_query=False)
    if len(pieces) != n_rows:
        return [NO_TOKEN] * n_rows, _count_mismatch("passage", n_rows, pieces)
    # The passage was encoded behind the title and one space.
    text_begin = len(document.title) + 1 if document.title else 0
    shift, text = passage.start - text_begin, document.text[: passage.end]
    tokens = []
    for surface, (start, end) in pieces:
        if start == end:
            tokens.append(Token(surface, "", None))
        elif end <= len(document.title):
            tokens.append(_token_at(surface, "title", document.title, Span(start, end)))
        else:
            span = Span(max(start, text_begin) + shift, end + shift)
            tokens.append(_token_at(surface, "text", text, span))
    return tokens, ""


def _token_at(surface: str, field: str, text: str, span: Span) -> Token:
    """The token at a span of `text`. Some tokenizers include the space before a word: it is left out here. Others drop
    combining marks: they are included here, so that no character is cut."""
    start, end = span
    if start == end:
        return Token(surface, "", None)
    while start < end - 1 and text[start].isspace():
        start += 1
    while end > start + 1 and text[end - 1].isspace():
        end -= 1
    while end < len(text) and unicodedata.category(text[end])[0] == "M":
        end += 1
    return Token(text[start:end], field, Span(start, end))


def _count_mismatch(what: str, n_rows: int, pieces: Sequence[object]) -> str:
    return (
        f"the {what} has {n_rows} vectors, but its tokenizer finds {len(pieces)} tokens in it: "
        f"vectors are shown by number."
    )

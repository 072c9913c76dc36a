"""The tokens behind vectors: what each row of a query or a passage stands for, and where that is in what is stored."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

from plait.encode.chunking import with_title
from plait.encode.protocol import TokenReader
from plait.records import Span
from plait.storage.store import StoredDocument


@dataclass(frozen=True, slots=True)
class Token:
    """What stands for a vector; the span is within the field."""

    surface: str
    field: str  # query, title or text; empty where it stands in none
    span: Span | None


NOWHERE = Token("", "", None)


def query_tokens(reader: TokenReader | None, query: str, n_rows: int) -> tuple[list[Token], str]:
    """A token for each of the query's vectors, and what to say where they are not known."""
    if reader is None or not query:
        return [NOWHERE] * n_rows, "the tokens of the query are not known: its vectors were made elsewhere."
    pieces = reader.tokens(query, is_query=True)
    if len(pieces) != n_rows:
        return [NOWHERE] * n_rows, _disagreeing("query", n_rows, pieces)
    return [_placed(surface, "query", query, span) for surface, span in pieces], ""


def document_tokens(
    reader: TokenReader | None, document: StoredDocument, passage: Span, n_rows: int
) -> tuple[list[Token], str]:
    """A token for each vector of a passage, and what to say where they are not known."""
    if reader is None:
        return [NOWHERE] * n_rows, "the tokens of the passage are not known: its vectors were made elsewhere."
    pieces = reader.tokens(with_title(document.title, document.text[passage.start : passage.end]), is_query=False)
    if len(pieces) != n_rows:
        return [NOWHERE] * n_rows, _disagreeing("passage", n_rows, pieces)
    # The passage was encoded behind the title and one space.
    begins = len(document.title) + 1 if document.title else 0
    shift, text = passage.start - begins, document.text[: passage.end]
    tokens = []
    for surface, (start, end) in pieces:
        if start == end:
            tokens.append(Token(surface, "", None))
        elif end <= len(document.title):
            tokens.append(_placed(surface, "title", document.title, Span(start, end)))
        else:
            span = Span(max(start, begins) + shift, end + shift)
            tokens.append(_placed(surface, "text", text, span))
    return tokens, ""


def _placed(surface: str, field: str, text: str, span: Span) -> Token:
    """A token at a span of `text`. Some tokenisers count the space before a word as part of it: here it is not. Others
    drop the marks of a letter: here they stay with it, so that no character is cut."""
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


def _disagreeing(what: str, n_rows: int, pieces: Sequence[object]) -> str:
    return (
        f"the {what} has {n_rows} vectors, but its tokeniser reads {len(pieces)} tokens in it: "
        f"vectors are told by number."
    )

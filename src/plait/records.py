"""The words that every part shares: a document that goes in, a span of it, and a hit that comes out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

Metadata = Mapping[str, Any]  # what JSON can hold


class Span(NamedTuple):
    """A stretch of a text, in characters; `end` is not part of it."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Document:
    """A text with an id. The title, if any, is encoded with every passage of the text."""

    id: str
    text: str
    title: str = ""
    metadata: Metadata = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Hit:
    """One document that was found, with the passage that won and its score in each strand that scored it."""

    id: str
    score: float
    text: str
    title: str
    metadata: Metadata
    span: Span  # the passage that won, within `text`
    scores: Mapping[str, float]  # by strand: dense, sparse, multi, bm25

    @property
    def passage(self) -> str:
        """The text of the passage that won."""
        return self.text[self.span.start : self.span.end]

"""The one record of training data. Every reader gives it, mining rewrites it, the pool keeps it."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from plait.errors import InputError


@dataclass(frozen=True, slots=True)
class Passage:
    """A text, and the id it has in its corpus if it has one. Two passages are the same if their texts are."""

    text: str
    id: str = ""


@dataclass(frozen=True, slots=True)
class Example:
    """A query with passages that answer it and passages that do not; a bare text has neither.

    Teacher scores, where there are any, are one for each passage, positives and negatives alike.
    """

    query: str
    positives: tuple[Passage, ...] = ()
    negatives: tuple[Passage, ...] = ()
    positive_scores: tuple[float, ...] | None = None
    negative_scores: tuple[float, ...] | None = None
    source: str = ""

    def __post_init__(self) -> None:
        if not self.query.strip():
            raise InputError("the query is empty")
        if any(not passage.text.strip() for passage in (*self.positives, *self.negatives)):
            raise InputError("a passage is empty")
        _check_scores("positive", self.positives, self.positive_scores)
        _check_scores("negative", self.negatives, self.negative_scores)
        if (self.positive_scores is None) != (self.negative_scores is None) and self.negatives and self.positives:
            raise InputError("there are scores for the positives or the negatives alone; give both or neither")


def _check_scores(kind: str, passages: tuple[Passage, ...], scores: tuple[float, ...] | None) -> None:
    if scores is not None and len(scores) != len(passages):
        raise InputError(f"there are {len(scores)} {kind} scores for {len(passages)} {kind} passages")


def digest(text: str) -> bytes:
    """What tells two texts apart: 16 bytes of SHA-256 of the text with its runs of white space made single."""
    return hashlib.sha256(" ".join(text.split()).encode()).digest()[:16]

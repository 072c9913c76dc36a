"""The record of training data: readers produce it, mining changes its negatives, the example store saves it."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from plait.errors import InputError


@dataclass(frozen=True, slots=True)
class Passage:
    """A text, and its id in its corpus if it has one. Two passages are the same if their texts are."""

    text: str
    id: str = ""


@dataclass(frozen=True, slots=True)
class Example:
    """A query with passages that answer it and passages that do not; a text without labels is a query without passages.

    Teacher scores are one for each passage, for positives and negatives alike, or None.
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
            raise InputError("only the positives or only the negatives have scores; give scores to both or to neither")


def _check_scores(kind: str, passages: tuple[Passage, ...], scores: tuple[float, ...] | None) -> None:
    if scores is not None and len(scores) != len(passages):
        raise InputError(f"there are {len(scores)} {kind} scores for {len(passages)} {kind} passages")


def digest(text: str) -> bytes:
    """Identifies a text: 16 bytes of the SHA-256 of the text with each run of white space made one space."""
    return hashlib.sha256(" ".join(text.split()).encode()).digest()[:16]

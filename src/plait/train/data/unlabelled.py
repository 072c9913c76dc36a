"""Texts without labels: alone for RetroMAE, or as pairs that a document makes by itself (its title and its text, a
sentence and the next one)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from plait.readers import documents_from
from plait.train.data.example import Example, Passage
from plait.train.data.texts import titled

# An end of a sentence: a mark and white space after it, or a full stop of a script that has no spaces.
_SENTENCE_END = re.compile(r"(?<=[.!?…])\s+|(?<=[。！？])\s*|\n+")
_SHORTEST = 20  # characters; shorter "sentences" are headings and abbreviations, which pair with nothing


def read_texts(source: Path) -> Iterator[Example]:
    """Every document of a source, title first, as a query without passages."""
    for document in documents_from([source]):
        yield Example(titled(document.title, document.text))


def read_titles(source: Path) -> Iterator[Example]:
    """The title of each document asks for its text; documents without a title are passed over."""
    for document in documents_from([source]):
        if document.title.strip():
            yield Example(document.title, (Passage(document.text, document.id),))


def read_adjacent(source: Path) -> Iterator[Example]:
    """Each sentence of a document asks for the next one; every sentence is in one pair at most."""
    for document in documents_from([source]):
        sentences = [part.strip() for part in _SENTENCE_END.split(document.text)]
        sentences = [sentence for sentence in sentences if len(sentence) >= _SHORTEST]
        for first, second in zip(sentences[::2], sentences[1::2], strict=False):
            yield Example(first, (Passage(second),))

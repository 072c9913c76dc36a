"""Queries to tune with. Those of the user are best; where there are none they are made from the corpus, either of words
that the index's encoder reads or of stored rows. Random, and the same for the same seed and state.

Made-up queries leave out the document that they were drawn from: finding that is no test of anything.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from plait.codec.train import add_noise, draw_neighbouring_rows
from plait.embeddings import MultiVectors
from plait.errors import InputError
from plait.storage.merge import Block, Part
from plait.storage.store import Snapshot

NO_SOURCE = -1
FEWEST_WORDS, MOST_WORDS = 3, 7
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+")
_MARKS = re.compile(r"[^\w\s'-]+")


@dataclass(frozen=True, slots=True, eq=False)
class Queries:
    """Queries with the document that each was drawn from, which does not count; NO_SOURCE where there is none."""

    kind: str  # "given", "words" or "rows"
    rows: Sequence[NDArray[np.float32]]
    sources: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.rows)

    def some(self, numbers: slice) -> Queries:
        return Queries(self.kind, self.rows[numbers], self.sources[numbers])

    @classmethod
    def of(cls, kind: str, multi: MultiVectors | None, sources: Sequence[int] | None = None) -> Queries:
        """From what an encoder gave."""
        if multi is None:
            raise InputError("the queries have no multi strand; tuning needs an encoder or arrays that have one")
        rows = [np.ascontiguousarray(multi[number], dtype=np.float32) for number in range(len(multi))]
        drawn_from = np.full(len(rows), NO_SOURCE, np.int64) if sources is None else np.asarray(sources, np.int64)
        return cls(kind, rows, drawn_from)


def from_rows(snapshot: Snapshot, n_queries: int, *, seed: int) -> Queries:
    """Queries of stored rows, each of another passage while there are enough."""
    rng = np.random.default_rng(seed)
    parts = [Part.of(segment) for segment in snapshot.segments]
    sizes = np.asarray([len(part.rows) for part in parts])
    ends = np.cumsum(sizes)
    rows, sources = [], []
    n_passages = int(ends[-1]) if len(ends) else 0
    order = rng.permutation(n_passages)
    for place in np.resize(order, 2 * max(n_queries, n_passages) if n_passages else 0):
        number = int(np.searchsorted(ends, place, side="right"))
        part, row = parts[number], int(place - (ends[number] - sizes[number]))
        n_vectors = int(part.ends[row] - part.begins[row])
        if not n_vectors:
            continue
        run = draw_neighbouring_rows(n_vectors, rng)
        vectors = np.arange(part.begins[row] + run.start, part.begins[row] + run.stop)
        whole = np.array([0, len(vectors)])
        rows.append(add_noise(Block(part.segment, vectors, whole, None).floats(), rng))
        sources.append(int(part.segment.docs[part.rows[row]]))
        if len(rows) == n_queries:
            break
    return Queries("rows", rows, np.asarray(sources, np.int64))


def words_of_documents(snapshot: Snapshot, n_queries: int, *, seed: int) -> dict[int, str]:
    """Texts like queries, by document: a few words of one of its sentences. None for documents without words."""
    rng = np.random.default_rng(seed)
    parts = [Part.of(segment) for segment in snapshot.segments]
    docs = np.unique(np.concatenate([part.segment.docs[part.rows] for part in parts] or [np.zeros(0, np.int64)]))
    drawn = rng.choice(docs, min(n_queries, len(docs)), replace=False)
    found = {document.doc: few_words(document.text, rng) for document in snapshot.fetch([int(doc) for doc in drawn])}
    return {doc: text for doc, text in found.items() if text}


def few_words(text: str, rng: np.random.Generator) -> str:
    """Some words of one of its sentences, in their order; empty for a text without words."""
    sentences = [words for part in _SENTENCE_END.split(text) if len(words := _words(part)) >= FEWEST_WORDS]
    words = sentences[int(rng.integers(len(sentences)))] if sentences else _words(text)
    n_words = min(int(rng.integers(FEWEST_WORDS, MOST_WORDS + 1)), len(words))
    kept = sorted(rng.choice(len(words), n_words, replace=False).tolist()) if words else []
    return " ".join(words[place] for place in kept)


def _words(text: str) -> list[str]:
    return _MARKS.sub(" ", text).split()[:200]

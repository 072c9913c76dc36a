"""Queries to tune with: the caller's, which are best, or synthetic ones, made of words of the documents or of stored
vectors. Random, and the same for the same seed and commit.

The document that a synthetic query was drawn from does not count as an answer: finding it would be no test.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from plait.codec.train import add_noise, draw_neighbouring_rows
from plait.embeddings import Embeddings, MultiVectors
from plait.encode.load import EXTERNAL
from plait.encode.protocol import Encoder
from plait.errors import InputError, QueryError
from plait.storage.merge import LiveRows, VectorBlock
from plait.storage.store import Snapshot

NO_SOURCE = -1
MIN_QUERIES = 10
# By default at most MAX_DEFAULT_QUERIES, and fewer for a large index, so that exhaustive search for the true answers
# scores MAX_SCORED vectors at most, which takes about a minute. The number depends on the size of the index alone.
MIN_DEFAULT_QUERIES, MAX_DEFAULT_QUERIES = 64, 200
MAX_SCORED = 800_000_000
MIN_WORDS, MAX_WORDS = 3, 7
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+")
_MARKS = re.compile(r"[^\w\s'-]+")


@dataclass(frozen=True, slots=True, eq=False)
class Queries:
    """Queries with the document that each was drawn from; NO_SOURCE for queries of the caller."""

    kind: str  # "given", "words" or "rows"
    rows: Sequence[NDArray[np.float32]]
    sources: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.rows)

    def select(self, numbers: slice) -> Queries:
        return Queries(self.kind, self.rows[numbers], self.sources[numbers])

    @classmethod
    def of(cls, kind: str, multi: MultiVectors | None, sources: Sequence[int] | None = None) -> Queries:
        """From embeddings that an encoder made."""
        if multi is None:
            raise InputError("the queries have no multi vectors; tune with an encoder or embeddings that have them")
        rows = [np.ascontiguousarray(multi[number], dtype=np.float32) for number in range(len(multi))]
        drawn_from = np.full(len(rows), NO_SOURCE, np.int64) if sources is None else np.asarray(sources, np.int64)
        return cls(kind, rows, drawn_from)


def from_rows(snapshot: Snapshot, n_queries: int, *, seed: int) -> Queries:
    """Queries of stored vectors, each of another passage while there are enough."""
    rng = np.random.default_rng(seed)
    parts = [LiveRows.of(segment) for segment in snapshot.segments]
    sizes = np.asarray([len(part.rows) for part in parts])
    ends = np.cumsum(sizes)
    rows, sources = [], []
    n_passages = int(ends[-1]) if len(ends) else 0
    order = rng.permutation(n_passages)
    for position in np.resize(order, 2 * max(n_queries, n_passages) if n_passages else 0):
        number = int(np.searchsorted(ends, position, side="right"))
        part, row = parts[number], int(position - (ends[number] - sizes[number]))
        n_vectors = int(part.ends[row] - part.begins[row])
        if not n_vectors:
            continue
        run = draw_neighbouring_rows(n_vectors, rng)
        vectors = np.arange(part.begins[row] + run.start, part.begins[row] + run.stop)
        whole = np.array([0, len(vectors)])
        rows.append(add_noise(VectorBlock(part.segment, vectors, whole, None).floats(), rng))
        sources.append(int(part.segment.docs[part.rows[row]]))
        if len(rows) == n_queries:
            break
    return Queries("rows", rows, np.asarray(sources, np.int64))


def words_of_documents(snapshot: Snapshot, n_queries: int, *, seed: int) -> dict[int, str]:
    """Texts like queries, by document: a few words of one of its sentences; documents without words are left out."""
    rng = np.random.default_rng(seed)
    parts = [LiveRows.of(segment) for segment in snapshot.segments]
    docs = np.unique(np.concatenate([part.segment.docs[part.rows] for part in parts] or [np.zeros(0, np.int64)]))
    drawn = rng.choice(docs, min(n_queries, len(docs)), replace=False)
    texts = {document.doc: few_words(document.text, rng) for document in snapshot.fetch([int(doc) for doc in drawn])}
    return {doc: text for doc, text in texts.items() if text}


def few_words(text: str, rng: np.random.Generator) -> str:
    """A few words of one of the sentences, in order; empty for a text without words."""
    sentences = [words for part in _SENTENCE_END.split(text) if len(words := _words(part)) >= MIN_WORDS]
    words = sentences[int(rng.integers(len(sentences)))] if sentences else _words(text)
    n_words = min(int(rng.integers(MIN_WORDS, MAX_WORDS + 1)), len(words))
    positions = sorted(rng.choice(len(words), n_words, replace=False).tolist()) if words else []
    return " ".join(words[position] for position in positions)


def _words(text: str) -> list[str]:
    return _MARKS.sub(" ", text).split()[:200]


def default_n_queries(snapshot: Snapshot) -> int:
    n_vectors = sum(len(segment.coded.rows.codes) for segment in snapshot.segments if segment.coded is not None)
    return min(MAX_DEFAULT_QUERIES, max(MIN_DEFAULT_QUERIES, MAX_SCORED // max(n_vectors, 1)))


def tuning_queries(
    snapshot: Snapshot,
    fingerprint: str,
    encoder: Callable[[], Encoder],
    given: Sequence[str] | Embeddings | Queries | None,
    n_queries: int,
    seed: int,
) -> Queries:
    """`n_queries` of the given ones, else synthetic ones: of words if the index has an encoder, else of vectors."""
    if isinstance(given, Embeddings):
        given = Queries.of("given", snapshot.projected(given).multi)
    if isinstance(given, Queries):
        _check_queries(given, snapshot)
        drawn = _draw(len(given), n_queries, seed)
        return Queries(given.kind, [given.rows[number] for number in drawn], given.sources[drawn])
    if given is not None:
        texts = [given[number] for number in _draw(len(given), n_queries, seed)]
        for text in texts:
            if not isinstance(text, str) or not text.strip():
                raise QueryError(f"a query to tune with is {text!r:.60}; each must be text")
        if len(texts) < MIN_QUERIES:
            raise InputError(f"{len(texts)} queries are too few to tune with; give {MIN_QUERIES} or more")
        return Queries.of("given", snapshot.projected(encoder().encode_queries(texts)).multi)
    if fingerprint != EXTERNAL:
        words = words_of_documents(snapshot, n_queries, seed=seed)
        if len(words) >= MIN_QUERIES:
            encoded = snapshot.projected(encoder().encode_queries(list(words.values())))
            return Queries.of("words", encoded.multi, list(words))
    return from_rows(snapshot, n_queries, seed=seed)


def _check_queries(queries: Queries, snapshot: Snapshot) -> None:
    for number, rows in enumerate(queries.rows):
        if not len(rows) or rows.shape[1] != snapshot.spec.multi or not np.isfinite(rows).all():
            raise InputError(
                f"query {number} has shape {rows.shape}; it needs rows of {snapshot.spec.multi} finite values"
            )


def _draw(n_available: int, n_wanted: int, seed: int) -> list[int]:
    """At most `n_wanted` numbers in random order, so that both halves are alike."""
    return [int(number) for number in np.random.default_rng(seed).permutation(n_available)[:n_wanted]]

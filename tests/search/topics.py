"""Compressed items with the structure of texts: topics share words, words have senses, common words are everywhere."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

import reference
from plait.codec import kmeans
from plait.codec.assign import NearestCentroids
from plait.codec.codebook import Codebook
from plait.codec.coded_items import CodedItems, Postings
from plait.codec.residual import ResidualCodec
from plait.embeddings import MultiVectors
from plait.search.multivector.query import MultiVectorQuery

DIM, N_TOPICS, N_WORDS = 32, 30, 240


def unit(rows: NDArray[np.floating]) -> NDArray[np.float32]:
    return np.asarray(rows / np.linalg.norm(rows, axis=-1, keepdims=True), np.float32)


class Corpus:
    """Items of a topic or two. The vector of a word is near the topic of its item."""

    def __init__(self, n_items: int = 600, *, longest: int = 14, seed: int = 0) -> None:
        self._rng = rng = np.random.default_rng(seed)
        self._words = rng.standard_normal((N_WORDS, DIM))
        self._topics = rng.standard_normal((N_TOPICS, DIM))
        rarity = 1 / np.arange(1, N_WORDS + 1)
        self._habits = np.array([rng.permutation(rarity) + 0.3 * rarity for _ in range(N_TOPICS)])
        self._habits /= self._habits.sum(axis=1, keepdims=True)
        self.documents = MultiVectors.from_items(
            [self._text(int(rng.integers(N_TOPICS)), int(rng.integers(1, longest))) for _ in range(n_items)]
        )

    def queries(self, n_queries: int, n_rows: int = 8) -> list[NDArray[np.float32]]:
        return [self._text(int(self._rng.integers(N_TOPICS)), n_rows) for _ in range(n_queries)]

    def _text(self, topic: int, n_rows: int) -> NDArray[np.float32]:
        words = self._rng.choice(N_WORDS, n_rows, p=self._habits[topic])
        context = self._rng.standard_normal((1, DIM))
        own = 0.35 * self._rng.standard_normal((n_rows, DIM))
        return unit(self._words[words] + 0.6 * self._topics[topic] + 0.25 * context + own)


def coded(documents: MultiVectors, *, bits: int = 4, n_cells: int = 64, keep_8bit: bool = False) -> CodedItems:
    rows = documents.values.astype(np.float32)
    means = kmeans.train(rows, min(n_cells, len(rows)))
    cells = NearestCentroids(means).assign(rows)
    codebook = Codebook.rounded(means)
    codec, second = (ResidualCodec.fit(codebook, size, rows, cells) for size in (bits, 8))
    stored = codec.encode(rows, cells)
    assert stored.cells is not None
    postings = Postings.of(stored.cells, documents.offsets, len(codebook))
    both = (second, second.encode(rows, cells)) if keep_8bit else None
    return CodedItems(codec, stored, documents.offsets, postings, codes_8bit=both)


def decoded(asked: MultiVectorQuery, *, lengths: bool = True) -> reference.DecodedItems:
    """The decoded rows, as the reference methods take them; without `lengths`, rows are not scaled to their lengths."""
    items = asked.items
    assert items.rows.cells is not None
    codec = items.codec
    if not lengths:
        codec = ResidualCodec(codec.codebook, codec.bits, codec.steps, codec.lengths, np.ones(256, np.float32))
    scores = (asked.table[:, : len(asked.query)] * asked.scale).astype(np.float32)
    return reference.DecodedItems(scores, items.rows.cells, codec.decode(items.rows), items.owners, len(items))

"""A tiny encoder for tests: each word has a fixed random unit vector, and a text is encoded from its words. It needs no
model and no files, and gives the same values on every machine."""

from __future__ import annotations

import re
import zlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from plait.embeddings import Embeddings, MultiVectors, SparseVectors
from plait.encode.protocol import EmbeddingSpec, OnBatch
from plait.records import Span

WORD = re.compile(r"\w+")


@dataclass(frozen=True)
class WordWindows:
    """Passages of at most `window` words."""

    window: int
    overlap: int

    def split(self, title: str, text: str) -> list[Span]:
        del title
        words = list(WORD.finditer(text))
        if len(words) <= self.window:
            return [Span(0, len(text))]
        starts = list(range(0, len(words) - self.overlap, self.window - self.overlap))
        cuts = [0, *(words[start].start() for start in starts[1:])]
        ends = [words[min(start + self.window, len(words)) - 1].end() for start in starts[:-1]]
        return [Span(start, end) for start, end in zip(cuts, [*ends, len(text)], strict=True)]


class WordEncoder:
    """Dense: the normalized mean of the word vectors. Multi: the word vectors. Passages have at most `window` words.

    With `terms`, also sparse: term ids of words are below `terms`, and the weight of a word is its length / 4.
    """

    def __init__(
        self, *, dim: int = 16, window: int = 50, overlap: int = 10, name: str = "words", terms: int | None = None
    ) -> None:
        self._dim, self._terms = dim, terms
        self.chunker = WordWindows(window, overlap)
        self.name = name
        self._words: dict[int, str] = {}
        self._vectors: dict[str, NDArray[np.float32]] = {}
        self.n_encoded = 0  # how many texts were encoded: for tests of what is skipped

    @property
    def fingerprint(self) -> str:
        return f"{self.name}-{self._dim}"

    @property
    def spec(self) -> EmbeddingSpec:
        return EmbeddingSpec(dense=self._dim, sparse=self._terms, multi=self._dim)

    def tokens(self, text: str, *, is_query: bool) -> list[tuple[str, Span]]:
        del is_query
        return [(match[0], Span(*match.span())) for match in WORD.finditer(text)] or [("", Span(0, 0))]

    def term(self, id: int) -> str:
        return self._words.get(id, f"#{id}")

    def encode_queries(self, texts: Sequence[str]) -> Embeddings:
        return self._encode(texts)

    def encode_documents(self, texts: Sequence[str], *, on_batch: OnBatch | None = None) -> Embeddings:
        self.n_encoded += len(texts)
        if on_batch is not None:
            on_batch(len(texts), len(texts))
        return self._encode(texts)

    def _encode(self, texts: Sequence[str]) -> Embeddings:
        rows = [self._rows(text) for text in texts]
        dense = [unit(item_rows.sum(axis=0)) for item_rows in rows]
        return Embeddings(
            dense=np.array(dense, np.float32).reshape(len(texts), self._dim),
            sparse=None if self._terms is None else SparseVectors.from_items([self._weights(text) for text in texts]),
            multi=MultiVectors.from_items(rows, dim=self._dim),
        )

    def _weights(self, text: str) -> dict[int, float]:
        assert self._terms is not None
        weights = {}
        for word in {name.casefold() for name in WORD.findall(text)}:
            number = zlib.crc32(word.encode()) % self._terms
            self._words[number] = word
            weights[number] = len(word) / 4
        return weights

    def _rows(self, text: str) -> NDArray[np.float32]:
        words = [word.casefold() for word in WORD.findall(text)] or [""]
        return np.array([self._vector(word) for word in words], np.float32)

    def _vector(self, word: str) -> NDArray[np.float32]:
        if word not in self._vectors:
            self._vectors[word] = unit(np.random.default_rng(zlib.crc32(word.encode())).standard_normal(self._dim))
        return self._vectors[word]


def unit(vector: NDArray[np.floating]) -> NDArray[np.float32]:
    return (vector / max(float(np.linalg.norm(vector)), 1e-9)).astype(np.float32)

"""Encoders and rerankers whose calls are batched across requests. They stand for the real ones in indexes and searches,
so that a search through the server does what it does in the library."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from plait.embeddings import Embeddings, MultiVectors, SparseVectors
from plait.encode.protocol import EmbeddingSpec, Encoder, OnBatch, TermReader, TokenReader
from plait.records import Span
from plait.rerank.cross_encoder import PairScorer
from plait.rerank.pairs import Pair
from plait.serve.config import Batching
from plait.serve.runtime.batching import Batcher, ComputeSlots
from plait.serve.runtime.metrics import Metrics

QUERY, DOCUMENT, PAIR = "query", "document", "pair"
SHORT_CHARACTERS = 500  # a query of at most these waits for no longer text, which may take forty times as long


@dataclass(frozen=True, slots=True)
class BatcherMaker:
    """What the batchers of one worker have in common."""

    batching: Batching
    slots: ComputeSlots
    in_flight: Callable[[], int]
    metrics: Metrics

    def encoder(self, name: str, encoder: Encoder) -> BatchingEncoder:
        short, long = self._texts(name, encoder, (QUERY,)), self._texts(name, encoder, (QUERY, DOCUMENT))
        readable = isinstance(encoder, TokenReader) and isinstance(encoder, TermReader)
        return (BatchingReader if readable else BatchingEncoder)(name, encoder, short, long)

    def _texts(self, name: str, encoder: Encoder, kinds: Sequence[str]) -> Batcher[str]:
        return Batcher(
            name,
            partial(_encode, encoder),
            kinds=kinds,
            size=len,
            max_items=self.batching.max_texts,
            wait_seconds=self.batching.wait_ms / 1000,
            max_waiting=self.batching.max_waiting,
            slots=self.slots,
            in_flight=self.in_flight,
            metrics=self.metrics,
        )

    def scorer(self, name: str, scorer: PairScorer) -> BatchingScorer:
        batcher: Batcher[Pair] = Batcher(
            name,
            partial(_score, scorer),
            kinds=(PAIR,),
            size=lambda pair: len(pair[0]) + len(pair[1]),
            max_items=self.batching.max_pairs,
            wait_seconds=self.batching.wait_ms / 1000,
            max_waiting=self.batching.max_waiting,
            slots=self.slots,
            in_flight=self.in_flight,
            metrics=self.metrics,
        )
        return BatchingScorer(name, scorer, batcher)


class BatchingEncoder:
    """An encoder whose calls wait for a batch. Short queries have batches of their own: while a long text is read, they
    share the processors with it and do not wait for its end."""

    def __init__(self, name: str, encoder: Encoder, short: Batcher[str], long: Batcher[str]) -> None:
        self.name, self.inner, self._short, self._long = name, encoder, short, long

    @property
    def fingerprint(self) -> str:
        return self.inner.fingerprint

    @property
    def spec(self) -> EmbeddingSpec:
        return self.inner.spec

    @property
    def chunker(self) -> Any:
        return getattr(self.inner, "chunker", None)

    def encode_queries(self, texts: Sequence[str]) -> Embeddings:
        return self._call(QUERY, texts)

    def encode_documents(self, texts: Sequence[str], *, on_batch: OnBatch | None = None) -> Embeddings:
        embeddings = self._call(DOCUMENT, texts)
        if on_batch is not None:
            on_batch(len(texts), len(texts))
        return embeddings

    def close(self) -> None:
        self._short.close()
        self._long.close()

    def _call(self, kind: str, texts: Sequence[str]) -> Embeddings:
        if not texts:
            return self.inner.encode_queries(texts) if kind == QUERY else self.inner.encode_documents(texts)
        is_short = kind == QUERY and max(map(len, texts)) <= SHORT_CHARACTERS
        return join((self._short if is_short else self._long).call(kind, texts))


class BatchingReader(BatchingEncoder):
    """The same for an encoder that can name tokens and terms, as explanations need."""

    def tokens(self, text: str, *, is_query: bool) -> list[tuple[str, Span]]:
        assert isinstance(self.inner, TokenReader)
        return self.inner.tokens(text, is_query=is_query)

    def term(self, number: int) -> str:
        assert isinstance(self.inner, TermReader)
        return self.inner.term(number)


class BatchingScorer:
    """A cross-encoder whose calls wait for a batch."""

    def __init__(self, name: str, scorer: PairScorer, batcher: Batcher[Pair]) -> None:
        self.name, self.inner, self._batcher = name, scorer, batcher

    @property
    def fingerprint(self) -> str:
        return self.inner.fingerprint

    def score(
        self, pairs: Sequence[Pair], *, on_batch: Callable[[int, int], None] | None = None
    ) -> NDArray[np.float32]:
        if not len(pairs):
            return np.zeros(0, np.float32)
        scores = np.concatenate(self._batcher.call(PAIR, pairs))
        if on_batch is not None:
            on_batch(len(pairs), len(pairs))
        return scores

    def close(self) -> None:
        self._batcher.close()


def _encode(encoder: Encoder, kind: str, pieces: list[Sequence[str]]) -> list[Embeddings]:
    texts = [text for piece in pieces for text in piece]
    embeddings = encoder.encode_queries(texts) if kind == QUERY else encoder.encode_documents(texts)
    bounds = list(accumulate(map(len, pieces), initial=0))
    return [part(embeddings, begin, end) for begin, end in pairwise(bounds)]


def _score(scorer: PairScorer, kind: str, pieces: list[Sequence[Pair]]) -> list[NDArray[np.float32]]:
    del kind
    scores = scorer.score([pair for piece in pieces for pair in piece])
    return np.split(scores, np.cumsum([len(piece) for piece in pieces])[:-1])


def part(embeddings: Embeddings, begin: int, end: int) -> Embeddings:
    """The items from `begin` to `end`; how many of them were truncated is not known, and given as 0."""
    dense, sparse, multi = embeddings.dense, embeddings.sparse, embeddings.multi
    return Embeddings(
        dense=None if dense is None else dense[begin:end],
        sparse=None if sparse is None else sparse.take(range(begin, end)),
        multi=None if multi is None else multi.take(range(begin, end)),
    )


def join(parts: Sequence[Embeddings]) -> Embeddings:
    """The items of all parts, in order."""
    if len(parts) == 1:
        return parts[0]
    dense = [one.dense for one in parts if one.dense is not None]
    sparse = [one.sparse for one in parts if one.sparse is not None]
    multi = [one.multi for one in parts if one.multi is not None]
    return Embeddings(
        dense=np.concatenate(dense) if dense else None,
        sparse=SparseVectors(
            np.concatenate([one.terms for one in sparse]),
            np.concatenate([one.weights for one in sparse]),
            _joined_offsets([one.offsets for one in sparse]),
        )
        if sparse
        else None,
        multi=MultiVectors(
            np.concatenate([one.values for one in multi]), _joined_offsets([one.offsets for one in multi])
        )
        if multi
        else None,
    )


def _joined_offsets(offsets: Sequence[NDArray[np.int64]]) -> NDArray[np.int64]:
    lengths = np.concatenate([np.diff(one) for one in offsets])
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)]).astype(np.int64)

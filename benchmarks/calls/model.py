"""One model for every library: the dense vectors of plait's default model. It counts the texts that it encodes, so that
a task which must not encode again can be checked."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import plait
from plait import Embeddings, EmbeddingSpec, Encoder
from plait.encode.chunking import Chunker
from plait.encode.protocol import OnBatch


class CountingEncoder:
    """plait's default model, for `plait.open`; `n_encoded` is the number of texts so far."""

    def __init__(self) -> None:
        self._encoder: Encoder = plait.load_model()
        self.n_encoded = 0

    @property
    def fingerprint(self) -> str:
        return self._encoder.fingerprint

    @property
    def spec(self) -> EmbeddingSpec:
        return self._encoder.spec

    @property
    def chunker(self) -> Chunker:
        chunker: Chunker = getattr(self._encoder, "chunker")  # noqa: B009 - not a part of the protocol
        return chunker

    def encode_queries(self, texts: Sequence[str]) -> Embeddings:
        self.n_encoded += len(texts)
        return self._encoder.encode_queries(texts)

    def encode_documents(self, texts: Sequence[str], *, on_batch: OnBatch | None = None) -> Embeddings:
        self.n_encoded += len(texts)
        return self._encoder.encode_documents(texts, on_batch=on_batch)


@functools.cache
def encoder() -> CountingEncoder:
    return CountingEncoder()


def embed_documents(texts: Sequence[str]) -> list[list[float]]:
    """The dense vectors of documents, as lists: what the other libraries take."""
    return _dense(encoder().encode_documents(texts))


def embed_queries(texts: Sequence[str]) -> list[list[float]]:
    return _dense(encoder().encode_queries(texts))


def embed_document(text: str) -> list[float]:
    return embed_documents([text])[0]


def embed_query(text: str) -> list[float]:
    return embed_queries([text])[0]


def n_dims() -> int:
    n_dims = encoder().spec.dense
    assert n_dims is not None, "plait's default model has dense vectors"
    return n_dims


def transform(data: Sequence[str]) -> list[list[float]]:
    """For txtai, which has one function for queries and documents."""
    return embed_documents(list(data))


def _dense(embeddings: Embeddings) -> list[list[float]]:
    assert embeddings.dense is not None, "plait's default model has dense vectors"
    vectors: list[list[float]] = embeddings.dense.tolist()
    return vectors

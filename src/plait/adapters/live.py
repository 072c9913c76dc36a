"""`LiveEncoder`: what plait adds to a model that another library runs: batches of similar length, passages that fit, a
check of everything that comes back, a lock, and a fingerprint. Each adapter is this class with another model."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import numpy as np

from plait.adapters.fingerprints import PROBE_TEXTS, same_fingerprint
from plait.adapters.tokenizer import LiveTokenizer
from plait.checks import as_list, check_count, check_flag
from plait.embeddings import Embeddings, MultiVectors, SparseVectors
from plait.encode.batches import by_length
from plait.encode.chunking import Chunker
from plait.encode.protocol import EmbeddingSpec, OnBatch
from plait.encode.sparse_terms import TermWeights, concatenate_terms
from plait.errors import InputError, ModelError
from plait.locks import ForkSafeLock
from plait.records import Span

# One batch of texts: (texts, is_query) -> their embeddings, in order.
EncodeBatch = Callable[[list[str], bool], Embeddings]
# (text, is_query) -> (token, span) of each multi vector
ReadTokens = Callable[[str, bool], list[tuple[str, Span]]]
DEFAULT_BATCH = 32  # texts
# Of one batch, padding included: 32 passages of 500 tokens. A single text may be longer.
BATCH_CHARACTERS = 1 << 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """What a model makes of fixed texts; says which kinds of embeddings it gives, and their sizes."""

    documents: Embeddings
    queries: Embeddings

    def spec(self, *, vocabulary: int | None, model: str) -> EmbeddingSpec:
        """The kinds and sizes; ModelError if queries and documents differ in them."""
        specs = [_spec(side, vocabulary) for side in (self.documents, self.queries)]
        if specs[0] != specs[1] or not specs[0].sizes():
            raise ModelError(
                f"{model} gives {specs[0].sizes()} for documents and {specs[1].sizes()} for queries; they must have "
                f"the same kinds and dimensions"
            )
        return specs[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class InputLimits:
    """How many tokens of a text a model reads; for counting texts that it truncates."""

    tokenizer: LiveTokenizer
    queries: int  # without special tokens and prompt
    documents: int

    def n_truncated(self, texts: Sequence[str], *, is_query: bool) -> int:
        limit = self.queries if is_query else self.documents
        return sum(count > limit for count in self.tokenizer.counts(texts))


class GuardedModel:
    """Calls a live model: one thread at a time unless `concurrent`. torch models are not made for several threads."""

    def __init__(self, encode: EncodeBatch, *, concurrent: bool) -> None:
        check_flag("concurrent", concurrent)
        self._encode = encode
        self.lock: AbstractContextManager[object] = nullcontext() if concurrent else ForkSafeLock()

    def __call__(self, texts: list[str], is_query: bool) -> Embeddings:
        with self.lock:
            return self._encode(texts, is_query)

    def probe(self) -> Probe:
        return Probe(documents=self(list(PROBE_TEXTS), False), queries=self(list(PROBE_TEXTS), True))


class LiveEncoder:
    """An encoder over a live model; the adapters make one. It has the `Encoder` protocol."""

    def __init__(
        self,
        model: GuardedModel,
        *,
        name: str,
        spec: EmbeddingSpec,
        fingerprint: str,
        chunker: Chunker,
        batch_size: int = DEFAULT_BATCH,
        limits: InputLimits | None = None,
        read_tokens: ReadTokens | None = None,
        read_term: Callable[[int], str] | None = None,
    ) -> None:
        check_count("batch_size", batch_size)
        self._model, self._batch_size, self._limits = model, batch_size, limits
        self.name, self.spec, self.fingerprint, self.chunker = name, spec, fingerprint, chunker
        # Only present where they are known, as `TokenReader` and `TermReader` ask for them.
        if read_tokens is not None:
            self.tokens = _tokens_method(read_tokens)
        if read_term is not None:
            self.term = read_term

    def __repr__(self) -> str:
        kinds = ", ".join(f"{kind} {size}" for kind, size in self.spec.sizes().items())
        return f"{type(self).__name__}({self.name!r}: {kinds})"

    def matches(self, fingerprint: str) -> bool:
        """Whether an index with this fingerprint was built with the same model."""
        return same_fingerprint(self.fingerprint, fingerprint)

    def encode_queries(self, texts: Sequence[str]) -> Embeddings:
        return self._encode_all(texts, is_query=True, on_batch=None)

    def encode_documents(self, texts: Sequence[str], *, on_batch: OnBatch | None = None) -> Embeddings:
        return self._encode_all(texts, is_query=False, on_batch=on_batch)

    def _encode_all(self, texts: Sequence[str], *, is_query: bool, on_batch: OnBatch | None) -> Embeddings:
        texts = as_list("texts", texts, "texts")
        check_texts(texts)
        parts: list[tuple[list[int], Embeddings]] = []
        n_done = 0
        for items in self._batches(texts):
            batch = self._model([texts[item] for item in items], is_query)
            check_batch(batch, self.spec, len(items), self.name)
            parts.append((items, batch))
            n_done += len(items)
            if on_batch is not None:
                on_batch(n_done, len(texts))
        n_truncated = 0 if self._limits is None else self._limits.n_truncated(texts, is_query=is_query)
        return join_batches(parts, len(texts), self.spec, n_truncated)

    def _batches(self, texts: Sequence[str]) -> Iterator[list[int]]:
        """Batches of texts of similar length, longest first. Characters are counted: exact enough for padding."""
        for items in by_length([len(text) for text in texts], n_tokens=BATCH_CHARACTERS):
            yield from (items[start : start + self._batch_size] for start in range(0, len(items), self._batch_size))


def check_texts(texts: Sequence[object]) -> None:
    for number, text in enumerate(texts):
        if not isinstance(text, str):
            raise InputError(f"text {number} is of type {type(text).__name__}; encoders take strings")
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise InputError(
                f"text {number} has half of a surrogate pair at position {error.start}; read its source again as "
                f"UTF-8, with errors='replace'"
            ) from None


def check_batch(batch: Embeddings, spec: EmbeddingSpec, n_texts: int, model: str) -> None:
    """Raises ModelError if a model gives other kinds, sizes or numbers of items than when it was probed."""
    got = _spec(batch, spec.sparse)
    if got != spec:
        raise ModelError(
            f"{model} gave embeddings of {got.sizes()}, but of {spec.sizes()} when it was opened; the model was "
            f"changed meanwhile: make the encoder again"
        )
    if len(batch) != n_texts:
        raise ModelError(f"{model} gave {len(batch)} embeddings for {n_texts} texts")
    sparse = batch.sparse
    if sparse is not None and spec.sparse is not None and len(sparse.terms) and sparse.terms.max() >= spec.sparse:
        raise ModelError(f"{model} gave term {sparse.terms.max()}, but its vocabulary has {spec.sparse} terms")


def join_batches(
    parts: Sequence[tuple[list[int], Embeddings]], n_texts: int, spec: EmbeddingSpec, n_truncated: int
) -> Embeddings:
    """The embeddings of all texts in their order, from batches of some of them."""
    dense = np.zeros((n_texts, spec.dense), np.float32) if spec.dense else None
    rows = [np.zeros((0, spec.multi or 0), np.float32)] * n_texts
    terms: list[TermWeights] = [(np.zeros(0, np.int32), np.zeros(0, np.float32))] * n_texts
    for items, batch in parts:
        if dense is not None and batch.dense is not None:
            dense[items] = batch.dense
        for position, item in enumerate(items):
            if batch.multi is not None:
                rows[item] = np.asarray(batch.multi[position], np.float32)
            if batch.sparse is not None:
                terms[item] = batch.sparse[position]
    return Embeddings(
        dense=dense,
        sparse=concatenate_terms(terms) if spec.sparse else None,
        multi=MultiVectors.from_items(rows, dim=spec.multi) if spec.multi else None,
        truncated=n_truncated,
    )


def _spec(embeddings: Embeddings, vocabulary: int | None) -> EmbeddingSpec:
    dense, sparse, multi = embeddings.dense, embeddings.sparse, embeddings.multi
    return EmbeddingSpec(
        dense=None if dense is None else dense.shape[1],
        sparse=None if not isinstance(sparse, SparseVectors) else vocabulary,
        multi=None if multi is None else multi.dim,
    )


def _tokens_method(read: ReadTokens) -> Callable[..., list[tuple[str, Span]]]:
    def tokens(text: str, *, is_query: bool) -> list[tuple[str, Span]]:
        """(token, span within the text) for each multi vector of the text."""
        return read(text, is_query)

    return tokens

"""`OnnxEncoder`: runs the ONNX graph of a model folder, in batches of texts of similar length. Embeddings come back in
the order of the texts, without padding."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from plait.embeddings import Embeddings, MultiVectors, Rows, SparseVectors
from plait.encode.batches import by_length, pad
from plait.encode.chunking import WindowChunker
from plait.encode.model_card import BY_TERM, STATIC, ModelCard
from plait.encode.protocol import EmbeddingSpec
from plait.encode.sparse_terms import (
    QUERY_OUTPUT,
    TERMS_OUTPUT,
    TermWeights,
    concatenate_terms,
    sparse_vectors,
    vocabulary_vectors,
)
from plait.encode.tokenizer import ModelTokenizer, TokenizedTexts
from plait.errors import ConfigError, InputError, ModelError
from plait.records import Span

# Tokens in one batch. Larger batches are not faster and no longer fit the processor's cache.
BATCH_TOKENS = 2048
# The fixed cost of one call on a processor, in tokens; measured for plait-small.
CALL_TOKENS = 14
MAX_LOGITS = 1 << 26  # in one batch, of a model that has one for each token and term (SPLADE)

OnBatch = Callable[[int, int], None]  # texts done, texts in all


class Session(Protocol):
    """The part of onnxruntime's InferenceSession that encoders use."""

    def get_inputs(self) -> Sequence[Any]: ...

    def run(self, outputs: list[str], feed: dict[str, NDArray[np.int64]], /) -> Sequence[NDArray[np.float32]]: ...


class OnnxEncoder:
    """An encoder with onnxruntime; `plait.encode.load.load_model` makes one from a model folder."""

    def __init__(
        self,
        card: ModelCard,
        tokenizer: ModelTokenizer,
        session: Session,
        query_session: Session | None = None,
        *,
        is_on_cpu: bool = True,
    ) -> None:
        # Queries are short and of any length, so that a padded batch may cost twice its tokens. A graphics card
        # computes the padding beside the rest, and a graph of static queries looks up tokens.
        self._call_tokens = CALL_TOKENS if is_on_cpu and query_session is None else None
        self._card, self._tokenizer, self._session = card, tokenizer, session
        self._query_session = query_session or session
        self._inputs = {given.name for given in session.get_inputs()}
        self._fixed = card.multi.fixed if card.multi else None
        self._query_outputs = [name for name in ("dense", "sparse", "multi") if getattr(card, name) is not None]
        if card.sparse is not None and card.sparse.forms:
            self._query_outputs.append(TERMS_OUTPUT)
        multi = "multi" if self._fixed is None else "fixed"
        self._document_outputs = [multi if name == "multi" else name for name in self._query_outputs]
        if card.sparse is not None and card.sparse.query == STATIC:
            self._query_outputs = [QUERY_OUTPUT if name == "sparse" else name for name in self._query_outputs]
        special = [] if card.multi is None or card.multi.special_rows else tokenizer.special_ids
        skipped = [tokenizer.token_id(token) for token in card.multi.skip] if card.multi else []
        self._first_row = card.multi is None or card.multi.first_row
        in_queries = skipped if card.multi is not None and card.multi.skip_queries else []
        self._query_skip_ids = np.array(sorted({*special, *in_queries}), np.int64)
        self._document_skip_ids = np.array(sorted({*special, *skipped}), np.int64)
        expansion = card.query.expansion
        self._expansion_id = tokenizer.token_id(expansion.token) if expansion else None

    @property
    def name(self) -> str:
        return self._card.name

    @property
    def card(self) -> ModelCard:
        """The model card: lengths, licence, source."""
        return self._card

    @property
    def tokenizer(self) -> ModelTokenizer:
        """Text to token ids, as this model expects them."""
        return self._tokenizer

    @property
    def fingerprint(self) -> str:
        return self._card.fingerprint

    @property
    def spec(self) -> EmbeddingSpec:
        return self._card.spec

    @property
    def chunker(self) -> WindowChunker:
        """Splits documents into passages that fit the model, counted in its tokens."""
        return WindowChunker(
            self._tokenizer, size=self._tokenizer.max_tokens(is_query=False), overlap=self._card.document.overlap
        )

    def tokens(self, text: str, *, is_query: bool) -> list[tuple[str, Span]]:
        """(token, span within the text) for each multi vector of this text."""
        if self._fixed is not None and not is_query:
            raise ConfigError(
                f"{self.name} gives {self._fixed} vectors for every document; they do not belong to single tokens"
            )
        ids = self._tokenizer.tokenize([text], is_query=is_query).ids[0]
        pieces = self._tokenizer.pieces(text, is_query=is_query)
        if is_query and (expansion := self._card.query.expansion) is not None:
            ids = self._expand(ids)
            pieces += [(expansion.token, Span(0, 0))] * (len(ids) - len(pieces))
        return [pieces[position] for position in np.flatnonzero(self._has_vector(ids, is_query=is_query))]

    def term(self, number: int) -> str:
        """The token of a sparse term."""
        if self.spec.sparse is None:
            raise ConfigError(f"{self.name} has no sparse vectors, so it has no terms")
        if not 0 <= number < self.spec.sparse:
            raise InputError(f"term {number} is out of range: {self.name} has the terms 0 to {self.spec.sparse - 1}")
        return self._tokenizer.token(number)

    def with_card(self, card: ModelCard) -> OnnxEncoder:
        """The same graph and tokenizer, with other settings of the texts: lengths, markers, prefixes, expansion of
        queries, tokens without vectors. The two encoders share the loaded model."""
        return OnnxEncoder(card, self._tokenizer.with_settings(card), self._session, self._query_session)

    def encode_queries(
        self, texts: Sequence[str], *, batch_tokens: int = BATCH_TOKENS, on_batch: OnBatch | None = None
    ) -> Embeddings:
        """The embeddings of queries; a query that is too long is truncated, and counted in `truncated`."""
        return self._encode(texts, is_query=True, batch_tokens=batch_tokens, on_batch=on_batch)

    def encode_documents(
        self, texts: Sequence[str], *, batch_tokens: int = BATCH_TOKENS, on_batch: OnBatch | None = None
    ) -> Embeddings:
        """The embeddings of passages; one that is too long is truncated, and counted in `truncated`.

        `on_batch(n_done, n_total)` is called after each batch.
        """
        return self._encode(texts, is_query=False, batch_tokens=batch_tokens, on_batch=on_batch)

    def iterate_documents(
        self, texts: Sequence[str], *, batch_tokens: int = BATCH_TOKENS
    ) -> Iterator[tuple[list[int], Embeddings]]:
        """As `encode_documents`, one batch at a time, longest first: (numbers of the texts, their embeddings)."""
        if batch_tokens < 1:
            raise ConfigError(f"batch_tokens is {batch_tokens}; a batch needs at least one token")
        tokenized = self._tokenizer.tokenize(texts, is_query=False)
        return self._run(tokenized, is_query=False, batch_tokens=batch_tokens)

    def encode_parts(self, texts: Sequence[str], parts: Sequence[Sequence[Span]]) -> list[list[Rows]]:
        """For each text and each of its parts, the multi vectors of the part's tokens; see `plait.encode.late`."""
        vectors: list[list[Rows]] = [[] for _ in texts]
        for items, embeddings in self.iterate_documents(texts):
            assert embeddings.multi is not None
            for position, item in enumerate(items):
                spans = np.array([span for _, span in self.tokens(texts[item], is_query=False)], np.int64)
                starts = spans[:, 0]
                common = (starts == spans[:, 1]) | (starts < min((part.start for part in parts[item]), default=0))
                rows = embeddings.multi[position]
                for part in parts[item]:
                    is_inside = (starts >= part.start) & (starts < part.end)
                    vectors[item].append(rows[common | is_inside] if is_inside.any() else rows[:0])
        return vectors

    def _encode(
        self, texts: Sequence[str], *, is_query: bool, batch_tokens: int, on_batch: OnBatch | None
    ) -> Embeddings:
        if batch_tokens < 1:
            raise ConfigError(f"batch_tokens is {batch_tokens}; a batch needs at least one token")
        tokenized = self._tokenizer.tokenize(texts, is_query=is_query)
        spec = self.spec
        dense = np.zeros((len(texts), spec.dense), np.float32) if spec.dense else None
        rows: list[Rows] = [np.zeros((0, spec.multi or 0), np.float32)] * len(texts)
        terms: list[TermWeights] = [(np.zeros(0, np.int32), np.zeros(0, np.float32))] * len(texts)
        n_done = 0
        for items, embeddings in self._run(tokenized, is_query=is_query, batch_tokens=batch_tokens):
            if dense is not None and embeddings.dense is not None:
                dense[items] = embeddings.dense
            for position, item in enumerate(items):
                if (vectors := embeddings.sparse) is not None:
                    begin, end = vectors.offsets[position], vectors.offsets[position + 1]
                    terms[item] = vectors.terms[begin:end], vectors.weights[begin:end]
                if embeddings.multi is not None:
                    rows[item] = embeddings.multi[position]
            n_done += len(items)
            if on_batch is not None:
                on_batch(n_done, len(texts))
        multi = MultiVectors.from_items(rows, dim=spec.multi) if spec.multi else None
        sparse = concatenate_terms(terms) if spec.sparse else None
        return Embeddings(dense=dense, sparse=sparse, multi=multi, truncated=sum(tokenized.truncated))

    def _run(
        self, tokenized: TokenizedTexts, *, is_query: bool, batch_tokens: int
    ) -> Iterator[tuple[list[int], Embeddings]]:
        if self._card.sparse is not None and self._card.sparse.output == BY_TERM:
            batch_tokens = min(batch_tokens, max(1, MAX_LOGITS // self._card.sparse.vocabulary))
        lengths = [len(ids) for ids in tokenized.ids]
        if is_query and (expansion := self._card.query.expansion) is not None:
            lengths = [max(length, expansion.length) for length in lengths]
        call_tokens = self._call_tokens if is_query else None
        for items in by_length(lengths, n_tokens=batch_tokens, call_tokens=call_tokens):
            embeddings = self._forward([tokenized.ids[item] for item in items], is_query=is_query)
            yield items, replace(embeddings, truncated=sum(tokenized.truncated[item] for item in items))

    def _forward(self, ids: Sequence[NDArray[np.int64]], *, is_query: bool) -> Embeddings:
        """One forward pass: all embeddings of the model, without padding."""
        attended = [len(item) for item in ids]
        if is_query and self._card.query.expansion is not None:
            ids = [self._expand(item) for item in ids]
            if self._card.query.expansion.attended:
                attended = [len(item) for item in ids]
        padded, mask = pad(ids)
        for row, length in enumerate(attended):
            mask[row, length:] = 0
        feed = {"input_ids": padded, "attention_mask": mask}
        session = self._query_session if is_query else self._session
        if "token_type_ids" in self._inputs and session is self._session:
            feed["token_type_ids"] = np.zeros_like(padded)
        outputs = self._query_outputs if is_query else self._document_outputs
        arrays = dict(zip(outputs, session.run(outputs, feed), strict=True))
        if (dense := arrays.get("dense")) is not None and dense.shape != (len(ids), self.spec.dense):
            raise ModelError(
                f"the graph of {self.name} gives dense vectors of shape {dense.shape}; by its card they are "
                f"{(len(ids), self.spec.dense)}"
            )
        multi = self._fixed_vectors(arrays["fixed"], len(ids)) if "fixed" in arrays else None
        if "multi" in arrays:
            states: NDArray[np.float32] = arrays["multi"]
            multi = MultiVectors.from_items(
                [states[row, : len(item)][self._has_vector(item, is_query=is_query)] for row, item in enumerate(ids)]
            )
        sparse = self._sparse_vectors(ids, arrays, is_query=is_query) if self._card.sparse is not None else None
        return Embeddings(dense=arrays.get("dense"), sparse=sparse, multi=multi)

    def _sparse_vectors(
        self, ids: Sequence[NDArray[np.int64]], arrays: Mapping[str, NDArray[np.float32]], *, is_query: bool
    ) -> SparseVectors:
        spec = self._card.sparse
        assert spec is not None
        if is_query and spec.query == STATIC:
            # Special tokens around a query have no weight; the same tokens within its text have theirs.
            first, last = self._tokenizer.n_around
            inner = [item[first : len(item) - last] for item in ids]
            return sparse_vectors(inner, arrays[QUERY_OUTPUT][:, first:], is_query=True, query_tf=spec.query_tf)
        if spec.output == BY_TERM:
            weights = arrays["sparse"]
            if weights.shape != (len(ids), spec.vocabulary):
                raise ModelError(
                    f"the graph of {self.name} gives sparse vectors of shape {weights.shape}; by its card they are "
                    f"{(len(ids), spec.vocabulary)}"
                )
            return vocabulary_vectors(weights, length_norm=0.0 if is_query else spec.length_norm)
        terms: Sequence[NDArray[Any]] = ids
        if TERMS_OUTPUT in arrays:
            terms = [row[: len(item)] for row, item in zip(arrays[TERMS_OUTPUT], ids, strict=True)]
        return sparse_vectors(
            terms, arrays["sparse"], is_query=is_query, query_tf=spec.query_tf, length_norm=spec.length_norm
        )

    def _fixed_vectors(self, states: NDArray[np.float32], n_texts: int) -> MultiVectors:
        """The multi vectors of documents, for a model that gives the same number for every document."""
        expected = (n_texts, self._fixed, self.spec.multi)
        if states.shape != expected:
            raise ModelError(
                f"the graph of {self.name} gives documents of shape {states.shape}; by its card they are {expected}"
            )
        return MultiVectors.from_items(list(states))

    def _has_vector(self, ids: NDArray[np.int64], *, is_query: bool) -> NDArray[np.bool_]:
        """The tokens that have a multi vector. A text of skipped tokens only keeps them: without any vector it could
        not be found."""
        has_vector = ~np.isin(ids, self._query_skip_ids if is_query else self._document_skip_ids)
        if not self._first_row:
            has_vector[:1] = False
        has_vector[self._tokenizer.inner_cls_positions(len(ids), is_query=is_query)] = False
        return has_vector if has_vector.any() else np.ones(len(ids), np.bool_)

    def _expand(self, ids: NDArray[np.int64]) -> NDArray[np.int64]:
        expansion = self._card.query.expansion
        if expansion is None or len(ids) >= expansion.length:
            return ids
        return np.concatenate([ids, np.full(expansion.length - len(ids), self._expansion_id, np.int64)])

"""`OnnxEncoder`: a model folder at work. Reads texts, runs them through the graph in batches of like length, and gives
ragged strands in the order of the texts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from plait.embeddings import Embeddings, MultiVectors, Rows
from plait.encode.batches import by_length, pad
from plait.encode.chunking import Chunker, WindowChunker
from plait.encode.model_card import ModelCard
from plait.encode.protocol import EmbeddingSpec
from plait.encode.sparse_terms import TERMS_OUTPUT, TermWeights, concatenate_terms, sparse_vectors
from plait.encode.tokenizer import ModelTokenizer, TokenizedTexts
from plait.errors import ConfigError, InputError, ModelError
from plait.records import Span

# How many tokens go through the model at once. More gains nothing and falls out of the cache.
BATCH_TOKENS = 2048

OnBatch = Callable[[int, int], None]  # texts done, texts in all


class Session(Protocol):
    """The part of onnxruntime's InferenceSession that is used here."""

    def get_inputs(self) -> Sequence[Any]: ...

    def run(self, outputs: list[str], feed: dict[str, NDArray[np.int64]], /) -> Sequence[NDArray[np.float32]]: ...


class OnnxEncoder:
    """Text to strands with onnxruntime; `plait.encode.load.load_model` makes one from a model folder."""

    def __init__(self, card: ModelCard, tokenizer: ModelTokenizer, session: Session) -> None:
        self._card, self._tokenizer, self._session = card, tokenizer, session
        self._inputs = {given.name for given in session.get_inputs()}
        self._fixed = card.multi.fixed if card.multi else None
        self._query_outputs = [name for name in ("dense", "sparse", "multi") if getattr(card, name) is not None]
        if card.sparse is not None and card.sparse.forms:
            self._query_outputs.append(TERMS_OUTPUT)
        mixed = "multi" if self._fixed is None else "fixed"
        self._document_outputs = [mixed if name == "multi" else name for name in self._query_outputs]
        special = [] if card.multi is None or card.multi.special_rows else tokenizer.special_ids
        skipped = [tokenizer.token_id(token) for token in card.multi.skip] if card.multi else []
        self._first_row = card.multi is None or card.multi.first_row
        self._dropped_of_queries = np.array(sorted(special), np.int64)
        self._dropped_of_documents = np.array(sorted({*special, *skipped}), np.int64)
        expansion = card.query.expansion
        self._expansion_id = tokenizer.token_id(expansion.token) if expansion else None

    @property
    def name(self) -> str:
        return self._card.name

    @property
    def card(self) -> ModelCard:
        """What the model says of itself: lengths, licence, source."""
        return self._card

    @property
    def fingerprint(self) -> str:
        return self._card.fingerprint

    @property
    def spec(self) -> EmbeddingSpec:
        return self._card.spec

    @property
    def chunker(self) -> Chunker:
        """Splits documents into passages that fit the model, counted in its tokens."""
        return WindowChunker(
            self._tokenizer, size=self._tokenizer.max_tokens(is_query=False), overlap=self._card.document.overlap
        )

    def tokens(self, text: str, *, is_query: bool) -> list[tuple[str, Span]]:
        """(surface, where it is in the text) for each row of the multi strand of this text."""
        if self._fixed is not None and not is_query:
            raise ConfigError(f"{self.name} mixes all tokens of a document into {self._fixed} rows; none is a token's")
        ids = self._tokenizer.tokenize([text], is_query=is_query).ids[0]
        pieces = self._tokenizer.pieces(text, is_query=is_query)
        if is_query and (expansion := self._card.query.expansion) is not None:
            ids = self._expand(ids)
            pieces += [(expansion.token, Span(0, 0))] * (len(ids) - len(pieces))
        return [pieces[place] for place in np.flatnonzero(self._kept(ids, is_query=is_query))]

    def term(self, number: int) -> str:
        """What a term of the sparse strand is called: its token."""
        if self.spec.sparse is None:
            raise ConfigError(f"{self.name} has no sparse strand, and so no terms")
        if not 0 <= number < self.spec.sparse:
            raise InputError(f"term {number} is none of the {self.spec.sparse} of {self.name}")
        return self._tokenizer.token(number)

    def encode_queries(self, texts: Sequence[str]) -> Embeddings:
        """The strands of queries; a query that is too long is cut, and counted in `truncated`."""
        return self._encode(texts, is_query=True, batch_tokens=BATCH_TOKENS, on_batch=None)

    def encode_documents(
        self, texts: Sequence[str], *, batch_tokens: int = BATCH_TOKENS, on_batch: OnBatch | None = None
    ) -> Embeddings:
        """The strands of passages, title included; one that is too long is cut, and counted in `truncated`.

        `on_batch` is told after each batch how many texts are done, and of how many.
        """
        return self._encode(texts, is_query=False, batch_tokens=batch_tokens, on_batch=on_batch)

    def iterate_documents(
        self, texts: Sequence[str], *, batch_tokens: int = BATCH_TOKENS
    ) -> Iterator[tuple[list[int], Embeddings]]:
        """The same, a batch at a time and never all in memory: (which of the texts, their strands), longest first."""
        if batch_tokens < 1:
            raise ConfigError(f"batch_tokens is {batch_tokens}; a batch needs at least one token")
        tokenized = self._tokenizer.tokenize(texts, is_query=False)
        return self._run(tokenized, is_query=False, batch_tokens=batch_tokens)

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
            for place, item in enumerate(items):
                if embeddings.sparse is not None:
                    own = slice(embeddings.sparse.offsets[place], embeddings.sparse.offsets[place + 1])
                    terms[item] = embeddings.sparse.terms[own], embeddings.sparse.weights[own]
                if embeddings.multi is not None:
                    rows[item] = embeddings.multi[place]
            n_done += len(items)
            if on_batch is not None:
                on_batch(n_done, len(texts))
        multi = MultiVectors.from_items(rows, dim=spec.multi) if spec.multi else None
        sparse = concatenate_terms(terms) if spec.sparse else None
        return Embeddings(dense=dense, sparse=sparse, multi=multi, truncated=sum(tokenized.truncated))

    def _run(
        self, tokenized: TokenizedTexts, *, is_query: bool, batch_tokens: int
    ) -> Iterator[tuple[list[int], Embeddings]]:
        for items in by_length([len(ids) for ids in tokenized.ids], n_tokens=batch_tokens):
            embeddings = self._forward([tokenized.ids[item] for item in items], is_query=is_query)
            yield items, replace(embeddings, truncated=sum(tokenized.truncated[item] for item in items))

    def _forward(self, ids: Sequence[NDArray[np.int64]], *, is_query: bool) -> Embeddings:
        """One pass of the model: every strand it has, without padding."""
        attended = [len(item) for item in ids]
        if is_query and self._card.query.expansion is not None:
            ids = [self._expand(item) for item in ids]
            if self._card.query.expansion.attended:
                attended = [len(item) for item in ids]
        padded, mask = pad(ids)
        for row, length in enumerate(attended):
            mask[row, length:] = 0
        feed = {"input_ids": padded, "attention_mask": mask}
        if "token_type_ids" in self._inputs:
            feed["token_type_ids"] = np.zeros_like(padded)
        outputs = self._query_outputs if is_query else self._document_outputs
        found = dict(zip(outputs, self._session.run(outputs, feed), strict=True))
        multi = self._mixed(found["fixed"], len(ids)) if "fixed" in found else None
        if "multi" in found:
            states: NDArray[np.float32] = found["multi"]
            multi = MultiVectors.from_items(
                [states[row, : len(item)][self._kept(item, is_query=is_query)] for row, item in enumerate(ids)]
            )
        terms = (
            [own[: len(item)] for own, item in zip(found[TERMS_OUTPUT], ids, strict=True)]
            if TERMS_OUTPUT in found
            else ids
        )
        sparse, kind = None, self._card.sparse
        if kind is not None:
            settings = {"query_tf": kind.query_tf, "length_norm": kind.length_norm}
            sparse = sparse_vectors(terms, found["sparse"], is_query=is_query, **settings)
        return Embeddings(dense=found.get("dense"), sparse=sparse, multi=multi)

    def _mixed(self, states: NDArray[np.float32], n_texts: int) -> MultiVectors:
        """The rows of documents of a model that gives each as many, whatever its length."""
        wanted = (n_texts, self._fixed, self.spec.multi)
        if states.shape != wanted:
            raise ModelError(f"the graph of {self.name} gives documents {states.shape}; its card promises {wanted}")
        return MultiVectors.from_items(list(states))

    def _kept(self, ids: NDArray[np.int64], *, is_query: bool) -> NDArray[np.bool_]:
        """Which tokens have a row in the multi strand. A text of skipped tokens alone keeps them: with no row at all
        it could never be found."""
        kept = ~np.isin(ids, self._dropped_of_queries if is_query else self._dropped_of_documents)
        if not self._first_row:
            kept[:1] = False
        kept[self._tokenizer.inner_cls_positions(len(ids), is_query=is_query)] = False
        return kept if kept.any() else np.ones(len(ids), np.bool_)

    def _expand(self, ids: NDArray[np.int64]) -> NDArray[np.int64]:
        expansion = self._card.query.expansion
        if expansion is None or len(ids) >= expansion.length:
            return ids
        return np.concatenate([ids, np.full(expansion.length - len(ids), self._expansion_id, np.int64)])

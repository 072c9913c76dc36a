"""`TorchEncoder`: a torch model as an encoder of plait, so that it can be indexed and searched like any other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from plait.embeddings import Embeddings, MultiVectors
from plait.encode.batches import by_length
from plait.encode.chunking import Chunker, WholeDocument
from plait.encode.load import known_models, load_model
from plait.encode.model_card import CARD_NAME, DocumentInput, QueryInput
from plait.encode.protocol import EmbeddingSpec, Encoder, OnBatch
from plait.encode.sparse_terms import TermWeights, concatenate_terms, sparse_vectors
from plait.train import checkpoint
from plait.train.backbone import load_backbone
from plait.train.checkpoint import weights_digest
from plait.train.model import Model
from plait.train.model_config import DenseHeadConfig, ModelConfig, SparseHeadConfig
from plait.train.tensors import Encoded, Tokens
from plait.train.tokenization import TextTokenizer, load_tokenizer

BATCH_CHARACTERS = 16_384  # in one pass, padding included: about 4,000 tokens


class TokenizesTexts(Protocol):
    """Texts to tokens, by the rules of one model."""

    def queries(self, texts: Sequence[str]) -> Tokens: ...

    def documents(self, texts: Sequence[str]) -> Tokens: ...


class TorchEncoder:
    """The embeddings of a model with its current weights. A document is one passage, truncated to the model's length.
    There are sparse vectors only if `vocabulary`, the number of terms, is given; `sparse` says how they are weighted.
    """

    def __init__(
        self,
        model: nn.Module,
        texts: TokenizesTexts,
        *,
        fingerprint: str,
        device: torch.device | str = "cpu",
        vocabulary: int | None = None,
        sparse: SparseHeadConfig | None = None,
    ) -> None:
        self._model, self._texts, self._device, self._fingerprint = model, texts, device, fingerprint
        self._sparse = {} if sparse is None else {"query_tf": sparse.query_tf, "length_norm": sparse.length_norm}
        probe = self._pass(["probe"], self._texts.queries, is_query=True)
        self._spec = EmbeddingSpec(
            dense=None if probe.dense is None else probe.dense.shape[1],
            sparse=None if probe.sparse is None else vocabulary,
            multi=None if probe.multi is None else probe.multi.shape[2],
        )

    @property
    def chunker(self) -> Chunker:
        """Documents are truncated, not split."""
        return WholeDocument()

    @property
    def fingerprint(self) -> str:
        return self._fingerprint

    @property
    def spec(self) -> EmbeddingSpec:
        return self._spec

    def encode_queries(self, texts: Sequence[str]) -> Embeddings:
        return self._encode(texts, self._texts.queries, is_query=True, on_batch=None)

    def encode_documents(self, texts: Sequence[str], *, on_batch: OnBatch | None = None) -> Embeddings:
        return self._encode(texts, self._texts.documents, is_query=False, on_batch=on_batch)

    def _encode(
        self,
        texts: Sequence[str],
        read: Callable[[Sequence[str]], Tokens],
        *,
        is_query: bool,
        on_batch: OnBatch | None,
    ) -> Embeddings:
        dense = None if self._spec.dense is None else np.zeros((len(texts), self._spec.dense), np.float32)
        rows: list[NDArray[np.float32]] = [np.zeros((0, self._spec.multi or 0), np.float32)] * len(texts)
        terms: list[TermWeights] = [(np.zeros(0, np.int32), np.zeros(0, np.float32))] * len(texts)
        n_done = 0
        for items in by_length([len(text) for text in texts], n_tokens=BATCH_CHARACTERS):
            encoded = self._pass([texts[item] for item in items], read, is_query=is_query)
            if dense is not None and encoded.dense is not None:
                dense[items] = encoded.dense.float().cpu().numpy()
            if self._spec.sparse is not None and encoded.sparse is not None and encoded.sparse_ids is not None:
                ids, weights = list(encoded.sparse_ids.cpu().numpy()), encoded.sparse.float().cpu().numpy()
                vectors = sparse_vectors(ids, weights, is_query=is_query, **self._sparse)
                for row, item in enumerate(items):
                    span = slice(vectors.offsets[row], vectors.offsets[row + 1])
                    terms[item] = vectors.terms[span], vectors.weights[span]
            if encoded.multi is not None and encoded.multi_mask is not None:
                values, mask = encoded.multi.float().cpu().numpy(), encoded.multi_mask.cpu().numpy()
                for row, item in enumerate(items):
                    rows[item] = values[row][mask[row]]
            n_done += len(items)
            if on_batch is not None:
                on_batch(n_done, len(texts))
        multi = None if self._spec.multi is None else MultiVectors.from_items(rows, dim=self._spec.multi)
        return Embeddings(
            dense=dense, sparse=concatenate_terms(terms) if self._spec.sparse is not None else None, multi=multi
        )

    def _pass(self, texts: Sequence[str], read: Callable[[Sequence[str]], Tokens], *, is_query: bool) -> Encoded:
        training = self._model.training
        self._model.eval()
        try:
            with torch.no_grad():
                encoded: Encoded = self._model(to_device(read(texts), self._device), is_query=is_query)
                return encoded
        finally:
            self._model.train(training)


def to_device(tokens: Tokens, device: torch.device | str) -> Tokens:
    return Tokens(tokens.ids.to(device), tokens.mask.to(device), tokens.rows.to(device))


def open_encoder(source: str, *, length: int = 256) -> Encoder:
    """The encoder of a bundled model, a model folder, a trained checkpoint, or a transformers encoder (folder or hub
    name), whose states are mean-pooled. `length` is the maximum text length where the source sets none."""
    folder = Path(source)
    if source in known_models() or (folder / CARD_NAME).is_file():
        return load_model(source)
    if (folder / checkpoint.MODEL_FILE).is_file():
        model, tokenizer = checkpoint.load(folder)
    else:
        config = ModelConfig(
            backbone=source,
            dense=DenseHeadConfig(pooling="mean"),
            query=QueryInput(length, "", None),
            document=DocumentInput(length, "", 0),
        )
        model, tokenizer = Model(config, load_backbone(source)), load_tokenizer(source)
    name = f"{weights_digest(folder)} {length}"
    return TorchEncoder(
        model,
        TextTokenizer(tokenizer, model.config),
        fingerprint=name,
        vocabulary=model.backbone.n_ids,
        sparse=model.config.sparse,
    )

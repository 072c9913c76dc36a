"""Scoring pairs with a cross-encoder in torch: `TorchPairScorer` for reranking and evaluation, `RowScorer` for one
query with many documents."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from plait.encode.batches import by_length, pad
from plait.errors import ConfigError
from plait.rerank.cross_encoder import BATCH_TOKENS, OnBatch
from plait.rerank.pairs import Pair, PairTokenizer, TokenizedPairs
from plait.train.cross.model import CrossModel, PairTokens, weighted_maxsim_between


def pad_pairs(pairs: TokenizedPairs, items: Sequence[int], device: torch.device | str = "cpu") -> PairTokens:
    """The pairs with the numbers `items` as padded tensors."""
    ids, mask = pad([pairs.ids[item] for item in items])
    type_ids, _ = pad([pairs.type_ids[item] for item in items])
    return PairTokens(*(torch.from_numpy(part).to(device) for part in (ids, mask, type_ids)))


class TorchPairScorer:
    """Scores of a model with its current weights."""

    def __init__(self, model: CrossModel, tokenizer: PairTokenizer, *, fingerprint: str = "in training") -> None:
        self._model, self._tokenizer, self.fingerprint = model, tokenizer, fingerprint

    def score(self, pairs: Sequence[Pair], *, on_batch: OnBatch | None = None) -> NDArray[np.float32]:
        tokenized, scores, n_done = self._tokenizer.tokenize(pairs), np.zeros(len(pairs), np.float32), 0
        device, training = next(self._model.parameters()).device, self._model.training
        self._model.eval()
        try:
            with torch.no_grad():
                for items in by_length([len(ids) for ids in tokenized.ids], n_tokens=BATCH_TOKENS):
                    scores[items] = self._model(pad_pairs(tokenized, items, device)).float().cpu().numpy()
                    n_done += len(items)
                    if on_batch is not None:
                        on_batch(n_done, len(pairs))
        finally:
            self._model.train(training)
        return scores


@dataclass(frozen=True, slots=True, eq=False)
class _TextBlock:
    """Texts of similar length."""

    items: list[int]
    rows: Tensor  # (texts, length, dim): the input of the joint layers
    mask: Tensor  # (texts, length)
    marker: Tensor  # (texts,): the position of the marker; 0 if the head has none
    states: Tensor  # (texts, n, hidden): states at the positions that the head reads


class RowScorer:
    """Rows of a score matrix: one query with all documents, for a model whose layers are all split layers.

    A pair then costs the joint layers only. Their input is computed once for each document, and their last layer only
    at the positions that the head reads. The head `maxsim` reads all positions, so all last states are in memory.
    """

    def __init__(self, model: CrossModel, tokenizer: PairTokenizer, documents: Sequence[str]) -> None:
        if not supports_row_scoring(model):
            raise ConfigError(
                f"RowScorer needs a model with joint_dim, document_length and all layers split; this one has "
                f"{model.config}"
            )
        self._model, self._tokenizer, self._n = model.eval(), tokenizer, len(documents)
        ids = self._ids_of_side([("", document) for document in documents], side=1)
        self._blocks = [
            self._read([ids[item] for item in items], items)
            for items in by_length([len(of_text) for of_text in ids], n_tokens=BATCH_TOKENS)
        ]

    @torch.no_grad()
    def score(self, query: str) -> NDArray[np.float32]:
        """(documents,): the scores of the query with every document."""
        query_block = self._read(self._ids_of_side([(query, "")], side=0), [0], side=0)
        scores = np.zeros(self._n, np.float32)
        for block in self._blocks:
            scores[block.items] = self._block_scores(query_block, block).numpy()
        return scores

    def _block_scores(self, query: _TextBlock, block: _TextBlock) -> Tensor:
        """(documents,): the scores of one query with the documents of a block."""
        n, n_query, joint = len(block.items), query.rows.shape[1], self._model.joint
        assert joint is not None
        rows = torch.cat([query.rows.expand(n, -1, -1), block.rows], dim=1)
        mask = torch.cat([query.mask.expand(n, -1), block.mask], dim=1)
        states = query.states.expand(n, -1, -1)
        if self._model.weigh is not None:
            states = torch.cat([states, block.states], dim=1) + joint.added(rows, mask)
            weights = self._model.weigh(states[:, :n_query])[:, :, 0]
            query_units, document_units = F.normalize(states, dim=2).tensor_split([n_query], dim=1)
            texts = (query_units, mask[:, :n_query]), (document_units, block.mask)
            return weighted_maxsim_between(*texts, weights) * self._model.config.scale
        at = query.marker.expand(n).unsqueeze(1)
        if self._model.marker_ids is not None:
            at = torch.cat([at, block.marker.unsqueeze(1) + n_query], dim=1)
            states = torch.cat([states, block.states], dim=1)
        return self._model.from_head_states(states + joint.added(rows, mask, at))

    def _ids_of_side(self, pairs: Sequence[tuple[str, str]], side: int) -> list[NDArray[np.int64]]:
        """The tokens of one text of each pair. With a document_length they do not depend on the other text."""
        tokenized = self._tokenizer.tokenize(pairs)
        return [ids[types == side] for ids, types in zip(tokenized.ids, tokenized.type_ids, strict=True)]

    @torch.no_grad()
    def _read(self, texts: Sequence[NDArray[np.int64]], items: list[int], side: int = 1) -> _TextBlock:
        ids, mask = (torch.from_numpy(part) for part in pad(texts))
        states = self._model.text_states(ids, mask)
        marker_ids = self._model.marker_ids
        marker = torch.zeros(len(ids), dtype=torch.int64)
        if marker_ids is not None:
            marker = (ids == marker_ids[side]).long().argmax(dim=1)
        assert self._model.joint is not None
        rows = self._model.joint.enter(states, torch.full_like(ids, side))
        if self._model.weigh is None:
            states = states[torch.arange(len(ids)), marker].unsqueeze(1)
        return _TextBlock(items, rows, mask, marker, states.clone())


def supports_row_scoring(model: CrossModel) -> bool:
    """Whether `RowScorer` can use a model."""
    config, n_layers = model.config, model.backbone.encoder.config.num_hidden_layers
    return bool(config.joint_dim and config.document_length and config.split_layers == n_layers)

"""A model of two small layers with every kind of embedding, for tests of the loop. Words are hashed to ids."""

from __future__ import annotations

import re
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from plait.train.optimiser import OptimiserConfig
from plait.train.tensors import BatchTargets, Encoded, Tokens

N_IDS = 211
WORD = re.compile(r"\w+")


class SmallTexts:
    """At most `length` words of a text; id 0 is padding."""

    def __init__(self, length: int = 24) -> None:
        self._length = length

    def queries(self, texts: Sequence[str]) -> Tokens:
        return self._read(texts)

    def documents(self, texts: Sequence[str]) -> Tokens:
        return self._read(texts)

    def _read(self, texts: Sequence[str]) -> Tokens:
        words = [WORD.findall(text.casefold())[: self._length] or ["?"] for text in texts]
        ids = torch.zeros(len(texts), max(map(len, words)), dtype=torch.int64)
        for row, of_text in enumerate(words):
            ids[row, : len(of_text)] = torch.tensor([1 + zlib.crc32(word.encode()) % (N_IDS - 1) for word in of_text])
        return Tokens(ids, ids > 0, ids > 0)


class SmallBackbone(nn.Module):
    """Embeddings and two layers; states can be taken after any of them."""

    def __init__(self, dim: int, dropout: float) -> None:
        super().__init__()
        self.embedding = nn.Embedding(N_IDS, dim)
        self.layers = nn.ModuleList(nn.Linear(dim, dim) for _ in range(2))
        self.dropout = nn.Dropout(dropout)

    def states(self, tokens: Tokens, *, upto: int) -> Tensor:
        with torch.no_grad():
            states: Tensor = self.embedding(tokens.ids)
            for layer in self.layers[:upto]:
                states = states + torch.tanh(layer(states))
            return states

    def finish(self, states: Tensor, tokens: Tokens, *, start: int) -> Tensor:
        del tokens
        for layer in self.layers[start:]:
            states = states + self.dropout(torch.tanh(layer(states)))
        return states

    def forward(self, tokens: Tokens) -> Tensor:
        return self.finish(self.embedding(tokens.ids), tokens, start=0)


class SmallModel(nn.Module):
    """dense: the mean; sparse: a weight for each token; multi: a row for each token."""

    def __init__(self, dim: int = 16, *, dropout: float = 0.0) -> None:
        super().__init__()
        self.backbone = SmallBackbone(dim, dropout)
        self.weigh, self.project = nn.Linear(dim, 1), nn.Linear(dim, 8, bias=False)

    def forward(self, tokens: Tokens, *, is_query: bool) -> Encoded:
        return self.from_states(self.backbone(tokens), tokens, is_query=is_query)

    def groups(self, config: OptimiserConfig) -> list[dict[str, Any]]:
        return [{"params": list(self.parameters()), "lr": config.lr, "weight_decay": config.weight_decay}]

    def pad_for_mixer(self, tokens: Tokens, *, is_query: bool) -> Tokens:
        del is_query
        return tokens

    def from_states(self, states: Tensor, tokens: Tokens, *, is_query: bool) -> Encoded:
        del is_query
        weights = tokens.mask.unsqueeze(2).float()
        dense = F.normalize((states * weights).sum(dim=1) / weights.sum(dim=1), dim=1)
        sparse = torch.relu(self.weigh(states)[:, :, 0]) * tokens.mask
        multi = F.normalize(self.project(states), dim=2) * tokens.rows.unsqueeze(2)
        return Encoded(dense, sparse, tokens.ids, multi, tokens.rows)


@dataclass(frozen=True, slots=True)
class SumLoss:
    total: Tensor
    parts: dict[str, float]


def all_kinds(queries: Encoded, documents: Encoded, targets: BatchTargets) -> SumLoss:
    """The sum of the cross-entropies of each kind's scores."""
    assert queries.dense is not None
    assert documents.dense is not None
    assert queries.sparse is not None
    assert documents.sparse is not None
    assert queries.sparse_ids is not None
    assert documents.sparse_ids is not None
    assert queries.multi is not None
    assert documents.multi is not None
    assert documents.multi_mask is not None
    same = queries.sparse_ids[:, None, :, None] == documents.sparse_ids[None, :, None, :]
    products = queries.sparse[:, None, :, None] * documents.sparse[None, :, None, :]
    similar = torch.einsum("qid,pjd->qpij", queries.multi, documents.multi)
    similar = similar.masked_fill(~documents.multi_mask[None, :, None, :], -9)
    scores = {
        "dense": queries.dense @ documents.dense.T * 10,
        "sparse": (products * same).sum(dim=(2, 3)),
        "multi": similar.max(dim=3).values.sum(dim=2),
    }
    positive = torch.arange(len(queries.dense)) * targets.group
    losses = {
        name: F.cross_entropy(of_kind.masked_fill(~targets.allowed, -torch.inf), positive)
        for name, of_kind in scores.items()
    }
    total = torch.stack(list(losses.values())).sum()
    return SumLoss(total, {name: float(loss.detach()) for name, loss in losses.items()})

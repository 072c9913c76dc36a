"""`CrossModel`: a backbone that reads a query and a document together, and one of four heads; and its checkpoints.

`cls` ([CLS]-CE) computes the score from the first token. `emb` ([EMB]-CE) multiplies the states at two markers, one
after each text; both come from reading the pair, so nothing can be cached across pairs, but a matrix of such scores is
closer to low rank. `maxsim` compares each query token with its most similar document token. `classifier` is the
head of a sequence classifier that training starts from.
"""

from __future__ import annotations

import inspect
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from tokenizers import Tokenizer
from torch import Tensor, nn

from plait.encode.model_card import CROSS_KIND
from plait.errors import ConfigError, ModelError
from plait.rerank.pairs import PairTokenizer
from plait.train.backbone import Backbone, family_of, make_backbone
from plait.train.checkpoint import BACKBONE, MODEL_FILE, WEIGHTS, save_checkpoint
from plait.train.cross.config import CLASSIFIER, CrossConfig
from plait.train.cross.split_encoder import SplitEncoder
from plait.train.frozen_layers import StateSource
from plait.train.head_layers import make_layers
from plait.train.model import AdapterLayer, gather_rows, pool_states
from plait.train.tokenization import load_tokenizer


@dataclass(frozen=True, slots=True, eq=False)
class PairTokens:
    """A padded batch of pairs."""

    ids: Tensor  # (pairs, length) int64
    mask: Tensor  # (pairs, length) int64: 1 is attended
    type_ids: Tensor  # (pairs, length) int64: 0 for the query, 1 for the document


class CrossModel(nn.Module):
    """Pairs to scores (pairs,). `marker_ids` are those of the query and the document, for the head `emb`; `graph`
    computes the states of single texts if all layers are split layers."""

    def __init__(
        self,
        config: CrossConfig,
        backbone: Backbone,
        marker_ids: tuple[int, int] | None,
        *,
        graph: StateSource | None = None,
    ) -> None:
        super().__init__()
        if (marker_ids is not None) != (config.head == "emb"):
            raise ConfigError(
                f"the head is {config.head!r} and the marker ids are {marker_ids}; the head emb needs them, the others "
                f"have none"
            )
        self.config, self.backbone, self.marker_ids = config, backbone, marker_ids
        self.always_caches = graph is not None  # states of single texts come from the cache outside of training too
        if config.layers:
            truncate_layers(backbone, config.layers)
        self._split = None
        if config.split_layers:
            self._split = SplitEncoder(backbone, config.split_layers, bias=config.cross_attention_bias, graph=graph)
        self._gives_token_types = takes_token_types(backbone.encoder) and config.token_types
        self._takes_token_types = (
            self._split is not None or config.head == "maxsim" or config.joint_dim > 0 or self._gives_token_types
        )
        self.pooler: nn.Linear | None = None
        self.output: nn.Linear | None = None
        self.dropout = nn.Dropout(config.dropout)
        if config.head == "cls":
            self.pooler, self.output = nn.Linear(backbone.hidden, backbone.hidden), nn.Linear(backbone.hidden, 1)
        self.classifier: nn.Sequential | None = None
        if config.head == CLASSIFIER:
            self.classifier = make_layers(backbone.hidden, config.classifier_layers)
        self.joint = JointBlock(backbone.hidden, config.joint_dim, config.joint_layers) if config.joint_dim else None
        self.weigh: nn.Linear | None = None
        if config.head == "maxsim":
            self.weigh = nn.Linear(backbone.hidden, 1, bias=False)
            nn.init.zeros_(self.weigh.weight)  # all tokens have the same weight at first

    @property
    def takes_token_types(self) -> bool:
        """Whether scores depend on the type ids."""
        return self._takes_token_types

    def forward(self, tokens: PairTokens) -> Tensor:
        return self.from_states(self._states(tokens), tokens)

    def from_states(self, states: Tensor, tokens: PairTokens) -> Tensor:
        """Scores (pairs,) of the backbone's states (pairs, length, hidden)."""
        if self.classifier is not None:
            pooled = pool_states(states, tokens.mask.bool(), pooling=self.config.pooling)
            scores: Tensor = self.classifier[-1](self.dropout(self.classifier[:-1](pooled)))
            return scores[:, 0]
        at = self.head_positions(tokens.ids)
        if self.joint is not None:
            states = self.joint(states, tokens.mask, tokens.type_ids, at)
        elif at is not None:
            states = gather_rows(states, at)
        if self.weigh is not None:
            return weighted_maxsim(states, self.weigh(states)[:, :, 0], tokens) * self.config.scale
        return self.from_head_states(states)

    def from_head_states(self, states: Tensor) -> Tensor:
        """Scores (pairs,) of `cls` or `emb`, from the states (pairs, n, hidden) at `head_positions`."""
        if self.pooler is not None and self.output is not None:
            pooled = torch.tanh(self.pooler(states[:, 0]))
            scores: Tensor = self.output(self.dropout(pooled))[:, 0]
            return scores
        return (states[:, 0] * states[:, 1]).sum(dim=1) * self.config.scale

    def head_positions(self, ids: Tensor) -> Tensor | None:
        """(pairs, n): the positions that the head reads, the first or the two markers; None if it reads all."""
        if self.weigh is not None:
            return None
        if self.marker_ids is None:
            return torch.zeros_like(ids[:, :1])
        return torch.stack([(ids == marker).long().argmax(dim=1) for marker in self.marker_ids], dim=1)

    def text_states(self, ids: Tensor, mask: Tensor) -> Tensor:
        """(texts, length, hidden): the states of single texts after the split layers."""
        if self._split is None:
            raise ConfigError("this cross-encoder reads both texts together from its first layer; set split_layers")
        return self._split.states(ids, mask, torch.zeros_like(ids))

    def _states(self, tokens: PairTokens) -> Tensor:
        """(pairs, length, hidden)"""
        if self._split is not None:
            lower = self._split.cached_states if self.training or self.always_caches else self._split.states
            states = lower(tokens.ids, tokens.mask, tokens.type_ids)
            return self._split.upper_states(states, tokens.mask, tokens.type_ids)
        token_types = {"token_type_ids": tokens.type_ids} if self._gives_token_types else {}
        last: Tensor = self.backbone.encoder(
            input_ids=tokens.ids, attention_mask=tokens.mask, **token_types
        ).last_hidden_state
        return last


class JointBlock(nn.Module):
    """Small layers above an encoder, in which every token sees both texts of a pair. They are narrower than the encoder
    and add nothing to its states at first, so a model starts as good as the encoder, at hardly any cost."""

    def __init__(self, hidden: int, dim: int, n_layers: int = 1) -> None:
        super().__init__()
        self.norm, self.down = nn.LayerNorm(hidden), nn.Linear(hidden, dim)
        self.side = nn.Embedding(2, dim)
        self.layers = nn.ModuleList(AdapterLayer(dim) for _ in range(n_layers))
        self.up = nn.Linear(dim, hidden, bias=False)
        nn.init.normal_(self.side.weight, std=0.1)
        nn.init.zeros_(self.up.weight)

    def enter(self, states: Tensor, type_ids: Tensor) -> Tensor:
        """(..., hidden) to (..., dim): the input of the layers. A token's row depends on its own text alone."""
        rows: Tensor = self.down(self.norm(states)) + self.side(type_ids)
        return rows

    def added(self, rows: Tensor, mask: Tensor, at: Tensor | None = None) -> Tensor:
        """What the layers add to the states, from the rows of `enter`: (pairs, length, hidden), or (pairs, n, hidden)
        at the positions `at` (pairs, n)."""
        for layer in self.layers[:-1]:
            rows = layer(rows, mask)
        added: Tensor = self.up(self.layers[-1](rows, mask, at))
        return added

    def forward(self, states: Tensor, mask: Tensor, type_ids: Tensor, at: Tensor | None = None) -> Tensor:
        """(pairs, length, hidden) to the same, or to (pairs, n, hidden) at the positions `at` (pairs, n)."""
        residual = states if at is None else gather_rows(states, at)
        return residual + self.added(self.enter(states, type_ids), mask, at)


def weighted_maxsim(states: Tensor, weights: Tensor, tokens: PairTokens) -> Tensor:
    """(pairs,): the cosine of each query token with its most similar document token, averaged by the softmax of weights
    (pairs, length) over the query."""
    document_mask, query_mask = tokens.mask * tokens.type_ids, tokens.mask * (1 - tokens.type_ids)
    unit = F.normalize(states, dim=2)
    return weighted_maxsim_between((unit, query_mask), (unit, document_mask), weights)


def weighted_maxsim_between(query: tuple[Tensor, Tensor], document: tuple[Tensor, Tensor], weights: Tensor) -> Tensor:
    """The same from unit vectors (pairs, length, hidden) and mask (pairs, length) of the query and of the document."""
    similarities = query[0] @ document[0].transpose(1, 2)
    best = similarities.masked_fill(~document[1].bool().unsqueeze(1), -1.0).amax(dim=2)
    shares = weights.masked_fill(~query[1].bool(), torch.finfo(weights.dtype).min).softmax(dim=1)
    return (best * shares).sum(dim=1)


def takes_token_types(encoder: Any) -> bool:
    """Whether a transformers encoder has token type embeddings for two texts."""
    known = inspect.signature(encoder.forward).parameters
    return "token_type_ids" in known and getattr(encoder.config, "type_vocab_size", 0) > 1


def truncate_layers(backbone: Backbone, n: int) -> None:
    """Removes all layers of the backbone but the first n."""
    layers = family_of(backbone.encoder).layers(backbone.encoder)
    if n > len(layers):
        raise ConfigError(f"layers is {n}, and the backbone has {len(layers)}; use that many or fewer")
    del layers[n:]
    backbone.encoder.config.num_hidden_layers = n


def save_cross(model: CrossModel, tokenizer: Tokenizer, folder: Path) -> None:
    """Writes a new folder, whole or not at all; ConfigError if `folder` exists."""
    save_checkpoint(model, tokenizer, folder, {CROSS_KIND: model.config.to_json()})


def is_cross_checkpoint(folder: Path) -> bool:
    """Whether `save_cross` wrote this folder."""
    try:
        raw = json.loads((folder / MODEL_FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(raw, dict) and CROSS_KIND in raw


def load_cross_checkpoint(folder: Path) -> tuple[CrossModel, Tokenizer]:
    """The model and tokenizer that `save_cross` wrote; ModelError if a part is missing or damaged."""
    from safetensors import SafetensorError
    from safetensors.torch import load_model
    from transformers import AutoConfig

    try:
        raw = json.loads((folder / MODEL_FILE).read_text(encoding="utf-8"))
        config = CrossConfig.from_json(raw[CROSS_KIND])
        tokenizer = load_tokenizer(folder)
        marker_ids = PairTokenizer(tokenizer, config.pair_input).marker_ids
        model = CrossModel(config, make_backbone(AutoConfig.from_pretrained(str(folder / BACKBONE))), marker_ids)
        load_model(model, str(folder / WEIGHTS))
    except (OSError, ValueError, KeyError, TypeError, RuntimeError, SafetensorError) as error:
        raise ModelError(f"the cross-encoder in {folder} cannot be loaded: {error}; save it again") from error
    return model.eval(), tokenizer

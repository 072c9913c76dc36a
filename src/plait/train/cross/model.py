"""`CrossModel`: a backbone that reads both texts at once, and one of three heads.

[CLS]-CE takes one number from the first token. [EMB]-CE multiplies the outputs at two markers, one after each text.
Both vectors come from the joint reading, so nothing can be kept between pairs; but a matrix of such scores is smoother.
The third sets every token of the query beside its nearest of the document.
"""

from __future__ import annotations

import inspect
import json
import os
import shutil
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
from plait.train.checkpoint import BACKBONE, DESCRIPTION, FORMAT, WEIGHTS
from plait.train.cross.config import CrossConfig
from plait.train.cross.split_encoder import Apart
from plait.train.frozen_layers import Source
from plait.train.model import Layer, taken
from plait.train.tokenization import TOKENIZER_NAME, load_tokenizer


class JointBlock(nn.Module):
    """States of two texts, read apart, to states of the pair."""

    def __init__(self, hidden: int, dim: int, n_layers: int = 1) -> None:
        super().__init__()
        self.norm, self.down = nn.LayerNorm(hidden), nn.Linear(hidden, dim)
        self.side = nn.Embedding(2, dim)
        self.layers = nn.ModuleList(Layer(dim) for _ in range(n_layers))
        self.up = nn.Linear(dim, hidden, bias=False)
        nn.init.normal_(self.side.weight, std=0.1)
        nn.init.zeros_(self.up.weight)

    def enter(self, states: Tensor, sides: Tensor) -> Tensor:
        """(..., hidden) to (..., dim): what the layers begin with. A token's row depends on its own text alone."""
        rows: Tensor = self.down(self.norm(states)) + self.side(sides)
        return rows

    def added(self, rows: Tensor, mask: Tensor, at: Tensor | None = None) -> Tensor:
        """What the pair adds to states, from the rows of `enter`: (pairs, length, hidden), or (pairs, n, hidden) of the
        places `at` (pairs, n) alone."""
        for layer in self.layers[:-1]:
            rows = layer(rows, mask)
        found: Tensor = self.up(self.layers[-1](rows, mask, at))
        return found

    def forward(self, states: Tensor, mask: Tensor, sides: Tensor, at: Tensor | None = None) -> Tensor:
        """(pairs, length, hidden) to the same, or to (pairs, n, hidden) of the places `at` (pairs, n)."""
        kept = states if at is None else taken(states, at)
        return kept + self.added(self.enter(states, sides), mask, at)


@dataclass(frozen=True, slots=True, eq=False)
class PairTokens:
    """A padded batch of pairs."""

    ids: Tensor  # (pairs, length) int64
    mask: Tensor  # (pairs, length) int64: 1 is attended
    sides: Tensor  # (pairs, length) int64: 0 the query's, 1 the document's


class CrossModel(nn.Module):
    """Pairs to scores (pairs,). `marker_ids` are those of [EMB]-CE, of the query and of the document; `graph` gives the
    states of texts that all layers read apart."""

    def __init__(
        self,
        config: CrossConfig,
        backbone: Backbone,
        marker_ids: tuple[int, int] | None,
        *,
        graph: Source | None = None,
    ) -> None:
        super().__init__()
        if (marker_ids is not None) != (config.head == "emb"):
            raise ConfigError(
                f"the head {config.head!r} and the markers {marker_ids} do not fit: emb has them, cls not"
            )
        self.config, self.backbone, self.marker_ids = config, backbone, marker_ids
        self.keeps = graph is not None  # whether states of texts that were read apart are kept out of training too
        if config.layers:
            keep_layers(backbone, config.layers)
        self._apart = Apart(backbone, config.apart, bridge=config.bridge, graph=graph) if config.apart else None
        self._takes_sides = (
            self._apart is not None or config.head == "maxsim" or config.joint > 0 or takes_sides(backbone.encoder)
        )
        self.pooler: nn.Linear | None = None
        self.output: nn.Linear | None = None
        self.dropout = nn.Dropout(config.dropout)
        if config.head == "cls":
            self.pooler, self.output = nn.Linear(backbone.hidden, backbone.hidden), nn.Linear(backbone.hidden, 1)
        self.joint = JointBlock(backbone.hidden, config.joint, config.joint_layers) if config.joint else None
        self.weigh: nn.Linear | None = None
        if config.head == "maxsim":
            self.weigh = nn.Linear(backbone.hidden, 1, bias=False)
            nn.init.zeros_(self.weigh.weight)  # all tokens count alike at first

    @property
    def takes_sides(self) -> bool:
        """Whether the model is told which text a token is of."""
        return self._takes_sides

    def forward(self, tokens: PairTokens) -> Tensor:
        return self.from_states(self._states(tokens), tokens)

    def from_states(self, states: Tensor, tokens: PairTokens) -> Tensor:
        """Scores (pairs,) of states (pairs, length, hidden) that the backbone gave."""
        at = self.places(tokens.ids)
        if self.joint is not None:
            states = self.joint(states, tokens.mask, tokens.sides, at)
        elif at is not None:
            states = taken(states, at)
        if self.weigh is not None:
            return nearest(states, self.weigh(states)[:, :, 0], tokens) * self.config.scale
        return self.from_places(states)

    def from_places(self, states: Tensor) -> Tensor:
        """Scores (pairs,) of `cls` or `emb`, from the states (pairs, n, hidden) of its places alone."""
        if self.pooler is not None and self.output is not None:
            pooled = torch.tanh(self.pooler(states[:, 0]))
            scores: Tensor = self.output(self.dropout(pooled))[:, 0]
            return scores
        return (states[:, 0] * states[:, 1]).sum(dim=1) * self.config.scale

    def places(self, ids: Tensor) -> Tensor | None:
        """(pairs, n): the tokens whose states the head reads, the first or the two markers; None if it reads all."""
        if self.weigh is not None:
            return None
        if self.marker_ids is None:
            return torch.zeros_like(ids[:, :1])
        return torch.stack([(ids == marker).long().argmax(dim=1) for marker in self.marker_ids], dim=1)

    def alone(self, ids: Tensor, mask: Tensor) -> Tensor:
        """(texts, length, hidden): states of single texts after the layers that read them apart."""
        if self._apart is None:
            raise ConfigError("this cross-encoder reads both texts of a pair together from its first layer on")
        return self._apart.states(ids, mask, torch.zeros_like(ids))

    def _states(self, tokens: PairTokens) -> Tensor:
        """(pairs, length, hidden)"""
        if self._apart is not None:
            lower = self._apart.kept_states if self.training or self.keeps else self._apart.states
            states = lower(tokens.ids, tokens.mask, tokens.sides)
            return self._apart.joint(states, tokens.mask, tokens.sides)
        given = {"token_type_ids": tokens.sides} if takes_sides(self.backbone.encoder) else {}
        found: Tensor = self.backbone.encoder(
            input_ids=tokens.ids, attention_mask=tokens.mask, **given
        ).last_hidden_state
        return found


def nearest(states: Tensor, weights: Tensor, tokens: PairTokens) -> Tensor:
    """(pairs,): the cosine of each token of the query with its nearest of the document, averaged by the softmax of
    weights (pairs, length) over the query."""
    held, asked = tokens.mask * tokens.sides, tokens.mask * (1 - tokens.sides)
    unit = F.normalize(states, dim=2)
    return nearest_between((unit, asked), (unit, held), weights)


def nearest_between(asked: tuple[Tensor, Tensor], held: tuple[Tensor, Tensor], weights: Tensor) -> Tensor:
    """The same of the query's unit vectors and mask (pairs, length) and the document's, which may be other tensors."""
    nearest_each = (asked[0] @ held[0].transpose(1, 2)).masked_fill(~held[1].bool().unsqueeze(1), -1.0).amax(dim=2)
    shares = weights.masked_fill(~asked[1].bool(), torch.finfo(weights.dtype).min).softmax(dim=1)
    return (nearest_each * shares).sum(dim=1)


def takes_sides(encoder: Any) -> bool:
    """Whether an encoder of transformers tells two texts apart by number."""
    known = inspect.signature(encoder.forward).parameters
    return "token_type_ids" in known and getattr(encoder.config, "type_vocab_size", 0) > 1


def keep_layers(backbone: Backbone, n: int) -> None:
    """Takes all but the first n layers out of the backbone."""
    layers = family_of(backbone.encoder).layers(backbone.encoder)
    if n > len(layers):
        raise ConfigError(f"layers is {n}, and the backbone has {len(layers)}; take as many or fewer")
    del layers[n:]
    backbone.encoder.config.num_hidden_layers = n


def save_cross(model: CrossModel, tokenizer: Tokenizer, folder: Path) -> None:
    """Writes a new folder, whole or not at all; ConfigError if there is something in its place."""
    from safetensors.torch import save_model

    if folder.exists():
        raise ConfigError(f"{folder} exists; give a folder that does not, so that no checkpoint is lost")
    draft = folder.with_name(f"{folder.name}.new-{os.getpid()}")
    draft.mkdir(parents=True)
    try:
        save_model(model, str(draft / WEIGHTS))
        model.backbone.encoder.config.save_pretrained(str(draft / BACKBONE))
        tokenizer.save_cross(str(draft / TOKENIZER_NAME))
        described = {"format": FORMAT, CROSS_KIND: model.config.to_json()}
        (draft / DESCRIPTION).write_text(json.dumps(described, indent=2) + "\n", encoding="utf-8")
        draft.replace(folder)
    except BaseException:
        shutil.rmtree(draft, ignore_errors=True)
        raise


def is_cross_checkpoint(folder: Path) -> bool:
    """Whether `save` wrote this folder."""
    try:
        raw = json.loads((folder / DESCRIPTION).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(raw, dict) and CROSS_KIND in raw


def load_cross_checkpoint(folder: Path) -> tuple[CrossModel, Tokenizer]:
    """What `save` wrote; ModelError if it is not all there."""
    from safetensors import SafetensorError
    from safetensors.torch import load_model
    from transformers import AutoConfig

    try:
        raw = json.loads((folder / DESCRIPTION).read_text(encoding="utf-8"))
        config = CrossConfig.from_json(raw[CROSS_KIND])
        tokenizer = load_tokenizer(folder)
        marker_ids = PairTokenizer(tokenizer, config.frame).marker_ids
        model = CrossModel(config, make_backbone(AutoConfig.from_pretrained(str(folder / BACKBONE))), marker_ids)
        load_model(model, str(folder / WEIGHTS))
    except (OSError, ValueError, KeyError, TypeError, RuntimeError, SafetensorError) as error:
        raise ModelError(f"{folder} holds no cross-encoder that can be loaded: {error}; save it again") from error
    return model.eval(), tokenizer

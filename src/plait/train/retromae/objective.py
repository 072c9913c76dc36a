"""The RetroMAE model and its loss. The encoder learns to fill in masked words; from its first state alone and a few
words in sight, a decoder of one layer must rebuild the rest. The decoder is thrown away afterwards."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from plait.errors import ModelError
from plait.train.backbone import Backbone
from plait.train.encoded import Tokens
from plait.train.families import family_of
from plait.train.retromae.masking import IGNORED, MaskedBatch


@dataclass(frozen=True, slots=True, eq=False)
class RetroMaeLoss:
    """Both halves weigh the same."""

    encoder: Tensor
    decoder: Tensor

    @property
    def total(self) -> Tensor:
        return self.encoder + self.decoder

    @property
    def parts(self) -> dict[str, float]:
        return {"encoder": float(self.encoder.detach()), "decoder": float(self.decoder.detach())}


class EnhancedDecoder(nn.Module):
    """One transformer layer in which queries are not the keys. The residual connection follows the queries, so that
    nothing of a token reaches the row that must predict it."""

    def __init__(self, hidden: int, n_heads: int, intermediate: int, *, dropout: float, eps: float) -> None:
        super().__init__()
        self.n_heads = n_heads
        self.query, self.key, self.value, self.out = (nn.Linear(hidden, hidden) for _ in range(4))
        self.up, self.down = nn.Linear(hidden, intermediate), nn.Linear(intermediate, hidden)
        self.after_attention, self.after_feed = nn.LayerNorm(hidden, eps=eps), nn.LayerNorm(hidden, eps=eps)
        self.dropout = nn.Dropout(dropout)

    def forward(self, queries: Tensor, keys: Tensor, visible: Tensor) -> Tensor:
        """Queries and keys (items, length, hidden), visible (items, length, length) bool; every row sees something."""
        heads = (self._heads(self.query(queries)), self._heads(self.key(keys)), self._heads(self.value(keys)))
        found = F.scaled_dot_product_attention(*heads, attn_mask=visible.unsqueeze(1))
        attended = self.after_attention(queries + self.dropout(self.out(found.transpose(1, 2).flatten(start_dim=2))))
        fed: Tensor = self.after_feed(attended + self.dropout(self.down(F.gelu(self.up(attended)))))
        return fed

    def _heads(self, states: Tensor) -> Tensor:
        items, length, hidden = states.shape
        return states.reshape(items, length, self.n_heads, hidden // self.n_heads).transpose(1, 2)


class RetroMae(nn.Module):
    """Pre-training of the encoder inside a transformers masked language model, whose embeddings and prediction head the
    decoder shares. Afterwards `backbone` is what is kept."""

    def __init__(self, masked_lm: nn.Module) -> None:
        super().__init__()
        model: Any = masked_lm
        self.backbone = Backbone(model.base_model)
        self.head: Any = model.cls if hasattr(model, "cls") else getattr(model, "lm_head", None)
        config = model.config
        if self.head is None or family_of(model.base_model).positions is None:
            raise ModelError(
                f"RetroMAE needs absolute positions and a masked language model's head; a {config.model_type!r} model "
                "lacks one of them. Take a BERT, RoBERTa, XLM-R or MPNet"
            )
        self.decoder = EnhancedDecoder(
            config.hidden_size,
            config.num_attention_heads,
            config.intermediate_size,
            dropout=config.hidden_dropout_prob,
            eps=config.layer_norm_eps,
        )

    def forward(self, batch: MaskedBatch) -> RetroMaeLoss:
        states = self.backbone(Tokens(batch.ids, batch.mask, batch.mask))
        rebuilt = self.decoder(*self._streams(states[:, :1], batch.plain_ids), batch.visible)
        return RetroMaeLoss(
            encoder=self._prediction_loss(states, batch.encoder_labels),
            decoder=self._prediction_loss(rebuilt, batch.decoder_labels),
        )

    def _streams(self, sentence: Tensor, ids: Tensor) -> tuple[Tensor, Tensor]:
        """Queries: the sentence vector (items, 1, hidden) plus bare positions. Keys: the sentence vector, then whole
        embeddings of the text as it was."""
        encoder = self.backbone.encoder
        family = family_of(encoder)
        assert family.positions is not None
        queries = sentence + family.positions(encoder, ids.shape[1])
        return queries, torch.cat([sentence, family.embed(encoder, ids)[:, 1:]], dim=1)

    def _prediction_loss(self, states: Tensor, labels: Tensor) -> Tensor:
        """Mean cross-entropy over labelled positions; 0 if there are none. Only those go through the vocabulary."""
        labelled = labels != IGNORED
        if not labelled.any():
            return states.sum() * 0
        return F.cross_entropy(self.head(states[labelled]), labels[labelled])


def load_masked_lm(source: str) -> nn.Module:
    """The masked language model in a folder, or of a hub name, in float32."""
    from transformers import AutoModelForMaskedLM

    try:
        model: nn.Module = AutoModelForMaskedLM.from_pretrained(source, dtype=torch.float32)
    except (OSError, ValueError) as error:
        raise ModelError(f"there is no masked language model {source!r}: {error}") from error
    return model

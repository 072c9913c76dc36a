"""The RetroMAE model and its loss. The encoder learns to fill in masked words; from its first state alone and a few
words in sight, a decoder of one layer must rebuild the rest. The decoder is thrown away afterwards."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from tokenizers import Tokenizer
from torch import Tensor, nn

from plait.errors import ConfigError, ModelError
from plait.train.backbone import Backbone, family_of
from plait.train.tensors import Tokens

IGNORED = -100  # a position that has no label
SPECIAL = -1  # the word number of a token that belongs to no word
MOST_MASKS = 256  # how many masks are drawn for the rows of one text to share

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class MaskingConfig:
    """How much is hidden. A word is hidden whole or not at all."""

    encoder_rate: float = 0.3
    decoder_rate: float = 0.5
    mask_id: int
    n_ids: int  # the size of the vocabulary, for tokens at random

    def __post_init__(self) -> None:
        for name, rate in (("encoder_rate", self.encoder_rate), ("decoder_rate", self.decoder_rate)):
            if not 0 < rate < 1:
                raise ConfigError(f"{name} is {rate}; it must be between 0 and 1")


@dataclass(frozen=True, slots=True, eq=False)
class WordedText:
    """The ids of a text, special tokens included, and the word that each belongs to."""

    ids: Ints  # (length,)
    words: Ints  # (length,); SPECIAL for a special token


@dataclass(frozen=True, slots=True, eq=False)
class MaskedBatch:
    """A padded batch. Positions of padding are not attended and have no label."""

    ids: Tensor  # (items, length): what the encoder reads, corrupted
    mask: Tensor  # (items, length) bool
    encoder_labels: Tensor  # (items, length): the ids that were hidden, IGNORED elsewhere
    plain_ids: Tensor  # (items, length): the text as it was
    decoder_labels: Tensor  # (items, length): every id but the first and the last
    visible: Tensor  # (items, length, length) bool: row i of the decoder may look at column j


def read_words(tokenizer: Tokenizer, texts: Sequence[str], *, length: int) -> list[WordedText]:
    """Texts of at most `length` tokens, special ones included, with their words as the tokeniser splits them."""
    own = Tokenizer.from_str(tokenizer.to_str())
    own.no_padding()
    own.enable_truncation(length)
    found = []
    for encoding in own.encode_batch(list(texts)):
        words = [SPECIAL if special or word is None else word
                 for word, special in zip(encoding.word_ids, encoding.special_tokens_mask, strict=True)]  # fmt: skip
        found.append(WordedText(np.array(encoding.ids, np.int64), np.array(words, np.int64)))
    return found


def whole_word_masks(words: Ints, n_masks: int, *, rate: float, rng: np.random.Generator) -> Bools:
    """(n_masks, length): random sets of whole words that hide at most `rate` of the tokens, and at least one token's
    worth. Words come in random order; one that would hide too much is passed over. Special tokens stay in sight."""
    hidden = np.zeros((n_masks, len(words)), np.bool_)
    names = np.unique(words[words != SPECIAL])
    if len(names) == 0:
        return hidden
    owned = words[None, :] == names[:, None]  # (words, length)
    sizes = owned.sum(axis=1)
    budget = max(1, round(rate * len(words)))
    spent = np.zeros(n_masks, np.int64)
    # One word of every mask at a time: the masks of a text are drawn together, not one after the other.
    for word in rng.permuted(np.tile(np.arange(len(names)), (n_masks, 1)), axis=1).T:
        fits = spent + sizes[word] <= budget
        hidden |= owned[word] & fits[:, None]
        spent += np.where(fits, sizes[word], 0)
    return hidden


def corrupt(ids: Ints, hidden: Bools, config: MaskingConfig, rng: np.random.Generator) -> Ints:
    """The ids with hidden ones replaced: 80 % by the mask token, 10 % by a token at random, 10 % by themselves."""
    draw = rng.random(len(ids))
    corrupted = np.where(hidden & (draw < 0.8), config.mask_id, ids)
    at_random = rng.integers(0, config.n_ids, len(ids))
    return np.where(hidden & (draw >= 0.8) & (draw < 0.9), at_random, corrupted).astype(np.int64)


def visibility(words: Ints, *, rate: float, rng: np.random.Generator) -> Bools:
    """(length, length): what each row of the decoder sees. A row hides one of up to MOST_MASKS random sets of words,
    and always itself: what it must predict. The first column, which will be the sentence vector, is hidden from the
    first row alone."""
    length = len(words)
    masks = whole_word_masks(words, min(length, MOST_MASKS), rate=rate, rng=rng)
    visible: Bools = ~masks[rng.integers(0, len(masks), length)]
    np.fill_diagonal(visible, False)
    return visible


def mask_batch(texts: Sequence[WordedText], config: MaskingConfig, rng: np.random.Generator) -> MaskedBatch:
    """A padded batch of texts with everything drawn that is hidden."""
    longest = max((len(text.ids) for text in texts), default=0)
    shape = (len(texts), longest)
    ids, plain, mask = np.zeros(shape, np.int64), np.zeros(shape, np.int64), np.zeros(shape, np.bool_)
    for_encoder, for_decoder = np.full(shape, IGNORED, np.int64), np.full(shape, IGNORED, np.int64)
    visible = np.zeros((*shape, longest), np.bool_)
    # Rows of padding see the first column: an attention over nothing is no number.
    visible[:, :, :1] = True
    for item, text in enumerate(texts):
        length = len(text.ids)
        hidden = whole_word_masks(text.words, 1, rate=config.encoder_rate, rng=rng)[0]
        ids[item, :length] = corrupt(text.ids, hidden, config, rng)
        plain[item, :length], mask[item, :length] = text.ids, True
        for_encoder[item, :length] = np.where(hidden, text.ids, IGNORED)
        for_decoder[item, 1 : length - 1] = text.ids[1:-1]
        visible[item, :length, :length] = visibility(text.words, rate=config.decoder_rate, rng=rng)
    tensors = (torch.from_numpy(array) for array in (ids, mask, for_encoder, plain, for_decoder, visible))
    return MaskedBatch(*tensors)


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

"""RetroMAE: pre-training that makes one vector represent a whole text. The encoder learns to predict masked words; a
decoder of one layer must rebuild the text from the encoder's first state and a few visible words. The decoder is thrown
away afterwards. Masks are drawn with a numpy generator, one text at a time."""

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

IGNORED = -100  # the label of a position that is not predicted
SPECIAL = -1  # the word number of a token that belongs to no word
MAX_MASKS = 256  # drawn for one text; its rows share them

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class MaskingConfig:
    """Which share of the tokens is masked. Words are masked as a whole."""

    encoder_rate: float = 0.3
    decoder_rate: float = 0.5
    mask_id: int
    n_ids: int  # the size of the vocabulary, for random tokens

    def __post_init__(self) -> None:
        for name, rate in (("encoder_rate", self.encoder_rate), ("decoder_rate", self.decoder_rate)):
            if not 0 < rate < 1:
                raise ConfigError(f"{name} is {rate}; it must be between 0 and 1")


@dataclass(frozen=True, slots=True, eq=False)
class WordedText:
    """The ids of a text, special tokens included, and the number of the word that each belongs to."""

    ids: Ints  # (length,)
    words: Ints  # (length,); SPECIAL for a special token


@dataclass(frozen=True, slots=True, eq=False)
class MaskedBatch:
    """A padded batch. Padding is not attended and has no label."""

    ids: Tensor  # (items, length): the encoder's input, corrupted
    mask: Tensor  # (items, length) bool
    encoder_labels: Tensor  # (items, length): the masked ids, IGNORED elsewhere
    plain_ids: Tensor  # (items, length): the original text
    decoder_labels: Tensor  # (items, length): every id except the first and the last
    visible: Tensor  # (items, length, length) bool: row i of the decoder may attend to column j


def read_words(tokenizer: Tokenizer, texts: Sequence[str], *, length: int) -> list[WordedText]:
    """Texts of at most `length` tokens, special ones included, with the words into which the tokenizer splits them."""
    copy = Tokenizer.from_str(tokenizer.to_str())
    copy.no_padding()
    copy.enable_truncation(length)
    worded = []
    for encoding in copy.encode_batch(list(texts)):
        words = [SPECIAL if special or word is None else word
                 for word, special in zip(encoding.word_ids, encoding.special_tokens_mask, strict=True)]  # fmt: skip
        worded.append(WordedText(np.array(encoding.ids, np.int64), np.array(words, np.int64)))
    return worded


def whole_word_masks(words: Ints, n_masks: int, *, rate: float, rng: np.random.Generator) -> Bools:
    """(n_masks, length): random sets of whole words that mask at most `rate` of the tokens, or one token if that is
    less than one. Words are tried in random order; one that would exceed the rate is skipped. Special tokens are never
    masked."""
    masked = np.zeros((n_masks, len(words)), np.bool_)
    names = np.unique(words[words != SPECIAL])
    if len(names) == 0:
        return masked
    in_word = words[None, :] == names[:, None]  # (words, length)
    sizes = in_word.sum(axis=1)
    budget = max(1, round(rate * len(words)))
    spent = np.zeros(n_masks, np.int64)
    # One word of every mask at a time: all masks of a text are drawn together, which is faster.
    for word in rng.permuted(np.tile(np.arange(len(names)), (n_masks, 1)), axis=1).T:
        fits = spent + sizes[word] <= budget
        masked |= in_word[word] & fits[:, None]
        spent += np.where(fits, sizes[word], 0)
    return masked


def corrupt(ids: Ints, masked: Bools, config: MaskingConfig, rng: np.random.Generator) -> Ints:
    """The ids with masked ones replaced: 80 % by the mask token, 10 % by a random token, 10 % unchanged."""
    draw = rng.random(len(ids))
    corrupted = np.where(masked & (draw < 0.8), config.mask_id, ids)
    random_ids = rng.integers(0, config.n_ids, len(ids))
    return np.where(masked & (draw >= 0.8) & (draw < 0.9), random_ids, corrupted).astype(np.int64)


def visibility(words: Ints, *, rate: float, rng: np.random.Generator) -> Bools:
    """(length, length): which columns each row of the decoder may attend to. A row masks one of up to MAX_MASKS random
    sets of words, and itself, which it must predict. The first column, the sentence vector, is masked for the first row
    only."""
    length = len(words)
    masks = whole_word_masks(words, min(length, MAX_MASKS), rate=rate, rng=rng)
    visible: Bools = ~masks[rng.integers(0, len(masks), length)]
    np.fill_diagonal(visible, False)
    return visible


def mask_batch(texts: Sequence[WordedText], config: MaskingConfig, rng: np.random.Generator) -> MaskedBatch:
    """A padded batch of texts with random masks."""
    longest = max((len(text.ids) for text in texts), default=0)
    shape = (len(texts), longest)
    ids, plain, mask = np.zeros(shape, np.int64), np.zeros(shape, np.int64), np.zeros(shape, np.bool_)
    encoder_labels, decoder_labels = np.full(shape, IGNORED, np.int64), np.full(shape, IGNORED, np.int64)
    visible = np.zeros((*shape, longest), np.bool_)
    # Rows of padding see the first column: attention over no column would be NaN.
    visible[:, :, :1] = True
    for item, text in enumerate(texts):
        length = len(text.ids)
        masked = whole_word_masks(text.words, 1, rate=config.encoder_rate, rng=rng)[0]
        ids[item, :length] = corrupt(text.ids, masked, config, rng)
        plain[item, :length], mask[item, :length] = text.ids, True
        encoder_labels[item, :length] = np.where(masked, text.ids, IGNORED)
        decoder_labels[item, 1 : length - 1] = text.ids[1:-1]
        visible[item, :length, :length] = visibility(text.words, rate=config.decoder_rate, rng=rng)
    tensors = (torch.from_numpy(array) for array in (ids, mask, encoder_labels, plain, decoder_labels, visible))
    return MaskedBatch(*tensors)


@dataclass(frozen=True, slots=True, eq=False)
class RetroMaeLoss:
    """The losses of encoder and decoder; the total is their sum."""

    encoder: Tensor
    decoder: Tensor

    @property
    def total(self) -> Tensor:
        return self.encoder + self.decoder

    @property
    def parts(self) -> dict[str, float]:
        return {"encoder": float(self.encoder.detach()), "decoder": float(self.decoder.detach())}


class EnhancedDecoder(nn.Module):
    """One transformer layer whose queries differ from its keys. The residual connection follows the queries, so no
    information about a token reaches the row that must predict it."""

    def __init__(self, hidden: int, n_heads: int, intermediate: int, *, dropout: float, eps: float) -> None:
        super().__init__()
        self.n_heads = n_heads
        self.query, self.key, self.value, self.out = (nn.Linear(hidden, hidden) for _ in range(4))
        self.up, self.down = nn.Linear(hidden, intermediate), nn.Linear(intermediate, hidden)
        self.after_attention, self.after_feed = nn.LayerNorm(hidden, eps=eps), nn.LayerNorm(hidden, eps=eps)
        self.dropout = nn.Dropout(dropout)

    def forward(self, queries: Tensor, keys: Tensor, visible: Tensor) -> Tensor:
        """Queries and keys (items, length, hidden), visible (items, length, length) bool. Every row must see at
        least one column."""
        heads = (self._heads(self.query(queries)), self._heads(self.key(keys)), self._heads(self.value(keys)))
        mixed = F.scaled_dot_product_attention(*heads, attn_mask=visible.unsqueeze(1))
        attended = self.after_attention(queries + self.dropout(self.out(mixed.transpose(1, 2).flatten(start_dim=2))))
        fed: Tensor = self.after_feed(attended + self.dropout(self.down(F.gelu(self.up(attended)))))
        return fed

    def _heads(self, states: Tensor) -> Tensor:
        items, length, hidden = states.shape
        return states.reshape(items, length, self.n_heads, hidden // self.n_heads).transpose(1, 2)


class RetroMae(nn.Module):
    """Pre-trains the encoder inside a transformers masked language model, whose embeddings and prediction head the
    decoder shares. `backbone` is the result."""

    def __init__(self, masked_lm: nn.Module) -> None:
        super().__init__()
        model: Any = masked_lm
        self.backbone = Backbone(model.base_model)
        self.head: Any = model.cls if hasattr(model, "cls") else getattr(model, "lm_head", None)
        config = model.config
        if self.head is None or family_of(model.base_model).positions is None:
            raise ModelError(
                f"RetroMAE needs absolute positions and a masked language model's head; a {config.model_type!r} model "
                "lacks one of them; use a BERT, RoBERTa, XLM-R or MPNet"
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
        """Queries: the sentence vector (items, 1, hidden) plus position embeddings. Keys: the sentence vector, then the
        full embeddings of the original text."""
        encoder = self.backbone.encoder
        family = family_of(encoder)
        assert family.positions is not None
        queries = sentence + family.positions(encoder, ids.shape[1])
        return queries, torch.cat([sentence, family.embed(encoder, ids)[:, 1:]], dim=1)

    def _prediction_loss(self, states: Tensor, labels: Tensor) -> Tensor:
        """Mean cross-entropy over labelled positions; 0 if there are none. The head is applied to those only."""
        labelled = labels != IGNORED
        if not labelled.any():
            return states.sum() * 0
        return F.cross_entropy(self.head(states[labelled]), labels[labelled])


def load_masked_lm(source: str) -> nn.Module:
    """The masked language model of a folder or hub name, in float32."""
    from transformers import AutoModelForMaskedLM

    try:
        model: nn.Module = AutoModelForMaskedLM.from_pretrained(source, dtype=torch.float32)
    except (OSError, ValueError) as error:
        raise ModelError(f"there is no masked language model {source!r}: {error}") from error
    return model

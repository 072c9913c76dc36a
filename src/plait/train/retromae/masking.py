"""What is hidden from whom: whole words of the encoder's text, and for each row of the decoder another part of it.
Drawn with a numpy generator, a text at a time; the model is in objective.py."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from tokenizers import Tokenizer
from torch import Tensor

from plait.errors import ConfigError

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

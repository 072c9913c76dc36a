"""Text to `Tokens`, with the tokenization rules of search: the reader is that of plait.encode.tokenizer, and a test
checks that training keeps the same rows as `OnnxEncoder`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from tokenizers import AddedToken, Tokenizer

from plait.encode.load import find_model, known_models
from plait.encode.tokenizer import ModelTokenizer
from plait.errors import ModelError
from plait.train.model_config import ModelConfig
from plait.train.tensors import Tokens

TOKENIZER_NAME = "tokenizer.json"


class TextTokenizer:
    """Turns queries and documents into tokens as `config` says. It works on a copy of the tokenizer, because it turns
    padding and truncation off."""

    def __init__(self, tokenizer: Tokenizer, config: ModelConfig) -> None:
        self.tokenizer = Tokenizer.from_str(tokenizer.to_str())
        self._config, self._reader = config, ModelTokenizer(self.tokenizer, config)
        for reading in (config.query, config.document):
            _refuse_split_marker(self.tokenizer, reading.prefix)
        multi, expansion = config.multi, config.query.expansion
        special = [] if multi is None or multi.special_rows else self._reader.special_ids
        skipped = [self._reader.token_id(token) for token in multi.skip] if multi else []
        skipped_in_queries = skipped if multi and multi.skip_queries else []
        self._dropped = {
            True: np.array(sorted([*special, *skipped_in_queries]), np.int64),
            False: np.array([*special, *skipped], np.int64),
        }
        self._first_row = multi is None or multi.first_row
        self._expansion_id = self._reader.token_id(expansion.token) if expansion else None

    def read(self, texts: Sequence[str], *, is_query: bool) -> list[NDArray[np.int64]]:
        """The ids of each text, truncated to the model's length, before expansion and padding."""
        return self._reader.tokenize(texts, is_query=is_query).ids

    def pad(self, ids: Sequence[NDArray[np.int64]], *, is_query: bool, length: int | None = None) -> Tokens:
        """A batch of ids that `read` returned, as long as its longest text, or `length` if that is longer. The padding
        id is 0, as in search."""
        expanded = [self._expanded(item) if is_query else item for item in ids]
        longest = max([len(item) for item in expanded] + [length or 0])
        padded = np.zeros((len(ids), longest), np.int64)
        mask, rows = np.zeros((len(ids), longest), np.bool_), np.zeros((len(ids), longest), np.bool_)
        for number, (item, full) in enumerate(zip(ids, expanded, strict=True)):
            padded[number, : len(full)] = full
            mask[number, : len(full) if self._attends_to_expansion else len(item)] = True
            rows[number, : len(full)] = self._row_mask(full, is_query=is_query)
        return Tokens(torch.from_numpy(padded), torch.from_numpy(mask), torch.from_numpy(rows))

    def tokens(self, texts: Sequence[str], *, is_query: bool) -> Tokens:
        """`read`, then `pad`."""
        return self.pad(self.read(texts, is_query=is_query), is_query=is_query)

    def queries(self, texts: Sequence[str]) -> Tokens:
        return self.tokens(texts, is_query=True)

    def documents(self, texts: Sequence[str]) -> Tokens:
        return self.tokens(texts, is_query=False)

    @property
    def special_ids(self) -> tuple[int, ...]:
        """The ids of all special tokens, [UNK] and [MASK] included; their sparse weight is 0."""
        return special_ids(self.tokenizer)

    @property
    def _attends_to_expansion(self) -> bool:
        expansion = self._config.query.expansion
        return expansion is not None and expansion.attended

    def _expanded(self, ids: NDArray[np.int64]) -> NDArray[np.int64]:
        expansion = self._config.query.expansion
        if expansion is None or len(ids) >= expansion.length:
            return ids
        return np.concatenate([ids, np.full(expansion.length - len(ids), self._expansion_id, np.int64)])

    def _row_mask(self, ids: NDArray[np.int64], *, is_query: bool) -> NDArray[np.bool_]:
        """True for positions that give a row; all positions if none would be left, as in search."""
        is_kept: NDArray[np.bool_] = ~np.isin(ids, self._dropped[is_query])
        if not self._first_row:
            is_kept[:1] = False
        return is_kept if is_kept.any() else np.ones(len(ids), np.bool_)


def special_ids(tokenizer: Tokenizer) -> tuple[int, ...]:
    """The ids of a tokenizer's special tokens."""
    return tuple(sorted(number for number, token in tokenizer.get_added_tokens_decoder().items() if token.special))


def with_markers(tokenizer: Tokenizer, markers: Sequence[str]) -> Tokenizer:
    """A copy that reads each marker, such as ColBERT's [unused0] and [unused1], as one token of the vocabulary. The
    marker becomes a special token, so the saved tokenizer reads it the same way in search."""
    copy = Tokenizer.from_str(tokenizer.to_str())
    for marker in markers:
        if copy.token_to_id(marker) is None:
            raise ModelError(f"the vocabulary has no marker {marker!r}; name one of its unused tokens")
        copy.add_special_tokens([AddedToken(marker, normalized=False, special=True)])
    return copy


def _refuse_split_marker(tokenizer: Tokenizer, prefix: str) -> None:
    marker = prefix.strip()
    if tokenizer.token_to_id(marker) is not None and len(tokenizer.encode(marker, add_special_tokens=False).ids) > 1:
        raise ModelError(
            f"the prefix {marker!r} is a token of the vocabulary, but the tokenizer splits it into several; pass the "
            "tokenizer through plait.train.tokenization.with_markers first"
        )


def open_tokenizer(source: str) -> Tokenizer:
    """The tokenizer of a known model, of a folder, or of a hub name."""
    return load_tokenizer(find_model(source) if source in known_models() else source)


def load_tokenizer(source: str | Path) -> Tokenizer:
    """The tokenizer of a folder with tokenizer.json, or of a hub name; ModelError if there is none."""
    path = Path(source) / TOKENIZER_NAME
    if path.is_file():
        try:
            return Tokenizer.from_file(str(path))
        except Exception as error:  # tokenizers raises bare Exception
            raise ModelError(f"{path} cannot be read: {error}; download the model again") from error
    from transformers import AutoTokenizer

    try:
        loaded: Any = AutoTokenizer.from_pretrained(str(source), use_fast=True)
    except (OSError, ValueError) as error:
        raise ModelError(f"there is no tokenizer {str(source)!r}: {error}") from error
    backend = getattr(loaded, "backend_tokenizer", None)
    if backend is None:
        raise ModelError(
            f"{str(source)!r} has no fast tokenizer; plait needs one that can be saved as {TOKENIZER_NAME}"
        )
    tokenizer: Tokenizer = backend
    return tokenizer

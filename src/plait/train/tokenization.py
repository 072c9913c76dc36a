"""Text to `Tokens`, by the same reading as at search time: the reader is plait's own (encode/reader.py), and a test
holds the rows that are kept equal to those of `OnnxEncoder`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from tokenizers import AddedToken, Tokenizer

from plait.encode.tokenizer import ModelTokenizer
from plait.errors import ModelError
from plait.train.model_config import ModelConfig
from plait.train.tensors import Tokens

TOKENIZER_NAME = "tokenizer.json"


class Texts:
    """Reads queries and documents as `config` says. The tokeniser is copied: its padding and cutting are turned off
    here, and stay as they were for everybody else."""

    def __init__(self, tokenizer: Tokenizer, config: ModelConfig) -> None:
        self.tokenizer = Tokenizer.from_str(tokenizer.to_str())
        self._config, self._reader = config, ModelTokenizer(self.tokenizer, config)
        for reading in (config.query, config.document):
            _refuse_broken_marker(self.tokenizer, reading.prefix)
        multi, expansion = config.multi, config.query.expansion
        special = [] if multi is None or multi.special_rows else self._reader.special_ids
        skipped = [self._reader.token_id(token) for token in multi.skip] if multi else []
        self._dropped = {True: np.array(sorted(special), np.int64), False: np.array([*special, *skipped], np.int64)}
        self._first = multi is None or multi.first_row
        self._expansion_id = self._reader.token_id(expansion.token) if expansion else None

    def read(self, texts: Sequence[str], *, is_query: bool) -> list[NDArray[np.int64]]:
        """The ids of each text, cut to the model's length, before expansion and padding: these can be kept."""
        return self._reader.tokenize(texts, is_query=is_query).ids

    def pad(self, ids: Sequence[NDArray[np.int64]], *, is_query: bool, length: int | None = None) -> Tokens:
        """One batch of what `read` gave, as long as its longest text, or `length` if that is longer. Padding is id 0,
        as at search time."""
        expanded = [self._expanded(item) if is_query else item for item in ids]
        longest = max([len(item) for item in expanded] + [length or 0])
        padded = np.zeros((len(ids), longest), np.int64)
        mask, rows = np.zeros((len(ids), longest), np.bool_), np.zeros((len(ids), longest), np.bool_)
        for place, (item, full) in enumerate(zip(ids, expanded, strict=True)):
            padded[place, : len(full)] = full
            mask[place, : len(full) if self._attends_to_expansion else len(item)] = True
            rows[place, : len(full)] = self._kept(full, is_query=is_query)
        return Tokens(torch.from_numpy(padded), torch.from_numpy(mask), torch.from_numpy(rows))

    def tokens(self, texts: Sequence[str], *, is_query: bool) -> Tokens:
        """`read` and `pad` in one."""
        return self.pad(self.read(texts, is_query=is_query), is_query=is_query)

    def queries(self, texts: Sequence[str]) -> Tokens:
        return self.tokens(texts, is_query=True)

    def documents(self, texts: Sequence[str]) -> Tokens:
        return self.tokens(texts, is_query=False)

    @property
    def special_ids(self) -> tuple[int, ...]:
        """The ids of all special tokens, [UNK] and [MASK] among them: those whose sparse weight is kept at 0."""
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

    def _kept(self, ids: NDArray[np.int64], *, is_query: bool) -> NDArray[np.bool_]:
        """Which positions have a row; all of them where none would be left, as at search time."""
        kept: NDArray[np.bool_] = ~np.isin(ids, self._dropped[is_query])
        if not self._first:
            kept[:1] = False
        return kept if kept.any() else np.ones(len(ids), np.bool_)


def special_ids(tokenizer: Tokenizer) -> tuple[int, ...]:
    """The ids of a tokeniser's special tokens."""
    return tuple(sorted(number for number, token in tokenizer.get_added_tokens_decoder().items() if token.special))


def with_markers(tokenizer: Tokenizer, markers: Sequence[str]) -> Tokenizer:
    """A copy that reads each marker, such as ColBERT's [unused0] and [unused1], as the one token that it is in the
    vocabulary. It is then a special token, and the saved tokeniser reads it so at search time too."""
    own = Tokenizer.from_str(tokenizer.to_str())
    for marker in markers:
        if own.token_to_id(marker) is None:
            raise ModelError(f"the vocabulary lacks the marker {marker!r}; name one of its unused tokens")
        own.add_special_tokens([AddedToken(marker, normalized=False, special=True)])
    return own


def _refuse_broken_marker(tokenizer: Tokenizer, prefix: str) -> None:
    marker = prefix.strip()
    if tokenizer.token_to_id(marker) is not None and len(tokenizer.encode(marker, add_special_tokens=False).ids) > 1:
        raise ModelError(
            f"the prefix {marker!r} is a token of the vocabulary, but the tokeniser breaks it into pieces; "
            "pass the tokeniser through plait.train.tokenization.with_markers first"
        )


def load_tokenizer(source: str | Path) -> Tokenizer:
    """The tokeniser in a folder that has tokenizer.json, or of a hub name; ModelError if there is none."""
    path = Path(source) / TOKENIZER_NAME
    if path.is_file():
        try:
            return Tokenizer.from_file(str(path))
        except Exception as error:  # tokenizers raises bare Exception
            raise ModelError(f"{path} cannot be read: {error}; fetch the model again") from error
    from transformers import AutoTokenizer

    try:
        loaded: Any = AutoTokenizer.from_pretrained(str(source), use_fast=True)
    except (OSError, ValueError) as error:
        raise ModelError(f"there is no tokeniser of {str(source)!r}: {error}") from error
    backend = getattr(loaded, "backend_tokenizer", None)
    if backend is None:
        raise ModelError(
            f"{str(source)!r} has no fast tokeniser; plait needs one that can be saved as {TOKENIZER_NAME}"
        )
    found: Tokenizer = backend
    return found

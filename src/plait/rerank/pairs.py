"""`PairTokenizer`: pairs of texts to token ids.

Special tokens around and between the texts are those of the tokeniser. A pair that is too long is truncated: the query
keeps at least `query_length` tokens, and more if the document is short; the document keeps all the rest. Each text
keeps its beginning, and neither can push the other out. With a `document_length` each text is truncated by itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from plait.encode.tokenizer import TEXTS_AT_ONCE
from plait.errors import InputError, ModelError
from plait.rerank.cross_card import Markers, PairFormat

if TYPE_CHECKING:
    from tokenizers import Tokenizer

Pair = tuple[str, str]  # query, document


class PairModel(Protocol):
    """The facts about a model that tokenizing pairs needs; a card has them, and so has a model in training."""

    @property
    def name(self) -> str: ...

    @property
    def pair(self) -> PairFormat: ...

    @property
    def markers(self) -> Markers | None: ...


@dataclass(frozen=True, slots=True)
class TokenizedPairs:
    """Token ids of pairs, and token type ids: 0 for the query, 1 for the document."""

    ids: list[NDArray[np.int64]]
    type_ids: list[NDArray[np.int64]]
    truncated: list[bool]  # whether either text was truncated


class PairTokenizer:
    """Tokenizes pairs in the format that one model was trained with."""

    def __init__(self, tokenizer: Tokenizer, model: PairModel) -> None:
        tokenizer.no_padding()
        tokenizer.no_truncation()
        self._tokenizer, self._format = tokenizer, model.pair
        self._head, self._middle, self._tail, self._middle_types = _special_tokens(tokenizer, model.name)
        markers = model.markers
        self._query_marker = [self._token_id(markers.query, model.name)] if markers else []
        self._document_marker = [self._token_id(markers.document, model.name)] if markers else []
        self._marker_ids = {*self._query_marker, *self._document_marker}
        self._query_prefix = self._prefix_ids(model.pair.query_prefix)
        self._document_prefix = self._prefix_ids(model.pair.document_prefix)
        if self.room <= model.pair.query_length:
            raise ModelError(
                f"{model.name} reads pairs of {model.pair.length} tokens, {self.room} of them from the texts, and "
                f"reserves {model.pair.query_length} for the query; the document needs some too"
            )
        if self.room < model.pair.query_length + model.pair.document_length:
            raise ModelError(
                f"{model.name} gives {model.pair.query_length} tokens to the query and {model.pair.document_length} to "
                f"the document, and has {self.room} of its {model.pair.length} for both; make the pair longer"
            )

    def with_model(self, model: PairModel) -> PairTokenizer:
        """The same vocabulary, with another format."""
        return PairTokenizer(self._tokenizer, model)

    @property
    def room(self) -> int:
        """The number of tokens for the two texts together."""
        special = (self._head, self._middle, self._tail, self._query_marker, self._document_marker)
        return self._format.length - sum(map(len, (*special, self._query_prefix, self._document_prefix)))

    @property
    def marker_ids(self) -> tuple[int, int] | None:
        """The token ids of the query's and the document's marker; None for a model without markers."""
        return (self._query_marker[0], self._document_marker[0]) if self._query_marker else None

    def tokenize(self, pairs: Sequence[Pair]) -> TokenizedPairs:
        """The tokens of each pair. A text that occurs in many pairs is tokenized once."""
        given: object = pairs
        if isinstance(given, str | bytes) or any(not isinstance(pair, tuple | list) for pair in pairs):
            raise InputError("a cross-encoder takes a sequence of (query, document) pairs; got texts alone")
        ids_of = self._text_ids(pairs)
        tokens = TokenizedPairs([], [], [])
        for query, document in pairs:
            query_ids, document_ids = ids_of[query], ids_of[document]
            n_query, n_document = self._truncated_lengths(len(query_ids), len(document_ids))
            left = self._head + self._query_prefix + query_ids[:n_query] + self._query_marker
            right = self._document_prefix + document_ids[:n_document] + self._document_marker + self._tail
            types = [0] * len(left) + self._middle_types + [1] * len(right)
            tokens.ids.append(np.array(left + self._middle + right, np.int64))
            tokens.type_ids.append(np.array(types, np.int64))
            tokens.truncated.append(n_query < len(query_ids) or n_document < len(document_ids))
        return tokens

    def _truncated_lengths(self, n_query: int, n_document: int) -> tuple[int, int]:
        if self._format.document_length:
            return min(n_query, self._format.query_length), min(n_document, self._format.document_length)
        return truncated_lengths(n_query, n_document, self.room, self._format.query_length)

    def _text_ids(self, pairs: Sequence[Pair]) -> dict[str, list[int]]:
        texts = list(dict.fromkeys(text for pair in pairs for text in pair))
        for text in texts:
            _check_text(text)
        ids_of: dict[str, list[int]] = {}
        for start in range(0, len(texts), TEXTS_AT_ONCE):
            block = texts[start : start + TEXTS_AT_ONCE]
            encodings = self._tokenizer.encode_batch_fast(block, add_special_tokens=False)
            ids_of.update(
                (text, self._without_markers(encoding.ids)) for text, encoding in zip(block, encodings, strict=True)
            )
        return ids_of

    def _without_markers(self, ids: list[int]) -> list[int]:
        """Removes markers that occur in the text itself: a pair has exactly one of each."""
        return [id for id in ids if id not in self._marker_ids] if self._marker_ids else ids

    def _prefix_ids(self, prefix: str) -> list[int]:
        return list(self._tokenizer.encode(prefix, add_special_tokens=False).ids) if prefix else []

    def _token_id(self, token: str, name: str) -> int:
        id = self._tokenizer.token_to_id(token)
        if id is None:
            raise ModelError(f"the card of {name} names the marker {token!r}, which its vocabulary lacks")
        return int(id)


def truncated_lengths(n_query: int, n_document: int, room: int, query_length: int) -> tuple[int, int]:
    """The numbers of query and document tokens that fit into `room`. With half the room for the query, the longer text
    gets the odd token, as in transformers (longest_first)."""
    if 2 * query_length + 1 == room and n_query > n_document:
        query_length += 1
    n_query_tokens = min(n_query, max(query_length, room - n_document))
    return n_query_tokens, min(n_document, room - n_query_tokens)


def _special_tokens(tokenizer: Tokenizer, name: str) -> tuple[list[int], list[int], list[int], list[int]]:
    """Special tokens before, between and after the texts of a pair, and the token types of those between."""
    encoding = tokenizer.encode("a", "a")
    text_positions = [at for at, is_special in enumerate(encoding.special_tokens_mask) if not is_special]
    first, last = (text_positions[0], text_positions[-1]) if text_positions else (0, 0)
    between = [at for at in range(first, last) if at not in text_positions]
    if not between:
        raise ModelError(
            f"the tokeniser of {name} puts nothing between the texts of a pair, so a model cannot tell where one ends; "
            f"take the tokeniser of a model that was trained on pairs"
        )
    middle = slice(between[0], between[-1] + 1)
    ids, types = list(encoding.ids), list(encoding.type_ids)
    return ids[:first], ids[middle], ids[last + 1 :], types[middle]


def _check_text(text: object) -> None:
    if not isinstance(text, str):
        raise InputError(f"a text of a pair is of type {type(text).__name__}; cross-encoders take strings")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InputError(
            f"a text of a pair has a lone surrogate at position {error.start}, which is not valid text; decode its "
            f"source again as UTF-8, with errors='replace'"
        ) from None

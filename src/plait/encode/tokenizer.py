"""Text to token ids: the tokeniser of a model folder, with its special tokens put on and long texts cut by hand, so
that what is cut can be counted. No model and no padding here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from plait.encode.model_card import DocumentReading, QueryReading
from plait.errors import InputError, ModelError
from plait.records import Span

if TYPE_CHECKING:
    from tokenizers import Tokenizer

# Encodings are large objects; only this many are alive at a time.
TEXTS_AT_ONCE = 512


class Frame(Protocol):
    """What reading needs to know of a model: a card has it, and so has a model that is still being trained."""

    @property
    def name(self) -> str: ...

    @property
    def query(self) -> QueryReading: ...

    @property
    def document(self) -> DocumentReading: ...


@dataclass(frozen=True, slots=True)
class Reading:
    """The token ids of some texts, special tokens included, and which of the texts were cut to fit."""

    ids: list[NDArray[np.int64]]
    cut: list[bool]


class Reader:
    """Reads texts as one model was taught to read them."""

    def __init__(self, tokenizer: Tokenizer, card: Frame) -> None:
        tokenizer.no_padding()
        tokenizer.no_truncation()
        self._tokenizer = tokenizer
        self._card = card
        framed = tokenizer.encode("a")
        inner = [place for place, special in enumerate(framed.special_tokens_mask) if not special]
        if not inner:
            raise ModelError(f"the tokeniser of {card.name} reads 'a' as no token at all; build the model again")
        self._head: list[int] = framed.ids[: inner[0]]
        self._tail: list[int] = framed.ids[inner[-1] + 1 :]
        self._query_prefix = self._prefix_ids(card.query.prefix)
        self._document_prefix = self._prefix_ids(card.document.prefix)
        if card.document.mcls is not None and not self._head:
            raise ModelError(f"the card of {card.name} has 'mcls', and its tokeniser puts no token first; leave it out")
        for name, reading in (("query", card.query), ("document", card.document)):
            if reading.length <= self._n_fixed(is_query=name == "query"):
                raise ModelError(f"{card.name} reads {reading.length} tokens of a {name}, too few for any text")

    def read(self, texts: Sequence[str], *, is_query: bool) -> Reading:
        """The ids of each text; a text that is too long keeps its beginning."""
        room = self.room(is_query=is_query)
        head, tail = self._head + self._prefix(is_query), self._tail
        ids: list[NDArray[np.int64]] = []
        cut: list[bool] = []
        for start in range(0, len(texts), TEXTS_AT_ONCE):
            for body in self._bodies(texts[start : start + TEXTS_AT_ONCE], start):
                cut.append(len(body) > room)
                ids.append(np.array(head + self._marked(body[:room], is_query) + tail, np.int64))
        return Reading(ids, cut)

    def room(self, *, is_query: bool) -> int:
        """How many tokens of its own a text may have."""
        free = (self._card.query if is_query else self._card.document).length - self._n_fixed(is_query=is_query)
        stride = None if is_query else self._card.document.mcls
        return free if stride is None else free - free // (stride + 1)  # a mark after each full stretch

    def count(self, text: str) -> int:
        """The number of tokens of a text, without the special ones and the prefix."""
        return len(self._bodies([text], 0)[0])

    def spans(self, text: str) -> NDArray[np.int64]:
        """Where each token is in the text: (tokens, 2) of start and end."""
        self._refuse_unreadable([text], 0)
        offsets = self._tokenizer.encode(text, add_special_tokens=False).offsets
        return np.array(offsets, np.int64).reshape(-1, 2)

    def pieces(self, text: str, *, is_query: bool) -> list[tuple[str, Span]]:
        """One (surface, span) for each id that `read` gives; special tokens and prefixes are empty spans at 0."""
        self._refuse_unreadable([text], 0)
        encoding = self._tokenizer.encode(text, add_special_tokens=False)
        room = self.room(is_query=is_query)
        body = [(text[start:end], Span(start, end)) for start, end in encoding.offsets[:room]]
        nowhere = Span(0, 0)
        for place in reversed(self._mark_places(len(body), is_query)):
            body.insert(place, (self.token(self._head[0]), nowhere))
        before = [(self.token(token), nowhere) for token in self._head + self._prefix(is_query)]
        return before + body + [(self.token(token), nowhere) for token in self._tail]

    def token_id(self, token: str) -> int:
        """The id of a token that the card names; ModelError if the vocabulary lacks it."""
        found = self._tokenizer.token_to_id(token)
        if found is None:
            raise ModelError(f"the card of {self._card.name} names the token {token!r}, which its vocabulary lacks")
        return found

    def token(self, number: int) -> str:
        """The token of an id, as the vocabulary writes it; empty for an id that no token has."""
        return self._tokenizer.id_to_token(number) or ""

    @property
    def special_ids(self) -> list[int]:
        """The ids that frame every text."""
        return sorted({*self._head, *self._tail})

    def marks(self, n_tokens: int, *, is_query: bool) -> NDArray[np.int64]:
        """Where, among the ids that `read` gives for a text, first tokens stand that were put between its own."""
        before = len(self._head) + len(self._prefix(is_query))
        stride = None if is_query else self._card.document.mcls
        if stride is None:
            return np.zeros(0, np.int64)
        return np.arange(before + stride, n_tokens - len(self._tail), stride + 1)

    def _mark_places(self, n_tokens: int, is_query: bool) -> range:
        """Before which tokens of a text a mark is put."""
        stride = None if is_query else self._card.document.mcls
        return range(stride, n_tokens, stride) if stride is not None else range(0)

    def _marked(self, body: list[int], is_query: bool) -> list[int]:
        """A text's ids with the first token between stretches of them, where the model wants that."""
        bounds = [0, *self._mark_places(len(body), is_query), len(body)]
        stretches = [body[begin:end] for begin, end in pairwise(bounds)]
        return stretches[0] + [id for stretch in stretches[1:] for id in [self._head[0], *stretch]]

    def _bodies(self, texts: Sequence[str], first: int) -> list[list[int]]:
        self._refuse_unreadable(texts, first)
        return [found.ids for found in self._tokenizer.encode_batch_fast(list(texts), add_special_tokens=False)]

    def _refuse_unreadable(self, texts: Sequence[str], first: int) -> None:
        for place, text in enumerate(texts, first):
            if not isinstance(text, str):
                raise InputError(f"text {place} is of type {type(text).__name__}; encoders take strings")
            try:
                text.encode()
            except UnicodeEncodeError as error:
                raise InputError(
                    f"text {place} holds half of a character pair at position {error.start}; "
                    "read its source again as UTF-8, with errors='replace'"
                ) from None

    def _prefix(self, is_query: bool) -> list[int]:
        return self._query_prefix if is_query else self._document_prefix

    def _prefix_ids(self, prefix: str) -> list[int]:
        return list(self._tokenizer.encode(prefix, add_special_tokens=False).ids) if prefix else []

    def _n_fixed(self, *, is_query: bool) -> int:
        return len(self._head) + len(self._tail) + len(self._prefix(is_query))

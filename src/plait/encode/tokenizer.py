"""Text to token ids, as a model expects them: special tokens and prefix added, long texts truncated and counted.

No padding here, and no model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from plait.checks import shown
from plait.encode.model_card import DocumentInput, QueryInput
from plait.errors import InputError, ModelError
from plait.records import Span

if TYPE_CHECKING:
    from tokenizers import Tokenizer

# Encodings are large objects; at most this many exist at a time.
TEXTS_AT_ONCE = 512


class InputSettings(Protocol):
    """The settings of a model that tokenizing needs. A model card has them, and so has a model in training."""

    @property
    def name(self) -> str: ...

    @property
    def query(self) -> QueryInput: ...

    @property
    def document(self) -> DocumentInput: ...


@dataclass(frozen=True, slots=True)
class TokenizedTexts:
    """The token ids of a batch of texts, special tokens included."""

    ids: list[NDArray[np.int64]]
    truncated: list[bool]


@dataclass(frozen=True, slots=True)
class _Format:
    """How the ids of a text are put together: the head, the ids of the prefix and the text, the tail."""

    head: list[int]  # special tokens, the marker, and a prefix that is not joined with the text
    joined: str  # a prefix that is tokenized together with the text
    n_joined: int  # its number of tokens
    length: int  # the maximum number of ids
    strip: bool = False  # whitespace at both ends of the text, or of prefix and text, is removed


class ModelTokenizer:
    """The tokenizer of one model, with its prefixes and length limits."""

    def __init__(self, tokenizer: Tokenizer, settings: InputSettings) -> None:
        tokenizer.no_padding()
        tokenizer.no_truncation()
        self._tokenizer, self._settings = tokenizer, settings
        name = settings.name
        sample = tokenizer.encode("a")
        inner = [position for position, special in enumerate(sample.special_tokens_mask) if not special]
        if not inner:
            raise ModelError(f"the tokenizer of {name} gives no token for 'a'; build the model again")
        self._head: list[int] = sample.ids[: inner[0]]  # [CLS] and the like
        self._tail: list[int] = sample.ids[inner[-1] + 1 :]  # [SEP] and the like
        self._formats = {True: self._format(settings.query), False: self._format(settings.document)}
        if settings.document.mcls is not None and not self._head:
            raise ModelError(f"the card of {name} has 'mcls', but its tokenizer adds no first token; remove 'mcls'")
        for kind, limits in (("query", settings.query), ("document", settings.document)):
            if self.max_tokens(is_query=kind == "query") < 1:
                raise ModelError(f"{name} takes {limits.length} tokens of a {kind}, which leaves none for the text")

    def with_settings(self, settings: InputSettings) -> ModelTokenizer:
        """The same vocabulary, with other prefixes and lengths."""
        return ModelTokenizer(self._tokenizer, settings)

    def tokenize(self, texts: Sequence[str], *, is_query: bool) -> TokenizedTexts:
        """The ids of each text; a text that is too long keeps its beginning."""
        if isinstance(texts, str | bytes):
            raise InputError(f"encoders take a sequence of texts; put a single text in a list (got {shown(texts)})")
        chosen, tail = self._formats[is_query], self._tail
        max_tokens = self._max_body(is_query)
        ids: list[NDArray[np.int64]] = []
        truncated: list[bool] = []
        for start in range(0, len(texts), TEXTS_AT_ONCE):
            for body in self._text_ids(texts[start : start + TEXTS_AT_ONCE], start, chosen):
                truncated.append(len(body) > max_tokens)
                ids.append(np.array(chosen.head + self._with_inner_cls(body[:max_tokens], is_query) + tail, np.int64))
        return TokenizedTexts(ids, truncated)

    def max_tokens(self, *, is_query: bool) -> int:
        """How many tokens of a text fit, beside special tokens and prefix."""
        return self._max_body(is_query) - self._formats[is_query].n_joined

    def count(self, text: str) -> int:
        """The number of tokens of a text, without special tokens and prefix."""
        return len(self._text_ids([text], 0)[0])

    def spans(self, text: str) -> NDArray[np.int64]:
        """Start and end of each token in the text: (tokens, 2)."""
        self._check_texts([text], 0)
        offsets = self._tokenizer.encode(text, add_special_tokens=False).offsets
        return np.array(offsets, np.int64).reshape(-1, 2)

    def pieces(self, text: str, *, is_query: bool) -> list[tuple[str, Span]]:
        """(token, span) for each id that `tokenize` gives; special tokens and prefixes have the span (0, 0)."""
        self._check_texts([text], 0)
        chosen = self._formats[is_query]
        whole = chosen.joined + text
        stripped = whole.strip() if chosen.strip else whole
        encoding = self._tokenizer.encode(stripped, add_special_tokens=False)
        max_tokens, empty = self._max_body(is_query), Span(0, 0)
        # Where the text begins in what is tokenized; negative if whitespace before it was removed.
        before = len(chosen.joined) - (len(whole) - len(whole.lstrip()) if chosen.strip else 0)
        body = []
        for number, (start, end) in zip(encoding.ids[:max_tokens], encoding.offsets[:max_tokens], strict=True):
            if before > 0 and end <= before:
                body.append((self.token(number), empty))
            else:
                span = Span(max(start - before, 0), end - before)
                body.append((text[span.start : span.end], span))
        for position in reversed(self._inner_cls_range(len(body), is_query)):
            body.insert(position, (self.token(self._head[0]), empty))
        head = [(self.token(token), empty) for token in chosen.head]
        return head + body + [(self.token(token), empty) for token in self._tail]

    def token_id(self, token: str) -> int:
        """The id of a token that the card names; ModelError if the vocabulary does not have it."""
        number = self._tokenizer.token_to_id(token)
        if number is None:
            name = self._settings.name
            raise ModelError(f"the card of {name} names the token {token!r}, which its vocabulary does not have")
        return number

    def token(self, number: int) -> str:
        """The token of an id, as the vocabulary writes it; empty for an unused id."""
        return self._tokenizer.id_to_token(number) or ""

    def has_token(self, token: str) -> bool:
        """Whether the vocabulary has a token."""
        return self._tokenizer.token_to_id(token) is not None

    def text_of(self, number: int) -> str:
        """The text of a token, without the marks of the vocabulary."""
        return self._tokenizer.decode([number])

    @property
    def n_around(self) -> tuple[int, int]:
        """The number of special tokens before and after every text."""
        return len(self._head), len(self._tail)

    @property
    def special_ids(self) -> list[int]:
        """The special tokens that every text begins and ends with."""
        return sorted({*self._head, *self._tail})

    def inner_cls_positions(self, n_tokens: int, *, is_query: bool) -> NDArray[np.int64]:
        """The positions of inner first tokens (see `DocumentInput.mcls`) among the `n_tokens` ids of a text."""
        before = len(self._formats[is_query].head)
        stride = self._stride(is_query)
        if stride is None:
            return np.zeros(0, np.int64)
        return np.arange(before + stride, n_tokens - len(self._tail), stride + 1)

    def _stride(self, is_query: bool) -> int | None:
        return None if is_query else self._settings.document.mcls

    def _inner_cls_range(self, n_tokens: int, is_query: bool) -> range:
        """The tokens of a text before which an inner first token goes."""
        stride = self._stride(is_query)
        return range(stride, n_tokens, stride) if stride is not None else range(0)

    def _with_inner_cls(self, body: list[int], is_query: bool) -> list[int]:
        bounds = [0, *self._inner_cls_range(len(body), is_query), len(body)]
        parts = [body[begin:end] for begin, end in pairwise(bounds)]
        return parts[0] + [id for part in parts[1:] for id in [self._head[0], *part]]

    def _text_ids(self, texts: Sequence[str], first: int, chosen: _Format | None = None) -> list[list[int]]:
        self._check_texts(texts, first)
        whole = list(texts) if chosen is None else [chosen.joined + text for text in texts]
        if chosen is not None and chosen.strip:
            whole = [text.strip() for text in whole]
        return [encoding.ids for encoding in self._tokenizer.encode_batch_fast(whole, add_special_tokens=False)]

    def _check_texts(self, texts: Sequence[str], first: int) -> None:
        for number, text in enumerate(texts, first):
            if not isinstance(text, str):
                raise InputError(f"text {number} is of type {type(text).__name__}; encoders take strings")
            try:
                text.encode()
            except UnicodeEncodeError as error:
                raise InputError(
                    f"text {number} has half of a surrogate pair at position {error.start}; "
                    "read its source again as UTF-8, with errors='replace'"
                ) from None

    def _format(self, given: QueryInput | DocumentInput) -> _Format:
        marker = [self.token_id(given.marker)] if given.marker else []
        head = self._head[:1] + marker + self._head[1:]
        if not given.prefix or not given.joined:
            return _Format(head + self._ids(given.prefix), "", 0, given.length, given.strip)
        # A tokenizer may join the end of the prefix with the beginning of the text, or add a space before either.
        n_joined = max(len(self._ids(given.prefix)), len(self._ids(f"{given.prefix}a")) - len(self._ids("a")))
        return _Format(head, given.prefix, n_joined, given.length, given.strip)

    def _ids(self, text: str) -> list[int]:
        return list(self._tokenizer.encode(text, add_special_tokens=False).ids) if text else []

    def _max_body(self, is_query: bool) -> int:
        """How many tokens of a text fit, with a prefix that is joined with it, beside the head and the tail."""
        chosen = self._formats[is_query]
        free = chosen.length - len(chosen.head) - len(self._tail)
        stride = self._stride(is_query)
        return free if stride is None else free - free // (stride + 1)  # one inner [CLS] after each full stride

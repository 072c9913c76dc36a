"""`LiveTokenizer`: a private copy of the tokenizer of a live model. Counts tokens for chunking and names them for
explanations, without changing the settings of the model's own tokenizer, which other threads may be using."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from plait.adapters.fingerprints import PROBE_TEXTS
from plait.encode.chunking import DEFAULT_WORD_OVERLAP, DEFAULT_WORDS, Chunker, WindowChunker, WordTokenizer
from plait.errors import ConfigError
from plait.records import Span

if TYPE_CHECKING:
    from tokenizers import Tokenizer

# A model without a limit, or with one that no memory could hold, gets passages of this length.
DEFAULT_LENGTH = 512
MAX_LENGTH = 1 << 20
# Tokens of English for each word or punctuation mark, rounded up: for models whose tokenizer is not at hand.
TOKENS_PER_WORD = 1.6
# A passage alone may give a token more at each end than within its text, where a word or a space was cut.
SEAM_TOKENS = 2
OVERLAP_PART, MAX_OVERLAP = 8, 32  # passages share an eighth of their tokens, at most 32
NO_SPAN = Span(0, 0)


class LiveTokenizer:
    """A copy of a tokenizer of the tokenizers library, without padding and truncation."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        copy = type(tokenizer).from_str(tokenizer.to_str())
        copy.no_padding()
        copy.no_truncation()
        self._tokenizer = copy

    @classmethod
    def of(cls, tokenizer: object) -> Self | None:
        """The copy of a fast tokenizer of transformers, of a `tokenizers.Tokenizer` or of a tokenizer.json file; None
        for any other object."""
        if isinstance(tokenizer, str | Path):
            from plait.encode.load import open_tokenizer

            return cls(open_tokenizer(Path(tokenizer)))
        backend: Any = getattr(tokenizer, "backend_tokenizer", tokenizer)
        return cls(backend) if hasattr(backend, "to_str") and hasattr(backend, "encode_batch") else None

    def count(self, text: str) -> int:
        """The number of tokens, without special tokens."""
        return len(self.ids(text))

    def counts(self, texts: Sequence[str]) -> list[int]:
        return [
            len(encoding.ids) for encoding in self._tokenizer.encode_batch_fast(list(texts), add_special_tokens=False)
        ]

    def spans(self, text: str) -> NDArray[np.int64]:
        """Start and end of each token in the text: (tokens, 2)."""
        offsets = self._tokenizer.encode(text, add_special_tokens=False).offsets
        return np.array(offsets, np.int64).reshape(-1, 2)

    def ids(self, text: str) -> list[int]:
        return list(self._tokenizer.encode(text, add_special_tokens=False).ids)

    @property
    def n_special(self) -> int:
        """The number of special tokens that every text gets."""
        return int(self._tokenizer.num_special_tokens_to_add(is_pair=False))

    @property
    def n_tokens(self) -> int:
        """The size of the vocabulary."""
        return int(self._tokenizer.get_vocab_size())

    def token(self, number: int) -> str:
        """The token of an id, as the vocabulary writes it; empty for an unused id."""
        return self._tokenizer.id_to_token(number) or ""

    def whole(self, text: str) -> tuple[list[int], list[Span]]:
        """The ids of a text with special tokens, and the span of each; special tokens have an empty one."""
        encoding = self._tokenizer.encode(text)
        special = encoding.special_tokens_mask
        spans = [NO_SPAN if skip else Span(*at) for at, skip in zip(encoding.offsets, special, strict=True)]
        return list(encoding.ids), spans

    def locate(self, ids: Sequence[int], text: str, prompt: str = "") -> list[Span]:
        """The span in `text` of each token of a model's input: special tokens, prompt, the beginning of the text, more.

        The tokens of the text are found as the run of ids that it gives alone or after its prompt, whichever is longer:
        a marker is inserted by its id, a prompt is joined with the text. Without such a run, all spans are empty.
        """
        best: tuple[int, int] = (0, 0)
        offsets, shift = self.spans(""), 0
        for before in dict.fromkeys(("", prompt)):
            run = _longest_prefix_run(ids, self.ids(before + text))
            if run[1] > best[1] or not len(offsets):
                best, offsets, shift = run, self.spans(before + text), len(before)
        start, length = best
        spans = [NO_SPAN] * len(ids)
        for number, (begin, end) in enumerate(offsets[:length] - shift, start):
            if end > 0:
                spans[number] = Span(max(int(begin), 0), int(end))
        return spans

    def digest(self) -> str:
        """Identifies the tokenizer by its vocabulary and by what it makes of fixed texts; its file differs between
        versions of the library."""
        vocabulary = sorted(
            self._tokenizer.get_vocab(with_added_tokens=True).items(), key=lambda item: (item[1], item[0])
        )
        probes = [self._tokenizer.encode(text).ids for text in PROBE_TEXTS]
        return hashlib.sha256(json.dumps([vocabulary, probes]).encode()).hexdigest()


def find_tokenizer(model: object) -> LiveTokenizer | None:
    """The copy of a model's `tokenizer`; None if it has none or not a fast one."""
    try:
        tokenizer = getattr(model, "tokenizer", None)
    except (AttributeError, KeyError, IndexError, TypeError):  # a property that looks into modules
        return None
    return None if isinstance(tokenizer, str | Path) else LiveTokenizer.of(tokenizer)


def passage_chunker(
    tokenizer: LiveTokenizer | None, *, length: object, n_added: int, passage_tokens: int | None
) -> Chunker:
    """Splits documents for a model that reads `length` tokens, `n_added` of them special tokens and prompt.

    `passage_tokens` is the caller's choice of a shorter passage. Without a tokenizer words are counted.
    """
    room = max(usable_length(length) - n_added, 1)
    if passage_tokens is not None:
        if passage_tokens < 1 or (usable_length(length, default=MAX_LENGTH) - n_added) < passage_tokens:
            raise ConfigError(f"passage_tokens is {passage_tokens}; the model reads 1 to {room} tokens of a text")
        room = passage_tokens
    if tokenizer is not None:
        if passage_tokens is None:
            room = max(room - SEAM_TOKENS, 1)
        return WindowChunker(tokenizer, size=room, overlap=min(room // OVERLAP_PART, MAX_OVERLAP))
    if passage_tokens is None and usable_length(length, default=0) == 0:
        return WindowChunker(WordTokenizer(), size=DEFAULT_WORDS, overlap=DEFAULT_WORD_OVERLAP)
    size = max(int(room / TOKENS_PER_WORD), 1)
    return WindowChunker(WordTokenizer(), size=size, overlap=min(size // OVERLAP_PART, DEFAULT_WORD_OVERLAP))


def usable_length(length: object, default: int = DEFAULT_LENGTH) -> int:
    """A model's input length, or `default` where it has none: libraries write 10**30 for no limit."""
    known = isinstance(length, int) and not isinstance(length, bool) and 0 < length <= MAX_LENGTH
    return int(length) if known else default  # type: ignore[call-overload]


def _longest_prefix_run(ids: Sequence[int], body: Sequence[int]) -> tuple[int, int]:
    """Where the longest beginning of `body` is in `ids`: (start, length)."""
    best = (0, 0)
    for start in range(len(ids)):
        length = 0
        while start + length < len(ids) and length < len(body) and ids[start + length] == body[length]:
            length += 1
        if length > best[1]:
            best = (start, length)
    return best

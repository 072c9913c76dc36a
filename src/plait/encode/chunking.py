"""Chunking: a long document becomes passages, each encoded separately.

A `Chunker` decides where to cut; an encoder only encodes. A model with a tokenizer offers a chunker that counts its
tokens; for any other encoder, words are counted.
"""

from __future__ import annotations

import re
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from plait.records import Span

# A text is tokenized in blocks, so that a text of many megabytes needs little memory beyond itself.
BLOCK_CHARACTERS = 1 << 17
# The best cut is searched in the last quarter of a window, so a window is at least three quarters full.
SEARCHED_PART = 4
# A title may take half of a passage; the rest of a longer title does not make passages shorter still.
MAX_TITLE_PART = 2
# An overlap takes at most a quarter of a passage.
MAX_OVERLAP_PART = 4
DEFAULT_WORDS, DEFAULT_WORD_OVERLAP = 200, 25

_PARAGRAPH, _SENTENCE, _LINE, _WORD, _NONE = 4, 3, 2, 1, 0
# Sentence ends that need no space after them, then those of scripts with spaces: Arabic, Urdu, Hindi, Armenian,
# Ethiopic. Khmer and Burmese may have a space or not.
_UNSPACED_ENDS = "。！？｡។၊။"
_SENTENCE_ENDS = ".!?…؟۔।॥։።" + _UNSPACED_ENDS
# Thai, Lao, Burmese, Khmer, kana, Han and Hangul: texts without spaces, where each character counts as a word.
_UNSPACED = r"\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7a3"
_WORDS = re.compile(rf"[{_UNSPACED}]|[^\W{_UNSPACED}]+|[^\w\s]")


class Chunker(Protocol):
    """Splits documents into passages."""

    def split(self, title: str, text: str) -> list[Span]:
        """The passages of a document: spans of `text`, in order, at least one, that together cover all of it."""


class TokenCounter(Protocol):
    """The part of a tokenizer that windows need."""

    def count(self, text: str) -> int: ...

    def spans(self, text: str) -> NDArray[np.int64]:
        """Start and end of each token: (tokens, 2)."""


class WindowChunker:
    """Windows of at most `size` tokens, title included, that overlap and end where a reader would pause: at a
    paragraph, a sentence, a line or a word, in this order of preference."""

    def __init__(self, tokenizer: TokenCounter, *, size: int, overlap: int) -> None:
        self._tokenizer, self._size, self._overlap = tokenizer, size, overlap

    def split(self, title: str, text: str) -> list[Span]:
        n_title = self._tokenizer.count(title) if title else 0
        size = max(self._size // MAX_TITLE_PART, self._size - n_title)
        spans = token_spans(text, self._tokenizer)
        return windows(text, spans, size=size, overlap=min(self._overlap, size // MAX_OVERLAP_PART))


class WholeDocument:
    """One passage for every document, for encoders that truncate."""

    def split(self, title: str, text: str) -> list[Span]:
        del title
        return [Span(0, len(text))]


class WordTokenizer:
    """Words, punctuation marks, and single characters of scripts without spaces."""

    def count(self, text: str) -> int:
        return len(_WORDS.findall(text))

    def spans(self, text: str) -> NDArray[np.int64]:
        return np.array([match.span() for match in _WORDS.finditer(text)], np.int64).reshape(-1, 2)


def chunker_for(encoder: object) -> Chunker:
    """The encoder's `chunker` if it has one; else windows of DEFAULT_WORDS words."""
    chunker: Chunker | None = getattr(encoder, "chunker", None)
    return chunker or WindowChunker(WordTokenizer(), size=DEFAULT_WORDS, overlap=DEFAULT_WORD_OVERLAP)


def with_title(title: str, passage: str) -> str:
    """The text to encode for a passage. The title leads each passage, so that a late one keeps its subject."""
    return f"{title} {passage}" if title else passage


def token_spans(text: str, tokenizer: TokenCounter) -> NDArray[np.int64]:
    """Start and end of each token of a text of any length: (tokens, 2)."""
    blocks: list[NDArray[np.int64]] = []
    start = 0
    while start < len(text):
        end = _block_end(text, start)
        blocks.append(tokenizer.spans(text[start:end]) + start)
        start = end
    return np.concatenate(blocks) if blocks else np.zeros((0, 2), np.int64)


def windows(text: str, spans: NDArray[np.int64], *, size: int, overlap: int) -> list[Span]:
    """Passages of at most `size` tokens that cover `text`; each begins about `overlap` tokens before the end of the
    previous one. `spans` are the tokens. A text that fits is one passage."""
    n_tokens = len(spans)
    if n_tokens <= size:
        return [Span(0, len(text))]
    passages: list[Span] = []
    first, start = 0, 0
    while n_tokens - first > size:
        cut = _best_cut(text, spans, first + size - size // SEARCHED_PART, first + size)
        end = int(spans[cut][0])
        passages.append(Span(start, end))
        # Each window must begin after the previous one did, wherever the cut was.
        lowest = max(first + 1, cut - overlap)
        first = cut if overlap == 0 else _best_cut(text, spans, lowest, max(lowest, cut - (overlap + 1) // 2))
        start = int(spans[first][0])
    passages.append(Span(start, len(text)))
    return passages


def _best_cut(text: str, spans: NDArray[np.int64], lowest: int, highest: int) -> int:
    """The token in [lowest, highest] before which to cut; of equally good cuts, the last."""
    best, best_rank = highest, _NONE
    for token in range(highest, lowest - 1, -1):
        rank = _boundary(text, int(spans[token - 1][1]), int(spans[token][0])) if token else _PARAGRAPH
        if rank > best_rank:
            best, best_rank = token, rank
        if best_rank == _PARAGRAPH:
            break
    return best


def _boundary(text: str, end: int, start: int) -> int:
    """The rank of a cut between a token that ends at `end` and the next, which starts at `start`."""
    gap = text[end:start]
    if gap.count("\n") > 1:
        return _PARAGRAPH
    last = text[end - 1] if end else ""
    if last in _SENTENCE_ENDS and (gap or last in _UNSPACED_ENDS):
        return _SENTENCE
    if "\n" in gap:
        return _LINE
    return _WORD if gap else _NONE


def _block_end(text: str, start: int) -> int:
    """The end of a block that begins at `start`: at white space if its second half has any."""
    end = start + BLOCK_CHARACTERS
    if end >= len(text):
        return len(text)
    for position in range(end, start + BLOCK_CHARACTERS // 2, -1):
        if text[position].isspace():
            return position
    return end

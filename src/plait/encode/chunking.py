"""Long texts in passages: windows of tokens that overlap, cut where a reader would cut. Knows offsets, not models."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from plait.records import Span

# A text is tokenised in blocks, so that a text of many megabytes needs little memory beyond itself.
BLOCK_CHARACTERS = 1 << 17
# A cut is looked for in the last quarter of a window: a window is never less than three quarters full.
SEARCHED_PART = 4

_PARAGRAPH, _SENTENCE, _LINE, _WORD, _NONE = 4, 3, 2, 1, 0
# Sentences that end without a space after them, then those of scripts that have spaces: Arabic, Urdu, Hindi, Armenian,
# Ethiopic. Khmer and Burmese may have one or not.
_UNSPACED_ENDS = "。！？｡។၊။"
_SENTENCE_ENDS = ".!?…؟۔।॥։።" + _UNSPACED_ENDS


def token_spans(text: str, spans_of: Callable[[str], NDArray[np.int64]]) -> NDArray[np.int64]:
    """Where each token of a text of any length is: (tokens, 2). `spans_of` does it for a short text."""
    found: list[NDArray[np.int64]] = []
    start = 0
    while start < len(text):
        end = _block_end(text, start)
        found.append(spans_of(text[start:end]) + start)
        start = end
    return np.concatenate(found) if found else np.zeros((0, 2), np.int64)


def with_title(title: str, passage: str) -> str:
    """What is encoded for a passage: the title leads each of them, so that a passage far down keeps its subject."""
    return f"{title} {passage}" if title else passage


def windows(text: str, spans: NDArray[np.int64], *, size: int, overlap: int) -> list[Span]:
    """Spans of `text`, of at most `size` tokens each, that cover all of it; each begins about `overlap` tokens before
    the end of the one before. `spans` are the tokens; a text that fits is one span."""
    n_tokens = len(spans)
    if n_tokens <= size:
        return [Span(0, len(text))]
    passages: list[Span] = []
    first, start = 0, 0
    while n_tokens - first > size:
        cut = _best_cut(text, spans, first + size - size // SEARCHED_PART, first + size)
        end = int(spans[cut][0])
        passages.append(Span(start, end))
        # The overlap must leave each window new tokens, whatever the cut was.
        lowest = max(first + 1, cut - overlap)
        first = cut if overlap == 0 else _best_cut(text, spans, lowest, max(lowest, cut - (overlap + 1) // 2))
        start = int(spans[first][0])
    passages.append(Span(start, len(text)))
    return passages


def _best_cut(text: str, spans: NDArray[np.int64], lowest: int, highest: int) -> int:
    """The token in [lowest, highest] before which it is best to cut; of equals, the last."""
    best, best_rank = highest, _NONE
    for token in range(highest, lowest - 1, -1):
        rank = _boundary(text, int(spans[token - 1][1]), int(spans[token][0])) if token else _PARAGRAPH
        if rank > best_rank:
            best, best_rank = token, rank
        if best_rank == _PARAGRAPH:
            break
    return best


def _boundary(text: str, end: int, start: int) -> int:
    """How good a cut is between a token that ends at `end` and one that starts at `start`."""
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
    """Where a block that begins at `start` ends: at white space if there is any in its second half."""
    end = start + BLOCK_CHARACTERS
    if end >= len(text):
        return len(text)
    for place in range(end, start + BLOCK_CHARACTERS // 2, -1):
        if text[place].isspace():
            return place
    return end

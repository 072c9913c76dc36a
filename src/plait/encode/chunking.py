"""Chunking: a long document becomes passages, each encoded separately.

A `Chunker` decides where to cut; an encoder only encodes. A model with a tokenizer offers a chunker that counts its
tokens; for any other encoder, words are counted.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from plait.checks import check_count, check_flag, shown
from plait.errors import ConfigError
from plait.records import Span

DEFAULT_BY = "pause"
BY = (DEFAULT_BY, "sentence", "paragraph", "heading", "tokens")
MIN_SIZE = 8  # tokens of a passage

# A text is tokenized in blocks, so that a text of many megabytes needs little memory beyond itself.
BLOCK_CHARACTERS = 1 << 17
# The best cut is searched in the last quarter of a window, so a window is at least three quarters full.
SEARCHED_PART = 4
# A title may take half of a passage; the rest of a longer title does not make passages shorter still.
MAX_TITLE_PART = 2
# An overlap takes at most a quarter of a passage; one that a user chose, half.
MAX_OVERLAP_PART, MAX_CHOSEN_OVERLAP_PART = 4, 2
DEFAULT_WORDS, DEFAULT_WORD_OVERLAP = 200, 25

_PARAGRAPH, _SENTENCE, _LINE, _WORD, _NONE = 4, 3, 2, 1, 0
# Sentence ends that need no space after them, then those of scripts with spaces: Arabic, Urdu, Hindi, Armenian,
# Ethiopic. Khmer and Burmese may have a space or not.
_UNSPACED_ENDS = "。！？｡។၊။"
_SENTENCE_ENDS = ".!?…؟۔।॥։።" + _UNSPACED_ENDS
# Thai, Lao, Burmese, Khmer, kana, Han and Hangul: texts without spaces, where each character counts as a word.
_UNSPACED = r"\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7a3"
_WORDS = re.compile(rf"[{_UNSPACED}]|[^\W{_UNSPACED}]+|[^\w\s]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunking:
    """How long documents are split into passages. The index remembers it.

    `by` says where a passage may end: at the best `pause` near its end (paragraph, sentence, line or word), after whole
    sentences (`sentence`), after whole paragraphs (`paragraph`), before a heading and then as by paragraph (`heading`),
    or after exactly `size` tokens (`tokens`). A passage is as long as `size` allows; a sentence or a paragraph that is
    longer is cut at pauses.

        chunking = plait.Chunking(size=200, overlap=32, by="sentence")
        articles = plait.open("articles", create=True, chunking=chunking)
    """

    size: int | None = None  # tokens of a passage with its title, at most; None: as many as the model takes
    overlap: int | None = None  # tokens that a passage repeats of the one before, at most; None: as the model suggests
    by: str = DEFAULT_BY
    late: bool = False  # encode up to the model's length at once, and give each passage its part of the vectors

    def __post_init__(self) -> None:
        if self.size is not None:
            check_count("size", self.size, least=MIN_SIZE)
        if self.overlap is not None:
            check_count("overlap", self.overlap, least=0)
        if self.size is not None and self.overlap is not None and self.overlap > self.size // MAX_CHOSEN_OVERLAP_PART:
            raise ConfigError(f"overlap is {self.overlap}; it must be at most half of the size, {self.size}")
        check_flag("late", self.late)
        if not isinstance(self.by, str) or self.by not in BY:
            raise ConfigError(f"by is {shown(self.by)}; it must be one of {', '.join(BY)}")

    @classmethod
    def from_dict(cls, stored: object) -> Chunking | None:
        """The inverse of `to_dict`; None stays None. ConfigError for anything else."""
        if stored is None:
            return None
        if not isinstance(stored, Mapping) or not set(stored) <= {"size", "overlap", "by", "late"}:
            raise ConfigError(f"a stored chunking has the keys size, overlap, by and late; got {shown(stored)}")
        return cls(**stored)

    def to_dict(self) -> dict[str, int | str | bool | None]:
        """As JSON values, for the catalogue."""
        return {"size": self.size, "overlap": self.overlap, "by": self.by, "late": self.late}

    def __str__(self) -> str:
        size = "as long as the model takes" if self.size is None else f"{self.size} tokens"
        overlap = "" if self.overlap is None else f", overlap {self.overlap}"
        return f"{size}{overlap}, by {self.by}{', late' if self.late else ''}"


# Headings of Markdown, and lines that are underlined as in reStructuredText; neither within a fenced block of code.
_HEADING = re.compile(r"#{1,6}[ \t]+\S")
_UNDERLINE = re.compile(r"(=|-|~|\^|\*|\+|#){3,}[ \t]*\r?")
_FENCE = re.compile(r"[ \t]*(```|~~~)")


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
    """Windows of at most `size` tokens, title included, that overlap and end as `by` says; see `Chunking`."""

    def __init__(self, tokenizer: TokenCounter, *, size: int, overlap: int, by: str = DEFAULT_BY) -> None:
        self._tokenizer, self._size, self._overlap, self._by = tokenizer, size, overlap, by
        self._max_overlap_part = MAX_OVERLAP_PART

    @property
    def size(self) -> int:
        """Tokens of a passage with its title, at most."""
        return self._size

    def count(self, text: str) -> int:
        """The number of tokens of a text."""
        return self._tokenizer.count(text)

    def with_chunking(self, chunking: Chunking, *, max_size: int | None) -> WindowChunker:
        """The same tokens, split by other rules. ConfigError for passages of more than `max_size` tokens."""
        size = chunking.size or self._size
        if max_size is not None and size > max_size:
            raise ConfigError(f"size is {size}, but the model takes {max_size} tokens of a text; choose at most that")
        overlap = min(self._overlap, size // MAX_OVERLAP_PART) if chunking.overlap is None else chunking.overlap
        chunker = WindowChunker(self._tokenizer, size=size, overlap=overlap, by=chunking.by)
        chunker._max_overlap_part = MAX_CHOSEN_OVERLAP_PART
        return chunker

    def split(self, title: str, text: str) -> list[Span]:
        n_title = self._tokenizer.count(title) if title else 0
        size = max(self._size // MAX_TITLE_PART, self._size - n_title)
        spans, overlap = token_spans(text, self._tokenizer), min(self._overlap, size // self._max_overlap_part)
        if self._by == DEFAULT_BY:
            return windows(text, spans, size=size, overlap=overlap)
        if self._by == "tokens":
            return to_passages(text, spans, fixed_ranges(len(spans), size, overlap))
        return to_passages(text, spans, packed_ranges(text, spans, self._by, size, overlap))


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


def chunker_for(encoder: object, chunking: Chunking | None = None) -> Chunker:
    """The encoder's `chunker` if it has one, else windows of DEFAULT_WORDS words; by the rules of `chunking`, in tokens
    of the encoder if its chunker has them and in words otherwise."""
    words = WindowChunker(WordTokenizer(), size=DEFAULT_WORDS, overlap=DEFAULT_WORD_OVERLAP)
    chunker: Chunker = getattr(encoder, "chunker", None) or words
    if chunking is None:
        return chunker
    if isinstance(chunker, WindowChunker) and chunker is not words:
        return chunker.with_chunking(chunking, max_size=chunker.size)
    return words.with_chunking(chunking, max_size=None)


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
    return to_passages(text, spans, window_ranges(text, spans, 0, len(spans), size, overlap))


Range = tuple[int, int]  # of tokens


def window_ranges(
    text: str, spans: NDArray[np.int64], begin: int, end: int, size: int, overlap: int
) -> Iterator[Range]:
    """The tokens from `begin` to `end` as ranges of at most `size` that end at the best pauses."""
    first = begin
    while end - first > size:
        cut = _best_cut(text, spans, first + size - size // SEARCHED_PART, first + size)
        yield first, cut
        # Each window must begin after the previous one did, wherever the cut was.
        lowest = max(first + 1, cut - overlap)
        first = cut if overlap == 0 else _best_cut(text, spans, lowest, max(lowest, cut - (overlap + 1) // 2))
    yield first, end


def fixed_ranges(n_tokens: int, size: int, overlap: int) -> Iterator[Range]:
    """Ranges of `size` tokens, each beginning `overlap` before the end of the previous one."""
    first = 0
    while n_tokens - first > size:
        yield first, first + size
        first += size - overlap
    yield first, n_tokens


def packed_ranges(text: str, spans: NDArray[np.int64], by: str, size: int, overlap: int) -> Iterator[Range]:
    """Ranges of whole sentences or paragraphs, as many as `size` allows; `overlap` is made of whole ones too. A longer
    sentence or paragraph is cut at pauses. By heading, no range goes beyond the next heading."""
    breaks = set(_heading_tokens(text, spans)) if by == "heading" else set()
    least = _SENTENCE if by == "sentence" else _PARAGRAPH
    starts = [
        token
        for token in range(1, len(spans))
        if token in breaks or _boundary(text, int(spans[token - 1][1]), int(spans[token][0])) >= least
    ]
    bounds = [0, *starts, len(spans)]
    unit, n_units = 0, len(bounds) - 1
    while True:
        after = unit + 1
        while after < n_units and bounds[after + 1] - bounds[unit] <= size and bounds[after] not in breaks:
            after += 1
        yield from window_ranges(text, spans, bounds[unit], bounds[after], size, min(overlap, size // MAX_OVERLAP_PART))
        if after == n_units:
            return
        unit = after if bounds[after] in breaks else _overlapping(bounds, unit, after, size, overlap)


def _overlapping(bounds: Sequence[int], unit: int, after: int, size: int, overlap: int) -> int:
    """The unit with which the next range begins: at most `overlap` tokens before unit `after`, which it must hold."""
    first = after
    while (
        first - 1 > unit
        and bounds[after] - bounds[first - 1] <= overlap
        and bounds[after + 1] - bounds[first - 1] <= size
    ):
        first -= 1
    return first


def _heading_tokens(text: str, spans: NDArray[np.int64]) -> list[int]:
    """The tokens that begin a section: a heading after text. A heading right after a heading stays with it."""
    tokens, position, in_code, has_text = [], 0, False, False
    lines = text.split("\n")
    for number, line in enumerate(lines):
        if _FENCE.match(line):
            in_code = not in_code
        below = lines[number + 1] if number + 1 < len(lines) else ""
        is_heading = not in_code and bool(_HEADING.match(line) or (line.strip() and _UNDERLINE.fullmatch(below)))
        if is_heading and has_text:
            tokens.append(int(np.searchsorted(spans[:, 0], position)))
            has_text = False
        if line.strip() and not is_heading and not _UNDERLINE.fullmatch(line):
            has_text = True
        position += len(line) + 1
    return [token for token in tokens if 0 < token < len(spans)]


def to_passages(text: str, spans: NDArray[np.int64], ranges: Iterable[Range]) -> list[Span]:
    """The characters of ranges of tokens, with the white space around them: together they cover the text."""
    n_tokens = len(spans)
    return [
        Span(0 if first == 0 else int(spans[first][0]), len(text) if last == n_tokens else int(spans[last][0]))
        for first, last in ranges
    ]


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

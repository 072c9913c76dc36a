"""Passages cover the whole text, fit the model, and are cut where a reader would cut."""

from __future__ import annotations

import re
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from plait.encode import chunking
from plait.encode.chunking import (
    DEFAULT_WORDS,
    WholeDocument,
    WindowChunker,
    WordTokenizer,
    chunker_for,
    token_spans,
    windows,
)
from plait.records import Span


def words(text: str) -> NDArray[np.int64]:
    """A tokeniser for tests: words, and single marks."""
    return np.array([spans.span() for spans in re.finditer(r"\w+|[^\w\s]", text)], np.int64).reshape(-1, 2)


def cut(text: str, size: int, overlap: int) -> list[str]:
    return [text[span.start : span.end] for span in windows(text, words(text), size=size, overlap=overlap)]


def test_a_text_that_fits_is_one_passage() -> None:
    assert windows(" a b c ", words(" a b c "), size=3, overlap=1) == [Span(0, 7)]


@pytest.mark.parametrize("text", ["", " \n "])
def test_a_text_without_tokens_is_one_passage(text: str) -> None:
    assert windows(text, words(text), size=3, overlap=1) == [Span(0, len(text))]


@given(
    text=st.text(alphabet="ab .\n,é語", max_size=300),
    size=st.integers(1, 20),
    overlap=st.integers(0, 9),
)
def test_passages_cover_the_text_in_order_and_fit(text: str, size: int, overlap: int) -> None:
    overlap = min(overlap, size // 4)
    spans = windows(text, words(text), size=size, overlap=overlap)
    assert spans[0].start == 0
    assert spans[-1].end == len(text)
    for before, after in pairwise(spans):
        assert before.start < after.start <= before.end < after.end
    assert all(len(words(text[span.start : span.end])) <= size for span in spans)


def test_a_paragraph_is_a_better_cut_than_a_sentence() -> None:
    assert cut("a b c d e.\n\nf. g h i j k", size=8, overlap=0) == ["a b c d e.\n\n", "f. g h i j k"]


def test_a_sentence_is_a_better_cut_than_a_word() -> None:
    assert cut("a b c d e f. g h i j k l", size=8, overlap=0)[0] == "a b c d e f. "


def test_the_last_window_is_not_emptied_by_the_search_for_a_cut() -> None:
    assert cut("a. b c d e f g h i j", size=8, overlap=0)[0] == "a. b c d e f g "


def test_a_passage_begins_in_the_one_before() -> None:
    first, second = cut("a b c d e f g h i j k l", size=8, overlap=2)
    assert second.split()[0] in first.split()


def test_a_long_text_is_tokenised_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunking, "BLOCK_CHARACTERS", 16)
    text = "alpha beta  gamma\ndelta " * 9
    lengths: list[int] = []

    class Recording(WordTokenizer):
        def spans(self, text: str) -> NDArray[np.int64]:
            lengths.append(len(text))
            return super().spans(text)

    np.testing.assert_array_equal(token_spans(text, Recording()), words(text))
    assert max(lengths) <= 16


def test_word_tokenizer_counts_words_marks_and_single_unspaced_characters() -> None:
    text = "Wool, 2 naïve 緑茶tea"
    spans = WordTokenizer().spans(text).tolist()
    assert [text[start:end] for start, end in spans] == ["Wool", ",", "2", "naïve", "緑", "茶", "tea"]
    assert WordTokenizer().count(text) == len(spans)


def test_a_title_takes_at_most_half_of_a_passage() -> None:
    chunker = WindowChunker(WordTokenizer(), size=8, overlap=0)
    text = "a b c d e f g h"
    assert [len(chunker.split(title, text)) for title in ("", "t", "t " * 4, "t " * 40)] == [1, 2, 2, 2]


def test_an_encoder_without_a_chunker_gets_windows_of_words() -> None:
    text = "word " * 450
    spans = chunker_for(object()).split("", text)
    assert [len(text[span.start : span.end].split()) for span in spans[:2]] == [DEFAULT_WORDS, DEFAULT_WORDS]
    assert spans[1].start < spans[0].end


def test_the_chunker_of_an_encoder_is_used() -> None:
    encoder = SimpleNamespace(chunker=WholeDocument())
    assert chunker_for(encoder).split("title", "word " * 450) == [Span(0, 2250)]

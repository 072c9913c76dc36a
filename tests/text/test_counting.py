"""Counting words as the full-text index does."""

from __future__ import annotations

import pytest

from plait.text.counting import count_words


@pytest.mark.parametrize(
    ("word", "is_prefix", "count"),
    [
        ("weave", False, 3),  # stemmed, in title and text
        ("CAFE", False, 2),  # case and accents folded
        ("布を", False, 1),
        ("布", True, 2),  # every pair that begins with it
        ("absent", False, 0),
    ],
)
def test_words_are_counted_in_title_and_text(word: str, is_prefix: bool, count: int) -> None:
    assert count_words("Weaving", "weaves, weave: café cafe\u0301 布を織る布", [(word, is_prefix)]) == [count]


def test_each_word_has_its_own_count() -> None:
    assert count_words("", "a b b c", [("b", False), ("x", False), ("c", False)]) == [2, 0, 1]
    assert count_words("", "a b", []) == []


def test_a_word_that_sqlite_splits_is_counted_as_a_phrase() -> None:
    assert count_words("", "one two, two one two", [("one-two", False)]) == [2]

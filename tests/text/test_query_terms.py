"""Query terms: normalized and counted as the full-text index does."""

from __future__ import annotations

import pytest

from plait.text import query_terms
from plait.text.analyser import DEFAULT_ANALYSER, Analyser
from plait.text.query_terms import count_terms, normalize_terms


def normalized(query: str, analyser: Analyser = DEFAULT_ANALYSER) -> list[str] | None:
    return normalize_terms(list(analyser.query_terms(query).values()), analyser)


def test_terms_become_the_words_of_the_index() -> None:
    assert normalized("Rivers river running ตลาด") == ["river", "river", "run", "ตล", "ลา", "าด"]
    assert normalized("Häuser rivers", Analyser("de")) == ["haus", "riv"]


def test_the_cache_of_words_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(query_terms, "MAX_CACHED_WORDS", 3)
    for _ in range(2):
        assert normalized("lakes rivers") == ["lake", "river"]
        assert normalized("rivers hills roads") == ["river", "hill", "road"]
    assert len(query_terms._cache) <= 3


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
    assert count_terms("Weaving", "weaves, weave: café cafe\u0301 布を織る布", [(word, is_prefix)]) == [count]


def test_each_word_has_its_own_count() -> None:
    assert count_terms("", "a b b c", [("b", False), ("x", False), ("c", False)]) == [2, 0, 1]
    assert count_terms("", "a b", []) == []


def test_a_word_that_sqlite_splits_is_counted_as_a_phrase() -> None:
    assert count_terms("", "one two, two one two", [("one-two", False)]) == [2]

"""Words within one edit."""

from __future__ import annotations

import pytest

from plait.text.spelling import can_be_misspelt, one_edit_variants


@pytest.mark.parametrize("misspelt", ["lods", "loadds", "loids", "laods", "oads", "load"])
def test_a_word_is_among_the_variants_of_its_misspellings(misspelt: str) -> None:
    assert "loads" in one_edit_variants(misspelt)


def test_variants_are_different_and_not_the_word_itself() -> None:
    variants = one_edit_variants("Tree")
    assert len(variants) == len(set(variants))
    assert "tree" not in variants


def test_two_edits_are_too_many() -> None:
    assert "loads" not in one_edit_variants("lds")


def test_letters_are_of_the_script_of_the_word() -> None:
    assert "слово" in one_edit_variants("слво")
    assert not any(char.isascii() for variant in one_edit_variants("слво") for char in variant)


def test_an_unknown_script_is_only_shortened_and_exchanged() -> None:
    assert set(one_edit_variants("かきく")) == {"きく", "かく", "かき", "きかく", "かくき"}


@pytest.mark.parametrize(("word", "expected"), [("abc", False), ("abcd", True), ("ab12", False), ("a" * 25, False)])
def test_short_words_and_numbers_are_not_corrected(word: str, expected: bool) -> None:
    assert can_be_misspelt(word) is expected

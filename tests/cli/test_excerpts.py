"""Snippets: the window with the most words of the query, in any script."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plait.cli.excerpts import alike, columns, fold, query_words, snippet, words
from plait.cli.tables import printable

FILLER = "lorem ipsum dolor sit amet " * 20


def marked(text: str, query: str, width: int = 100) -> list[str]:
    shown = snippet(text, query, width=width)
    return [shown.text[start:end] for start, end in shown.marks]


def test_a_short_passage_is_shown_whole() -> None:
    shown = snippet("Vectors  are\nwoven.", "woven vectors", width=80)
    assert shown.text == "Vectors are woven."
    assert marked("Vectors are woven.", "woven vectors") == ["Vectors", "woven"]


def test_the_window_with_the_most_different_words_wins() -> None:
    text = f"red red red red {FILLER} red and blue meet {FILLER} red red"
    shown = snippet(text, "red blue", width=80)
    assert "red and blue meet" in shown.text
    assert shown.text.startswith("… ")
    assert shown.text.endswith(" …")
    assert columns(shown.text) <= 80


def test_an_ellipsis_shows_where_the_passage_was_cut() -> None:
    assert snippet("woven", "x", width=50, cut_before=True, cut_after=True).text == "… woven …"
    assert snippet("woven", "x", width=50).text == "woven"


def test_a_passage_without_query_words_is_shown_from_its_beginning() -> None:
    assert snippet(FILLER, "absent", width=50).text.startswith("lorem ipsum dolor")


def test_function_words_are_not_marked_unless_there_are_no_others() -> None:
    assert query_words("how do I parse the date") == ["parse", "date"]
    assert query_words("to be or") == ["to", "be", "or"]
    assert marked("the date is the key", "what is the date") == ["date"]


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("parse", "parsing", True),
        ("date", "dates", True),
        ("date", "data", False),
        ("run", "running", False),
        ("remove", "removed", True),
        ("interest", "international", False),
        ("猫", "黒猫", True),
    ],
)
def test_words_are_alike_if_only_their_endings_differ(one: str, other: str, same: bool) -> None:
    assert alike(one, other) is same


@pytest.mark.parametrize(
    ("text", "query", "expected"),
    [
        ("東京都は日本の首都である。", "日本の首都", ["日本の首都"]),
        ("吾輩は猫である。", "猫", ["は猫で"]),
        ("한국의 수도는 서울이다", "수도", ["수도"]),
        ("กรุงเทพมหานครเป็นเมืองหลวง", "เมืองหลวง", ["เมืองหลวง"]),
        ("भारत की राजधानी दिल्ली है", "राजधानी", ["राजधानी"]),
        ("Die Größe der STRASSE", "straße größe", ["Größe", "STRASSE"]),
        ("столица России", "россии", ["России"]),
        ("قرأت الكتاب في المكتبة الكبيرة", "المكتبة", ["المكتبة"]),
        ("Le cafe\u0301 est froid", "CAFÉ", ["cafe\u0301"]),
        ("Cafe con leche", "café", ["Cafe"]),
        ("ရန်ကုန်တက္ကသိုလ်", "တက္ကသိုလ်", ["တက္ကသိုလ်"]),
        ("２０２４年", "2024", ["２０２４"]),
    ],
)
def test_words_are_found_in_any_script(text: str, query: str, expected: list[str]) -> None:
    assert marked(text, query) == expected


def test_the_window_is_found_where_words_are_not_spaced() -> None:
    text = "これは長い文章です。" * 30 + "日本の首都は東京です。" + "それはまた別の話です。" * 30
    shown = snippet(text, "日本の首都はどこですか", width=80)
    assert "日本の首都は" in shown.text
    assert columns(shown.text) <= 80


@pytest.mark.parametrize("width", range(12, 40))
def test_a_cut_does_not_separate_a_character_from_its_combining_marks(width: int) -> None:
    shown = snippet("เมื่อวานฉันอ่านหนังสือที่ห้องสมุดใหญ่" * 5, "หนังสือ", width=width).text.strip("… ")
    assert not unicodedata.combining(shown[0])
    assert unicodedata.category(shown[0]) != "Mn"
    position = ("เมื่อวานฉันอ่านหนังสือที่ห้องสมุดใหญ่" * 6).find(shown) + len(shown)
    assert unicodedata.category(("เมื่อวานฉันอ่านหนังสือที่ห้องสมุดใหญ่" * 6)[position]) != "Mn"


def test_combining_marks_take_no_column() -> None:
    assert (columns("ที่"), columns("cafe\u0301"), columns("東京")) == (1, 4, 4)


def test_control_characters_are_not_shown() -> None:
    assert printable("a\x1b[31m\x9b\u202eb\nc\tá") == "a [31m b\nc á"


@settings(deadline=None)
@given(st.text(max_size=300), st.text(max_size=30), st.integers(10, 120))
def test_any_text_gives_a_snippet_with_marks_in_order(text: str, query: str, width: int) -> None:
    shown = snippet(text, query, width=width)
    ends = [0, *(position for mark in shown.marks for position in mark), len(shown.text)]
    assert ends == sorted(ends)
    assert "\n" not in shown.text


@settings(deadline=None)
@given(st.text(max_size=200))
def test_words_are_ranges_of_the_text_in_order(text: str) -> None:
    all_words = list(words(text))
    assert all(fold(text[word.start : word.end]) == word.folded for word in all_words)
    assert [word.start for word in all_words] == sorted({word.start for word in all_words})

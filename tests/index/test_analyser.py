"""How text becomes words: scripts without spaces are findable, and a query is never read as FTS5's language."""

from __future__ import annotations

import sqlite3
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plait.index.analyser import TOKENIZER, analyse, match_expression


def found(text: str, query: str) -> bool:
    """Whether a query finds a document with this text."""
    connection = sqlite3.connect(":memory:")
    try:
        connection.execute(f"CREATE VIRTUAL TABLE words USING fts5 (text, content = '', tokenize = \"{TOKENIZER}\")")
        connection.execute("INSERT INTO words (rowid, text) VALUES (1, ?)", [analyse(text)])
        expression = match_expression(query)
        sql = "SELECT rowid FROM words WHERE words MATCH ?"
        return expression is not None and bool(connection.execute(sql, [expression]).fetchall())
    finally:
        connection.close()


@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("The weavers were weaving", "weave"),
        ("café", "CAFE"),
        ("cafe\u0301", "café"),
        ("東京都は日本の首都です", "首都"),
        ("東京都", "京都"),
        ("緑茶を飲む", "茶"),
        ("緑茶", "茶"),
        ("茶道 and more", "a cup of 茶"),
        ("ｶﾞﾗｽ", "ガラス"),
        ("ประเทศไทย", "ไทย"),
        ("서울특별시", "서울"),
        ("हिन्दी भाषा", "हिन्दी"),
        ("２０２４年", "2024"),
        ("state-of-the-art", "art"),
        ("snake_case", "case"),
    ],
)
def test_a_query_finds_the_words_of_a_text(text: str, query: str) -> None:
    assert found(text, query)


@pytest.mark.parametrize(
    ("text", "query"), [("東京都", "京東"), ("हिन्दी", "ह"), ("ประเทศ", "ศท"), ("wool", "woolly mammoth")]
)
def test_a_query_does_not_find_other_words(text: str, query: str) -> None:
    assert not found(text, query)


@pytest.mark.parametrize("query", ["", "   ", "?!", "***", '"', '""', "( )", "\x00", "\ud800", "❤️", "-", "\u0301"])
def test_a_query_without_a_word_has_no_expression(query: str) -> None:
    assert match_expression(query) is None


@pytest.mark.parametrize(
    "query",
    [
        "wool OR NOT AND NEAR",
        'wool" OR title:"x',
        "title : wool",
        "wool*",
        "{title text} : wool",
        "NEAR(wool silk, 2)",
        "^wool",
        "wool + silk",
        "'; DROP TABLE words; --",
        'wool\x00"',
        "wool\ud800",
    ],
)
def test_operators_in_a_query_are_words_or_nothing(query: str) -> None:
    found("wool", query)  # does not raise
    expression = match_expression(query)
    assert expression is not None
    assert all(word.strip('"').isalnum() for word in expression.split(" OR "))


@given(st.text())
def test_any_query_is_a_valid_expression(query: str) -> None:
    found("wool", query)


@given(st.text(alphabet=st.characters(codec="utf-8", categories=["L", "N"]), min_size=1))
def test_any_text_of_letters_that_the_tokenizer_knows_finds_itself(text: str) -> None:
    frozen = unicodedata.ucd_3_2_0
    if all(frozen.category(char)[0] in "LN" for char in text):
        assert found(text, text)


@given(
    st.text(alphabet=st.one_of(st.characters(), st.sampled_from("aé\u0301\u0327がガｶﾞ한ᄒ\u1161\u11abﬁ東ก\u0e33\u0e48")))
)
def test_settled_characters_need_no_normalisation(text: str) -> None:
    whole = unicodedata.ucd_3_2_0.normalize("NFKC", text)
    assert analyse(whole) == analyse(text)


def test_a_long_query_is_still_one_query() -> None:
    assert found("w9999", " ".join(f"w{number}" for number in range(10_000)))


def test_words_that_only_carry_a_question_are_left_out_of_it() -> None:
    assert match_expression("How do I parse the date?") == '"parse" OR "date"'


def test_a_query_of_such_words_alone_keeps_them() -> None:
    assert found("To be, or not to be: that is the question", "to be or not to be")

"""Text analysis: scripts without spaces are searchable, and a query cannot use FTS5's operators."""

from __future__ import annotations

import sqlite3
import unicodedata
from collections.abc import Sequence
from contextlib import closing

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plait.errors import ConfigError
from plait.text.analyser import DEFAULT_ANALYSER, MAX_TERM_COUNT, Analyser
from plait.text.fts_table import add_to_fts, fts_schema
from plait.text.stemming import STEMMERS


def match_expression(query: str, analyser: Analyser = DEFAULT_ANALYSER) -> str | None:
    return " OR ".join(term.repeated for term in analyser.query_terms(query).values()) or None


def matches(text: str, query: str, analyser: Analyser = DEFAULT_ANALYSER) -> bool:
    """Whether a query finds a document with this text."""
    return found_all(text, [query], analyser)


def found_all(text: str, queries: Sequence[str], analyser: Analyser) -> bool:
    """Whether each of the queries finds a document with this text."""
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.execute(fts_schema(analyser))
        add_to_fts(connection, analyser, [(1, "", text)])
        sql = "SELECT rowid FROM words WHERE words MATCH ?"
        expressions = [match_expression(query, analyser) for query in queries]
        return all(expression and connection.execute(sql, [expression]).fetchall() for expression in expressions)


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
    assert matches(text, query)


@pytest.mark.parametrize(
    ("text", "query"), [("東京都", "京東"), ("हिन्दी", "ह"), ("ประเทศ", "ศท"), ("wool", "woolly mammoth")]
)
def test_a_query_does_not_find_other_words(text: str, query: str) -> None:
    assert not matches(text, query)


@pytest.mark.parametrize("query", ["", "   ", "?!", "***", '"', '""', "( )", "\x00", "\ud800", "❤️", "-", "\u0301"])
def test_a_query_without_a_word_has_no_expression(query: str) -> None:
    assert match_expression(query) is None


@pytest.mark.parametrize(
    "query",
    [
        "wool OR NOT AND NEAR",
        'wool" OR title:"x',
        "title : wool",
        "{title text} : wool",
        "NEAR(wool silk, 2)",
        "^wool",
        "wool + silk",
        "'; DROP TABLE words; --",
        'wool\x00"',
        "wool\ud800",
    ],
)
def test_operators_in_a_query_are_words_or_ignored(query: str) -> None:
    matches("wool", query)  # does not raise
    expression = match_expression(query)
    assert expression is not None
    assert all(word.strip('"').isalnum() for word in expression.split(" OR "))


def test_a_star_after_a_word_matches_words_that_begin_with_it() -> None:
    assert match_expression("woo*") == '"woo" *'
    assert matches("wool", "woo*")
    assert not matches("wood", "wool*")


@pytest.mark.parametrize("is_prefix", [False, True])
@given(text=st.text(alphabet=st.characters(codec="ascii"), max_size=8))
def test_a_phrase_of_one_ascii_word_is_that_word(text: str, is_prefix: bool) -> None:
    spaced = DEFAULT_ANALYSER.phrase(f" {text} ", is_prefix=is_prefix)  # the general way
    assert DEFAULT_ANALYSER.phrase(text, is_prefix=is_prefix) == spaced


@settings(deadline=None)
@given(st.text())
def test_any_query_is_a_valid_expression(query: str) -> None:
    matches("wool", query)


@settings(deadline=None)
@given(st.text(alphabet=st.characters(codec="utf-8", categories=["L", "N"]), min_size=1))
def test_any_text_of_letters_that_the_tokenizer_knows_finds_itself(text: str) -> None:
    frozen = unicodedata.ucd_3_2_0
    if all(frozen.category(char)[0] in "LN" for char in text):
        assert matches(text, text)


@settings(deadline=None)
@given(
    st.text(alphabet=st.one_of(st.characters(), st.sampled_from("aé\u0301\u0327がガｶﾞ한ᄒ\u1161\u11abﬁ東ก\u0e33\u0e48")))
)
def test_inert_characters_need_no_normalization(text: str) -> None:
    whole = unicodedata.ucd_3_2_0.normalize("NFKC", text)
    assert DEFAULT_ANALYSER.analyse(whole) == DEFAULT_ANALYSER.analyse(text)


def test_a_query_of_ten_thousand_words_works() -> None:
    assert matches("w9999", " ".join(f"w{number}" for number in range(10_000)))


def test_stop_words_are_dropped_from_a_query() -> None:
    assert match_expression("How do I parse the date?") == '"parse" OR "date"'


def test_a_query_of_stop_words_only_keeps_them() -> None:
    assert matches("To be, or not to be: that is the question", "to be or not to be")


def test_a_repeated_word_counts_again_up_to_a_limit() -> None:
    assert match_expression("tea or coffee or tea") == '"tea" OR "tea" OR "coffee"'
    (term,) = DEFAULT_ANALYSER.query_terms("tea " * 100).values()
    assert term.count == MAX_TERM_COUNT


# Sentences with another form of the query's word, which a stemmer must match.
SENTENCES = [
    ("de", "Die Häuser der alten Städte wurden verkauft.", "Haus verkaufen"),
    ("de", "Die Straßenbahnen fuhren nicht.", "STRASSENBAHN"),
    ("fr", "Les chevaux couraient dans la forêt.", "courir cheval forets"),
    ("es", "Las niñas cantaron canciones antiguas.", "canción"),
    ("it", "I bambini giocavano nei giardini.", "giardino"),
    ("ru", "Столицей России является город Москва.", "столица Москвы"),
    ("el", "Οι πόλεις της Ελλάδας είναι παλιές.", "ΠΌΛΗ"),
    ("tr", "İstanbul'daki evlerin ışıkları yandı.", "istanbul ışık"),
    ("ar", "كَتَبَ الطلابُ الكتبَ في المدرسة.", "مدرسة طالب"),
    ("hi", "लड़कियों ने किताबें पढ़ीं।", "किताब"),
    ("ro", "Copiii citesc cărțile în grădini.", "grădina"),
    ("fi", "Talojen katot olivat punaisia.", "talo"),
]


@pytest.mark.parametrize(("language", "text", "query"), SENTENCES)
def test_an_index_with_a_language_finds_other_forms_of_its_words(language: str, text: str, query: str) -> None:
    assert matches(text, query, Analyser(language))


@pytest.mark.parametrize("language", ["de", "ru", "ar", "tr"])
@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("我昨天在北京大学图书馆看书。", "图书馆"),
        ("昨日は図書館で本を読みました。", "図書館"),
        ("เมื่อวานฉันอ่านหนังสือที่ห้องสมุด", "ห้องสมุด"),
        ("Berlin 東京 and Bangkok", "東京"),
    ],
)
def test_scripts_without_spaces_are_found_with_any_language(language: str, text: str, query: str) -> None:
    assert matches(text, query, Analyser(language))


@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("我昨天在北京大学图书馆看书。", "北京大学在哪里"),
        ("昨日は図書館で本を読みました。", "本を読む図書館"),
        ("เมื่อวานฉันอ่านหนังสือที่ห้องสมุด", "หนังสือ"),
        ("ວິທະຍາໄລແຫ່ງຊາດລາວ", "ແຫ່ງຊາດ"),
        ("សាកលវិទ្យាល័យភូមិន្ទភ្នំពេញ", "ភ្នំពេញ"),
        ("ရန်ကုန်တက္ကသိုလ်", "တက္ကသိုလ်"),
        ("قرأت الكتاب في المكتبة", "الكتاب"),
        ("Die Bibliothek schließt um acht", "BIBLIOTHEK"),
        ("The library 图书馆 หอสมุด öffnet", "หอสมุด"),
        ("The library 图书馆 หอสมุด öffnet", "libraries"),
        ("İstanbul", "istanbul"),
    ],
)
def test_texts_in_any_language_are_found_without_a_language_setting(text: str, query: str) -> None:
    assert matches(text, query)


def test_english_stop_words_mean_something_in_other_languages() -> None:
    assert match_expression("was will", Analyser("de")) == '"was" OR "will"'
    assert match_expression("was tea") == '"tea"'


@pytest.mark.parametrize(("given", "language"), [("DE", "de"), ("pt-BR", "pt"), ("en", None), ("zh_Hans", None)])
def test_a_language_is_named_by_its_code(given: str, language: str | None) -> None:
    assert Analyser(given).language == language


def test_a_language_without_a_stemmer_is_refused_with_a_list() -> None:
    with pytest.raises(ConfigError, match=r"no stemmer for the language 'vi'.*leave language out.*ar, ca, cs"):
        Analyser("vi")


def test_every_language_has_a_stemmer() -> None:
    for language in STEMMERS:
        assert matches("text", "text", Analyser(language)), language


WORDS_OF_ALL_SCRIPTS = st.sampled_from(" aeiousnßéIİıñ.'-_0العكتابُ" + "столицейλόγος" + "हिन्दी" + "東京のがเมือง한국")


@settings(deadline=None)
@given(
    st.sampled_from([None, "ar", "de", "el", "fr", "hi", "ru", "tr", "yi"]),
    st.text(st.one_of(WORDS_OF_ALL_SCRIPTS, st.characters(codec="utf-8", categories=["L", "N", "Mn"])), max_size=60),
)
def test_every_word_of_a_document_finds_it(language: str | None, text: str) -> None:
    analyser, frozen = Analyser(language), unicodedata.ucd_3_2_0
    known = [word for word in text.split() if all(frozen.category(char) != "Cn" for char in word)]
    assert found_all(text, [word for word in known if match_expression(word, analyser)], analyser)

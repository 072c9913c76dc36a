"""Operators of text queries, and text that only looks like operators."""

from __future__ import annotations

import pytest

from plait.text.query_syntax import MAX_WORDS, Clause, parse_query

FIELDS = {"year", "module"}


def parse(query: str) -> tuple[str, str, tuple[Clause, ...], tuple[Clause, ...]]:
    parsed = parse_query(query, FIELDS.__contains__)
    return parsed.text, parsed.words, parsed.required, parsed.excluded


@pytest.mark.parametrize(
    "query",
    [
        "state-of-the-art methods",
        "C++: what is it",
        "-5 degrees outside",
        "it was -5",
        '5" pipe',
        'a 5" pipe and a 6" pipe',
        '"unbalanced',
        "don't stop",
        "rock 'n' roll",
        "note:this is no field",
        "http://example.org/x",
        "10:30 meeting",
        "x title: y",
        "a*b",
        "what is 5*3",
        "a 5* hotel",
        "foo - bar",
        "--help me",
        "tar -v file",
        "-only",
        "-foo -bar",
        '""',
        '"" x',
        '": "',
        "*",
        "-",
        '"',
        ":",
        "title:",
        'say "hi',
        "snake_case and json.loads",
    ],
)
def test_odd_text_is_plain_text(query: str) -> None:
    assert parse(query) == (query, query, (), ())


def test_a_quoted_phrase_is_required() -> None:
    text, words, required, excluded = parse('"war and peace" tolstoy')
    assert (text, words) == ("war and peace tolstoy",) * 2
    assert required == (Clause("war and peace"),)
    assert excluded == ()


def test_curly_quotes_are_quotes() -> None:
    assert parse("“curly quotes” here")[2] == (Clause("curly quotes"),)


def test_a_phrase_may_stand_before_a_question_mark() -> None:
    text, _, required, _ = parse('who said "to be, or not to be"?')
    assert text == "who said to be, or not to be?"
    assert required == (Clause("to be, or not to be"),)


def test_words_and_phrases_are_excluded_and_not_encoded() -> None:
    text, words, required, excluded = parse('tolstoy -film -"tv series"')
    assert (text, words, required) == ("tolstoy", "tolstoy", ())
    assert excluded == (Clause("film"), Clause("tv series"))


def test_the_title_and_metadata_are_fields() -> None:
    text, _, required, excluded = parse('TITLE:json module:"json tool" loads -year:2020')
    assert text == "json loads"  # words of the title are searched, values of metadata are not
    assert required == (Clause("json", "title"), Clause("json tool", "module"))
    assert excluded == (Clause("2020", "year"),)


def test_a_query_of_a_field_alone_is_about_its_value() -> None:
    assert parse("module:collections")[:2] == ("collections", "collections")


def test_a_prefix_is_for_words_and_not_for_the_encoder() -> None:
    assert parse("comp* vectors") == ("vectors", "comp* vectors", (Clause("comp", is_prefix=True),), ())
    assert parse("comp*")[:2] == ("comp", "comp*")


def test_a_pasted_text_has_no_operators() -> None:
    pasted = '"he said" ' + "word " * MAX_WORDS
    assert parse(pasted)[2:] == ((), ())


def test_a_long_word_takes_no_long_time() -> None:
    assert parse('"' + "a." * 50_000)[2:] == ((), ())

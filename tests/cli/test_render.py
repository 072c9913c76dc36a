"""`plait search --explain` and `--timings`: what people see, and what programs get."""

from __future__ import annotations

import io
import json
import re

import pytest
from rich.cells import cell_len
from rich.console import Console
from typer.testing import CliRunner

from cli.fakes import Library
from plait.cli.app import app
from plait.cli.excerpts import Mark, densest_part, in_context, on_one_line, whole_word
from plait.cli.render import matched_words, print_explained
from plait.records import Explanation, Hit, ScorePart, Span, TokenMatch, TokenMatches, WordMatch, hit_fields

QUERY = "how is parsing done?"
TEXT = "The date is\n\n parsed from 🧵 a  string."


def match(asked: str, token: str, similarity: float, *, field: str = "text", text: str = TEXT) -> TokenMatch:
    where, token_start = QUERY.find(asked), text.find(token)
    return TokenMatch(
        query=asked,
        query_span=Span(where, where + len(asked)) if where >= 0 else None,
        token=token,
        field=field if token_start >= 0 else "",
        span=Span(token_start, token_start + len(token)) if token_start >= 0 else None,
        row=3,
        similarity=similarity,
        share=0.2,
    )


def hit(*matches: TokenMatch, text: str = TEXT, title: str = "Dates", query: str = QUERY, note: str = "") -> Hit:
    multi = TokenMatches(sum(one.similarity for one in matches), matches, note)
    parts = (ScorePart("bm25", 7.5, 8, 0.4), ScorePart("dense", None, None, 0.0), ScorePart("multi", 2.5, 1, 0.6))
    words = (WordMatch("parsing", 2, 10, 4.5, 7.5),)
    span = Span(0, len(text))
    explanation = Explanation("a", query, 0.03, 1, span, parts, multi if matches else None, 0.8, words)
    return Hit("a", 0.03, text, title, {}, span, {"bm25": 7.5}, explanation)


PIECES = (match("how", "is", 0.6), match("par", "par", 0.9), match("sing", "sed", 0.7), match("[CLS]", "[CLS]", 0.95))


def drawn(*hits: Hit, width: int = 80, colour: bool = False, full: bool = False, everything: bool = False) -> str:
    console = Console(file=io.StringIO(), width=width, force_terminal=colour, highlight=False)
    print_explained(hits, QUERY, full=full, everything=everything, console=console)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_tokens_of_a_word_are_joined_on_both_sides() -> None:
    one = hit(*PIECES)
    assert one.explanation is not None
    words = {word.label: word for word in matched_words(one, one.explanation)}
    assert list(words) == ["how", "parsing", "[CLS]"]
    assert words["parsing"].similarity == pytest.approx(0.8)
    target = words["parsing"].target
    assert target is not None
    assert TEXT[slice(*target.span)] == "parsed"


def test_an_explanation_shows_lists_words_and_content_words_with_their_matches() -> None:
    lines = [" ".join(line.split()) for line in drawn(hit(*PIECES)).splitlines() if line.strip()]
    assert lines == [
        "1 0.0300 a Dates",
        "The date is parsed from 🧵 a string.",
        "lists bm25 7.5 #8 40% dense - multi 2.5 #1 60%",
        "words parsing ×2 (+7.50)",
        "parsing ████████ 0.80 The date is [parsed] from 🧵 a string.",
        "+ 1.55 of 3.15 from how, [CLS]",
    ]


def test_everything_has_a_line_for_each_token() -> None:
    shown = drawn(hit(*PIECES), everything=True)
    assert re.search(r"how +█+ +0\.60 The date \[is\] parsed", shown)
    assert re.search(r"\[CLS\] +\S+ +0\.95 \[CLS\]", shown)
    assert " of 3.15 from" not in shown


def test_a_query_of_function_words_alone_shows_them() -> None:
    assert "[is]" in drawn(hit(match("how", "is", 0.6)))


def test_a_match_in_the_title_says_so() -> None:
    assert "title: [Dates]" in drawn(hit(match("parsing", "Dates", 0.9, field="title", text="Dates")))


def test_at_most_eight_words_are_shown_unless_all_are_asked_for() -> None:
    query = " ".join(f"word{n}" for n in range(20))
    spans = [Span(token.start(), token.end()) for token in re.finditer(r"\w+", query)]
    matches = [
        TokenMatch(query[slice(*span)], span, "date", "text", Span(4, 8), 1, n / 20, 0.05)
        for n, span in enumerate(spans)
    ]
    one = hit(*matches, query=query)
    assert len(re.findall(r"^ +word\d+ ", drawn(one), re.M)) == 8
    assert "word19 " in drawn(one)
    assert len(re.findall(r"^ +word\d+ ", drawn(one, everything=True), re.M)) == 20


def test_vectors_without_tokens_are_shown_by_number_with_a_note() -> None:
    unknown = TokenMatch("", None, "", "", None, 7, 0.5, 1.0)
    shown = drawn(hit(unknown, note="the tokens are not known."))
    assert re.search(r"vector 0 +█+ +0\.50 vector 7", shown)
    assert "the tokens are not known." in shown


def test_an_imputed_similarity_is_not_shown_as_a_match() -> None:
    imputed = TokenMatch("parsing", Span(7, 14), "", "", None, -1, 0.5, 1.0, imputed=True)
    assert "not retrieved" in drawn(hit(imputed))


def test_strength_is_shown_by_colour_on_a_terminal_only() -> None:
    weak_and_strong = hit(match("parsing", "parsed", 0.9), match("done", "string", 0.3))
    coloured = drawn(weak_and_strong, colour=True)
    assert "\x1b[1;33mparsed\x1b[0m from" in coloured
    assert "\x1b[4mstring\x1b[0m" in coloured
    assert "[parsed]" not in coloured
    assert "\x1b" not in drawn(weak_and_strong)


@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("width", [40, 60, 80, 200])
def test_no_line_is_wider_than_the_terminal(width: int, full: bool) -> None:
    text = "日本語の文章。" * 60 + "parsed " + "x" * 300
    one = hit(
        match("parsing", "parsed", 0.9, text=text), match("done", "日", 0.9, text=text), text=text, title="t" * 99
    )
    for line in drawn(one, width=width, full=full, everything=True).splitlines():
        assert cell_len(line) <= width


def test_a_document_cannot_draw_on_the_screen() -> None:
    text = "\x1b[2J parsed \x9b31m [red]markup[/red] \u202e evil"
    shown = drawn(hit(match("parsing", "parsed", 0.9, text=text), text=text, title="\x1b[31m"))
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", shown)
    assert "[red]markup[/red]" in shown


@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize(
    "text", ["🧶👩‍🏭 a\r\n\t parsed  🧵", "e\u0301\n\nparsed", "\x07\u202eparsed\x1b[0m", "布を parsed"]
)
def test_marks_cover_exactly_the_matched_word(text: str, full: bool) -> None:
    shown = drawn(hit(match("parsing", "parsed", 0.9, text=text), text=text), colour=True, full=full, width=200)
    assert set(re.findall("\x1b\\[1;33m(.*?)\x1b\\[0m", shown)) == {"parsed"}


def test_marks_move_with_their_characters() -> None:
    moved = on_one_line("  a \n\n b\u202ec ", [Mark(7, 10, 1.0)])
    assert moved.text == "a bc"
    assert [moved.text[mark.start : mark.end] for mark in moved.marks] == ["bc"]


@pytest.mark.parametrize("width", [8, 20, 40])
def test_a_context_fits_the_width_and_contains_the_word(width: int) -> None:
    for text, word in (("many words stand before it and after", "before"), ("日本語の文章を織る", "文")):
        start = text.index(word)
        before, itself, after = in_context(text, start, start + len(word), width)
        assert itself == word
        assert cell_len(before + itself + after) <= width


def test_the_excerpt_is_where_the_marks_are_strongest() -> None:
    text = "one " + "filler " * 200 + "two three"
    marks = [Mark(0, 3, 1.0), Mark(len(text) - 9, len(text) - 6, 1.0), Mark(len(text) - 5, len(text), 1.0)]
    part = densest_part(on_one_line(text, marks), 80, cut_before=False, cut_after=True)
    assert part.text.startswith("… ")
    assert part.text.endswith("two three …")
    assert [part.text[mark.start : mark.end] for mark in part.marks] == ["two", "three"]


def test_a_whole_word_ends_at_a_non_letter_and_in_unspaced_scripts() -> None:
    assert whole_word("(parsing)", 1, 4) == (1, 8)
    assert whole_word("布を織る", 1, 2) == (1, 2)
    assert whole_word("a?!", 1, 2) == (1, 2)


def test_json_has_the_explanation() -> None:
    one = hit(*PIECES)
    assert one.explanation is not None
    fields = json.loads(json.dumps(hit_fields(1, one, full=False)))
    assert fields["explanation"] == json.loads(json.dumps(one.explanation.as_fields()))
    assert fields["explanation"]["multi"]["matches"][1]["query_span"] == [7, 10]


def test_timings_go_to_stderr_or_are_the_last_line_of_json(runner: CliRunner, library: Library) -> None:
    library.make("ix", a="woven")
    result = runner.invoke(app, ["search", "ix", "woven", "--timings"])
    assert "total" in result.stderr
    assert "total" not in result.stdout
    hit_line, last = runner.invoke(app, ["search", "ix", "woven", "--timings", "--json"]).stdout.splitlines()
    assert "timings" not in json.loads(hit_line)
    assert [stage["stage"] for stage in json.loads(last)["timings"]["stages"]] == ["open"]


@pytest.mark.parametrize("option", ["--explain", "--explain-all"])
def test_explain_options_reach_the_index(runner: CliRunner, library: Library, option: str) -> None:
    index = library.make("ix", a="woven")
    assert runner.invoke(app, ["search", "ix", "woven", option]).exit_code == 0
    assert index.asked[0]["explain"] is True

"""`plait search`: the table, the JSON, and how it ends."""

from __future__ import annotations

import io
import json
import re
import sys
from dataclasses import replace

import pytest
from rich.cells import cell_len
from rich.console import Console
from typer.testing import CliRunner

from cli.fakes import Library
from plait.cli.app import app
from plait.cli.render import print_hits
from plait.cli.search import print_json
from plait.records import Hit, Span, hit_fields
from plait.search.modes import mode_names
from plait.search.multivector.plaid import PlaidParams


def hit(id: str = "a", text: str = "woven", title: str = "", score: float = 0.5) -> Hit:
    return Hit(id, score, text, title, {}, Span(0, len(text)), {"dense": score})


def drawn(hits: list[Hit], query: str, *, width: int = 80, colour: bool = False, full: bool = False) -> str:
    console = Console(file=io.StringIO(), width=width, force_terminal=colour, highlight=False)
    print_hits(hits, query, full=full, console=console)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_hits_are_listed_with_rank_score_id_title_and_text(runner: CliRunner, library: Library) -> None:
    library.make("ix", a="vectors are woven", b="woven again", c="other")
    result = runner.invoke(app, ["search", "ix", "woven"])
    assert result.exit_code == 0
    lines = [line.rstrip() for line in result.stdout.splitlines() if line.strip()]
    assert lines[0].split() == ["1", "1.0000", "a", "Title", "a"]
    assert lines[1].strip() == "vectors are woven"
    assert lines[2].split() == ["2", "0.5000", "b", "Title", "b"]
    assert "\x1b" not in result.stdout


def test_options_reach_the_index(runner: CliRunner, library: Library) -> None:
    index = library.make("ix", a="woven")
    options = ["-k", "3", "--mode", "dense", "--filter", "year > 1", "--exact", "--threads", "1", "--model", "m"]
    options += ["--timeout", "0.5"]
    assert runner.invoke(app, ["search", "ix", "woven", *options]).exit_code == 0
    asked = {
        "query": "woven", "k": 3, "mode": "dense", "filter": "year > 1", "exact": True,
        "params": None, "explain": False, "rerank": None, "timeout": 0.5,
        "offset": 0, "sort": None, "group_by": None, "passages": 1,
        "min_score": None, "syntax": True, "highlight": True,
    }  # fmt: skip
    assert [{name: value for name, value in one.items() if name != "trace"} for one in index.asked] == [asked]
    opened = {"path": "ix", "create": False, "model": "m", "n_threads": 1, "read_only": True, "preload": None}
    assert library.opened == [opened]


def test_params_reach_the_index_by_name(runner: CliRunner, library: Library) -> None:
    index = library.make("ix", a="woven")
    options = ["--mode", "plaid", "--param", "n_probe=4", "--param", " t_cs = 0.3"]
    assert runner.invoke(app, ["search", "ix", "woven", *options]).exit_code == 0
    assert index.asked[0]["params"] == PlaidParams(n_probe=4, t_cs=0.3)


@pytest.mark.parametrize("wrong", [["n_probe"], ["=4"], ["n_probe="], ["a=1", "a=2"]], ids=str)
def test_invalid_params_are_refused(runner: CliRunner, library: Library, wrong: list[str]) -> None:
    library.make("ix", a="woven")
    result = runner.invoke(app, ["search", "ix", "woven", *(word for one in wrong for word in ("--param", one))])
    assert result.exit_code == 2
    assert result.stderr.startswith("plait: ")


def test_json_has_one_object_on_each_line(runner: CliRunner, library: Library) -> None:
    library.make("ix", a="woven é", b="woven")
    result = runner.invoke(app, ["search", "ix", "woven", "--json"])
    first, second = map(json.loads, result.stdout.splitlines())
    assert first == {
        "rank": 1,
        "id": "a",
        "score": 1.0,
        "scores": {"bm25": 1.0},
        "title": "Title a",
        "passage": "woven é",
        "span": [0, 7],
        "highlights": [],
        "metadata": {"year": 2024},
    }
    assert second["rank"] == 2
    full = runner.invoke(app, ["search", "ix", "woven", "--json", "--full"])
    assert json.loads(full.stdout.splitlines()[0])["text"] == "woven é"


def test_json_has_highlights_and_confidence() -> None:
    fields = hit_fields(1, replace(hit(text="a loom"), highlights=(Span(2, 6),), confidence=0.98765), full=False)
    assert fields["highlights"] == [[2, 6]]
    assert fields["confidence"] == 0.9877


def test_a_least_score_and_plain_text_reach_the_index(runner: CliRunner, library: Library) -> None:
    index = library.make("ix", a="woven")
    runner.invoke(app, ["search", "ix", "woven", "--min-score", "0.5", "--plain"])
    runner.invoke(app, ["search", "ix", "woven", "--min-score", "auto"])
    assert [(one["min_score"], one["syntax"]) for one in index.asked] == [(0.5, False), ("auto", True)]
    result = runner.invoke(app, ["search", "ix", "woven", "--min-score", "much"])
    assert result.exit_code == 2
    assert "must be a number or auto" in result.stderr


def test_the_snippet_is_where_the_highlights_are() -> None:
    text = "beginning " * 60 + "here a heddle lifts the threads " + "ending " * 60
    start = text.index("heddle")
    shown = drawn([replace(hit(text=text), highlights=(Span(start, start + 6),))], "no word of it", colour=True)
    assert "\x1b[1;33mheddle\x1b[0m" in shown


@pytest.mark.parametrize(("encoding", "shown"), [("utf-8", "é"), ("ascii", "\\u00e9"), ("latin-1", "\\u00e9")])
def test_json_is_valid_in_any_output_encoding(monkeypatch: pytest.MonkeyPatch, encoding: str, shown: str) -> None:
    out = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    monkeypatch.setattr(sys, "stdout", out)
    print_json([hit(text="é")], full=False)
    out.seek(0)
    line = out.read()
    assert shown in line
    assert json.loads(line)["passage"] == "é"


def test_nothing_found_exits_with_1(runner: CliRunner, library: Library) -> None:
    library.make("ix", a="woven")
    result = runner.invoke(app, ["search", "ix", "absent", "--filter", "year > 1"])
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == "plait: nothing found among the documents where year > 1\n"


def test_an_unknown_filter_field_is_reported(runner: CliRunner, library: Library) -> None:
    library.make("ix", a="woven")
    result = runner.invoke(app, ["search", "ix", "absent", "--filter", "yaer > 1"])
    assert result.exit_code == 1
    assert result.stderr.splitlines()[0] == "plait: no document has such a field"


def test_a_user_error_exits_with_2_and_one_message(runner: CliRunner, library: Library) -> None:
    result = runner.invoke(app, ["search", "nowhere", "woven"])
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == "plait: nowhere is not an index; make one with plait index\n"
    assert library.opened


def test_words_of_the_query_are_coloured_on_a_terminal_only() -> None:
    assert "\x1b[1;33mwoven\x1b[0m" in drawn([hit(text="how woven is")], "woven", colour=True)
    assert "\x1b" not in drawn([hit(text="how woven is")], "woven")


@pytest.mark.parametrize("width", [40, 80, 200])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    wide = [
        hit("i" * 300, "word " * 500, "t" * 200, score=123.4567),
        hit("日本" * 60, "日本語の文章。" * 100, "標題" * 60),
    ]
    for line in drawn(wide, "word 日本語", width=width).splitlines():
        assert cell_len(line) <= width
        assert line == line.rstrip()


def test_a_snippet_has_three_lines_and_full_shows_everything() -> None:
    long = hit(text="filler " * 400 + "the woven end")
    assert len(drawn([long], "woven").splitlines()) <= 5
    assert "woven end" in drawn([long], "woven")
    assert drawn([long], "woven", full=True).count("filler") == 400


def test_a_title_that_begins_with_the_id_does_not_repeat_it() -> None:
    assert drawn([hit("json.loads", title="json.loads(s)")], "x").splitlines()[0] == "1  0.5000  json.loads(s)"
    assert drawn([hit("a")], "x").splitlines()[0] == "1  0.5000  a"


def test_help_names_every_mode(runner: CliRunner) -> None:
    page = "".join(runner.invoke(app, ["search", "--help"]).stdout.split())  # lines break at hyphens
    assert [mode for mode in mode_names() if mode not in page] == []


def test_a_document_cannot_draw_on_the_screen() -> None:
    hostile = hit("\x1b[2J", "a\x1b]0;title\x07 \x9b31m woven \u202e evil", "\x1b[31m\r\n[red]markup[/red]")
    for full in (False, True):
        shown = drawn([hostile], "woven", full=full)
        assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", shown)
    assert "[red]markup[/red]" in shown

"""Titles and front matter of Markdown."""

from __future__ import annotations

import io
from typing import Any

import pytest

from plait.readers.given import Given
from plait.readers.text_files import front_matter, markdown_headings, read_markdown, read_rst, rst_headings
from plait.records import Document, Section, headings_at, location_at


def given(text: str, name: str = "a.md") -> Given:
    return Given(io.BytesIO(text.encode()), name, name)


def markdown(text: str) -> Document | None:
    return next(read_markdown(given(text)), None)


def without_sections(document: Document | None) -> Document | None:
    return document and Document(document.id, document.text, document.title, document.metadata)


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ("# Woven", "Woven"),
        ("intro\n\n## Deep one ##\nmore", "Deep one"),
        ("Title\n=====\n", "Title"),
        ("Title\n---\n", "Title"),
        ("```\n# a comment\n```\n# Real", "Real"),
        ("~~~~\n# a\n~~~\n# b\n~~~~\n# Real", "Real"),
        ("#hashtag\n\ntext", ""),
        ("text\n\n---\nmore", ""),
        ("", ""),
    ],
)
def test_the_title_is_the_first_heading(text: str, title: str) -> None:
    assert next((section.heading for section in markdown_headings(text)), "") == title


@pytest.mark.parametrize(
    ("block", "entries"),
    [
        ("year: 2024\nprice: 1.5", {"year": 2024, "price": 1.5}),
        ("draft: true\nother: null", {"draft": True, "other": None}),
        ("tags: [a, 'b c', 3]", {"tags": ["a", "b c", 3]}),
        ('name: "A: b"\nurl: https://a.b/c', {"name": "A: b", "url": "https://a.b/c"}),
        ("date: 2024-01-31\nzip: 01234", {"date": "2024-01-31", "zip": "01234"}),
        ("author:\n  name: Ada\n- item\n# remark", {}),
    ],
)
def test_simple_entries_of_front_matter_are_metadata(block: str, entries: dict[str, Any]) -> None:
    assert front_matter(block) == entries


def test_front_matter_is_not_part_of_the_text() -> None:
    read = markdown("---\nyear: 2024\n---\n# T\nbody")
    assert without_sections(read) == Document("a.md", "# T\nbody", "T", {"year": 2024})
    assert without_sections(markdown("---\r\ntitle: Own\r\n---\r\n# T\r\n")) == Document("a.md", "# T\n", "Own")
    assert without_sections(markdown("---\n---\nbody")) == Document("a.md", "body")


def test_a_rule_at_the_top_is_not_front_matter() -> None:
    read = without_sections(markdown("---\nbody without an end"))
    assert read == Document("a.md", "---\nbody without an end")


def test_a_blank_file_is_no_document() -> None:
    assert markdown(" \n") is None


def test_a_passage_knows_its_headings_and_its_line_in_the_file() -> None:
    document = markdown("---\nyear: 2024\n---\n# One\ntext\n## Two\nmore\n\nlast\n# Three\nend")
    assert document is not None
    at = document.text.index
    assert headings_at(document.sections, at("more")) == ("One", "Two")
    assert headings_at(document.sections, at("end")) == ("Three",)
    assert location_at(document.sections, document.text, at("# One")) == "line 4"
    assert location_at(document.sections, document.text, at("last")) == "line 9"
    assert location_at(document.sections, document.text, at("\n\nlast")) == "line 9"  # white space does not count
    assert location_at((), document.text, 5) == ""


def test_other_labels_hold_for_the_whole_section() -> None:
    sections = (Section(0, "page 1"), Section(5, "page 2", 1, "H"), Section(9, "", 2, "I"))
    assert [location_at(sections, "a\n" * 10, position) for position in (0, 4, 5, 15)] == [
        "page 1",
        "page 1",
        "page 2",
        "page 2",
    ]
    assert headings_at(sections, 15) == ("H", "I")


def test_headings_of_restructured_text_have_levels_by_their_marks() -> None:
    text = "=====\nTitle\n=====\n\nOne\n---\ntext\n\nInner\n~~~~~\n\nTwo\n---\n\n===  ===\na    b\n===  ===\n"
    assert [(section.level, section.heading) for section in rst_headings(text)] == [
        (1, "Title"),
        (2, "One"),
        (3, "Inner"),
        (2, "Two"),
    ]
    document = next(read_rst(given(text, "a.rst")))
    assert document.title == "Title"
    assert headings_at(document.sections, text.index("Inner")) == ("Title", "One", "Inner")


def test_a_paragraph_above_a_line_is_no_heading_of_restructured_text() -> None:
    assert rst_headings("two lines\nof text\n-------\n") == []
    assert rst_headings("too long for its line\n---\n") == []

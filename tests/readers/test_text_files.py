"""Titles and front matter of Markdown."""

from __future__ import annotations

import io
from typing import Any

import pytest

from plait.readers.text_files import front_matter, heading, read_markdown
from plait.records import Document


def markdown(text: str) -> Document | None:
    return next(read_markdown(io.BytesIO(text.encode()), "a.md", "a.md"), None)


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
    assert heading(text) == title


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
    assert markdown("---\nyear: 2024\n---\n# T\nbody") == Document("a.md", "# T\nbody", "T", {"year": 2024})
    assert markdown("---\r\ntitle: Own\r\n---\r\n# T\r\n") == Document("a.md", "# T\n", "Own")
    assert markdown("---\n---\nbody") == Document("a.md", "body")


def test_a_rule_at_the_top_is_not_front_matter() -> None:
    assert markdown("---\nbody without an end") == Document("a.md", "---\nbody without an end")


def test_a_blank_file_is_no_document() -> None:
    assert markdown(" \n") is None

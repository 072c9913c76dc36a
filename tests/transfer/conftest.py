"""Indexes that the tests of imports and exports share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import plait
from encoders import WordEncoder
from plait.records import Document, Section

FIXTURES = Path(__file__).parent / "fixtures"


@contextmanager
def make_index(path: Path) -> Iterator[plait.Index]:
    """Sixty documents with all kinds of vectors; long ones have several passages, one has sections, one is deleted."""
    encoder = WordEncoder(terms=500, window=8, overlap=2)
    with plait.open(path, create=True, encoder=encoder) as index:
        documents: list[Document] = []
        for number in range(60):
            text = " ".join(f"word{(number * position) % 37}" for position in range(3 + number % 20))
            title = f"Title {number}" if number % 2 else ""
            metadata = {"year": 2000 + number, "tags": ["a", "ü"], "nested": {"deep": [1, None, 2.5]}}
            sections = (Section(0, "page 1", 1, "Start"), Section(len(text) // 2, "page 2")) if number == 7 else ()
            documents.append(Document(f"d{number}", text, title, metadata, sections))
        index.add(documents)
        index.delete(["d5"])
        yield index


@pytest.fixture
def index(tmp_path: Path) -> Iterator[plait.Index]:
    with make_index(tmp_path / "index") as made:
        yield made

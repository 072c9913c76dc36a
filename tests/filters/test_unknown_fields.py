"""The message about a filter field that no document has."""

from __future__ import annotations

from pathlib import Path

import pytest

from plait.records import Document, Span
from plait.storage.store import Store
from storage.samples import make_store, random_embeddings


@pytest.fixture
def store(tmp_path: Path) -> Store:
    store = make_store(tmp_path / "index")
    documents = [
        Document("a", "woven", metadata={"language": "en", "year": 2020, "author": {"name": "Ann"}}),
        Document("b", "wool", metadata={"year": None}),
    ]
    with store.writer() as writer:
        writer.write(documents, [[Span(0, 4)]] * 2, random_embeddings(2))
    return store


@pytest.mark.parametrize(
    ("filter", "message"),
    [
        ('language = "de" and year > 2030', ""),
        ('title = "x" or not author.name = "Bea"', ""),
        ('langauge = "en"', "no document has a field langauge; did you mean language?"),
        ('author.nmae = "Ann"', "no document has a field author.nmae; did you mean author.name?"),
        ("zzz and year > 1", "no document has a field zzz; known fields: language, year, author, author.name"),
        ("qq = 1 or qq = 2 or not yaer > 3", "no document has a field qq, yaer; did you mean year?"),
    ],
)
def test_unknown_fields_are_named_with_a_hint(store: Store, filter: str, message: str) -> None:
    with store.snapshot() as snapshot:
        assert snapshot.unknown_filter_fields(filter) == message


def test_documents_without_metadata_are_mentioned(tmp_path: Path) -> None:
    with make_store(tmp_path / "empty").snapshot() as snapshot:
        assert snapshot.unknown_filter_fields("x = 1") == "no document has a field x; the documents have no metadata"

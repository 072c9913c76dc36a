"""Validation of documents, and content digests."""

from __future__ import annotations

import datetime
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest

from plait.errors import DocumentError
from plait.records import Document
from plait.storage.validate import MAX_ID, check_document, content_digest, document_from


def test_other_fields_become_metadata() -> None:
    fields = {"_id": "a", "title": "T", "text": "x", "year": 2024, "metadata": {"url": "u"}}
    assert document_from(fields) == Document("a", "x", "T", {"year": 2024, "url": "u"})


def test_a_null_title_or_text_counts_as_absent() -> None:
    assert document_from({"id": "a", "text": "x", "title": None, "metadata": None}) == Document("a", "x")
    assert document_from({"id": "a", "title": "x", "text": None}) == Document("a", "", "x")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"text": "x"}, r"no 'id' .*\['text'\]"),
        ({"id": "a", "_id": "b", "text": "x"}, "two ids"),
        ({"id": 7, "text": "x"}, "the id 7 is int"),
        ({"id": "a"}, "'a' is blank"),
        ({"id": "a", "text": ["x"]}, "its text is list"),
        ({"id": "a", "text": "x", "metadata": "m"}, "make it an object"),
        ({"id": "a", "text": "x", "year": 1, "metadata": {"year": 2}}, r"\['year'\] in 'metadata' and beside it"),
    ],
)
def test_invalid_fields_are_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(DocumentError, match=message):
        document_from(fields)


@pytest.mark.parametrize(
    ("document", "message"),
    [
        (Document("", "x"), "id is empty"),
        (Document("a" * (MAX_ID + 1), "x"), "1025 characters"),
        (Document("a\x00", "x"), "NUL character at 1"),
        (Document("a\ud800", "x"), "lone surrogate at character 1"),
        (Document("a", " \n\t "), "'a' is blank"),
        (Document("a", "xy\x00"), "document 'a': its text has a NUL character at 2"),
        (Document("a", "x\udfff"), "document 'a': its text has a lone surrogate at character 1"),
        (Document("a", "x", "\x00"), "document 'a': its title has a NUL"),
        (Document("a", "x", metadata={"n": float("nan")}), r"metadata\['n'\] is nan"),
        (Document("a", "x", metadata={"n": [1, float("inf")]}), r"metadata\['n'\]\[1\] is inf"),
        (Document("a", "x", metadata={1: 2}), "the key 1"),  # type: ignore[dict-item]
        (Document("a", "x", metadata={"t": "\ud800"}), r"metadata\['t'\] has a lone surrogate"),
        (Document("a", "x", metadata={"d": datetime.date(2024, 1, 1)}), "is date"),
        (Document("a", "x", metadata={"d": np.int64(3)}), "is int64"),
        (Document("a", "x", metadata=[1]), "must be a mapping"),  # type: ignore[arg-type]
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_document_that_cannot_be_stored_is_refused_by_name(document: Document, message: str) -> None:
    with pytest.raises(DocumentError, match=message):
        check_document(document)


def test_metadata_that_contains_itself_is_refused() -> None:
    loop: list[object] = []
    loop.append(loop)
    with pytest.raises(DocumentError, match="nested more than"):
        check_document(Document("a", "x", metadata={"loop": loop}))


def test_any_mapping_and_any_script_is_accepted() -> None:
    check_document(Document("ключ/1", "नमस्ते 🧶", metadata=MappingProxyType({"a": {"b": (1, None, True, 2.5, "茶")}})))


def test_the_digest_does_not_depend_on_the_order_of_keys() -> None:
    one = content_digest(Document("a", "x", "t", {"p": 1, "q": [1, 2]}))
    assert one == content_digest(Document("a", "x", "t", {"q": (1, 2), "p": 1}))
    assert len(one) == 16


def test_every_part_of_a_document_changes_the_digest() -> None:
    documents = [
        Document("a", "x"),
        Document("b", "x"),
        Document("a", "y"),
        Document("a", "", "x"),
        Document("a", "x", metadata={"p": 1}),
        Document("a", "x", metadata={"p": "1"}),
        Document("a", "x", metadata={"p": True}),
        Document("a", "x", metadata={"p": [1]}),
    ]
    assert len({content_digest(document) for document in documents}) == len(documents)

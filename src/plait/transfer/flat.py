"""A passage as a flat record, for tables and collections, and back.

id, passage          the id of the document, and the number of the passage within it
span_start, span_end where the passage is in the text of the document
text                 the passage
document_text        the text of the document, in its first record; null if the passage is all of it
title, metadata      of the document; the metadata as JSON, with the sections and the origin in the first record
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from plait.checks import parse_json
from plait.errors import DocumentError, SourceError
from plait.records import Document, Span
from plait.storage.validate import parse_reserved, plain_metadata
from plait.transfer.passages import PassageBatch
from plait.transfer.source import Row

FIELDS = ("id", "passage", "span_start", "span_end", "title", "text", "document_text", "metadata")
VECTOR_FIELDS = ("dense", "sparse_terms", "sparse_weights", "multi")
VERSION = 1
MARK = "plait"  # the key under which tables have {"version": 1}


def flat_records(batch: PassageBatch) -> Iterator[dict[str, Any]]:
    """The record of each passage, without vectors."""
    for document, spans in zip(batch.documents, batch.spans, strict=True):
        metadata = _to_json(plain_metadata(document))
        later = _to_json({**document.metadata})
        for passage, (start, end) in enumerate(spans):
            text = document.text[start:end]
            is_whole = len(spans) == 1 and text == document.text
            yield {
                "id": document.id,
                "passage": passage,
                "span_start": start,
                "span_end": end,
                "title": document.title,
                "text": text,
                "document_text": None if passage or is_whole else document.text,
                "metadata": later if passage else metadata,
            }


def row_from_record(record: Mapping[str, Any], **vectors: Any) -> Row:
    """The row of a record that `flat_records` made."""
    try:
        id, passage = record["id"], int(record["passage"])
        span = Span(int(record["span_start"]), int(record["span_end"]))
        document_text = record["document_text"]
        text = record["text"] if document_text is None else document_text
        if passage:  # the text and all else are in the record of the first passage
            return Row(id, passage=passage, span=span, **vectors)
        metadata = parse_json(record["metadata"])
        if not isinstance(metadata, dict):
            raise SourceError(f"the metadata of {id!r:.100} is no object")
        sections, origin = parse_reserved(f"document {id!r:.100}", metadata)
        return Row(id, text, record["title"], metadata, sections, origin, passage, span, **vectors)
    except (KeyError, TypeError, ValueError, DocumentError) as error:
        raise SourceError(f"a record of an export of plait is damaged: {error!r:.200}; export it again") from None


def document_fields(document: Document, spans: list[Span]) -> dict[str, Any]:
    """A document with its spans as plain data for JSON."""
    return {
        "id": document.id,
        "title": document.title,
        "text": document.text,
        "metadata": plain_metadata(document),
        "spans": [list(span) for span in spans],
    }


def has_flat_records(names: list[str]) -> bool:
    """Whether columns are those of `flat_records`."""
    return set(FIELDS) <= set(names)


def _to_json(value: Mapping[str, Any]) -> str:
    return json.dumps(value, ensure_ascii=False)

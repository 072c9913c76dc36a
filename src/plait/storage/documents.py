"""What may be stored: documents are checked before anything is encoded or written, and known by a digest of all of
their content, so that what has not changed need not be encoded again."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from plait.errors import DocumentError, PlaitError
from plait.records import Document

MAX_ID = 1024  # characters
MAX_TEXT = 100_000_000  # characters; analysed and in UTF-8 it stays below the billion bytes that SQLite takes
MAX_DEPTH = 64  # of lists and objects within metadata


def document_from(fields: Mapping[str, Any]) -> Document:
    """A checked document from `id` (or `_id`), `text` and `title`; all other fields are metadata.

    A field named `metadata` is an object whose fields join the others. A `text` or `title` of None is an absent one.
    """
    rest = dict(fields)
    ids = [rest.pop(key) for key in ("id", "_id") if key in rest]
    if not ids:
        raise DocumentError(f"a document has no 'id' (and no '_id'); its fields are {list(fields)}")
    if ids[0] != ids[-1]:
        raise DocumentError(f"a document has two ids: 'id' is {ids[0]!r} and '_id' is {ids[1]!r}; keep one")
    text, title, extra = rest.pop("text", None), rest.pop("title", None), rest.pop("metadata", None)
    if extra is None:
        extra = {}
    if not isinstance(extra, Mapping):
        raise DocumentError(
            f"document {ids[0]!r}: 'metadata' is {extra!r:.60}; it must be an object, or go by another name"
        )
    clashing = [key for key in extra if key in rest and rest[key] != extra[key]]
    if clashing:
        raise DocumentError(f"document {ids[0]!r} has {clashing} both in 'metadata' and beside it, with other values")
    document = Document(
        ids[0], "" if text is None else text, "" if title is None else title, metadata={**rest, **extra}
    )
    check_document(document)
    return document


def check_document(document: Document) -> None:
    """Raises DocumentError, which names the document, if it cannot be stored as it is."""
    _check_id(document.id)
    name = f"document {document.id!r}"
    for field, text in (("title", document.title), ("text", document.text)):
        if not isinstance(text, str):
            raise DocumentError(f"{name}: its {field} is {type(text).__name__}, not text: {text!r:.60}")
        if len(text) > MAX_TEXT:
            raise DocumentError(f"{name}: its {field} has {len(text)} characters, more than {MAX_TEXT}; split it")
        _check_characters(f"{name}: its {field}", text)
    if not document.text.strip() and not document.title.strip():
        raise DocumentError(f"{name} is blank: it needs a text or a title; leave it out, or give it one")
    if not isinstance(document.metadata, Mapping):
        raise DocumentError(f"{name}: its metadata is {document.metadata!r:.60}; it must be a mapping")
    plain_metadata(document)


def _check_id(id: object) -> None:
    if not isinstance(id, str):
        raise DocumentError(f"the id {id!r:.60} is {type(id).__name__}, not text; turn it into a string")
    if not id:
        raise DocumentError("an id is empty; each document needs one of its own")
    if len(id) > MAX_ID:
        raise DocumentError(f"the id {id[:40]!r}... has {len(id)} characters; at most {MAX_ID} are stored")
    _check_characters(f"the id {id!r:.60}", id)


def check_ids(ids: Sequence[object]) -> None:
    """Raises DocumentError for what cannot be looked up: SQLite would take the number 7 for the id "7"."""
    if isinstance(ids, str):
        raise DocumentError(f"ids come as a sequence; put the single id {ids!r:.60} in a list")
    for id in ids:
        if not isinstance(id, str):
            raise DocumentError(f"the id {id!r:.60} is {type(id).__name__}, not text; turn it into a string")
        _check_characters(f"the id {id!r:.60}", id)


def _check_characters(what: str, text: str) -> None:
    if "\x00" in text:
        raise DocumentError(f"{what} has a NUL character at {text.index(chr(0))}; remove it, or decode the text anew")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise DocumentError(
            f"{what} has a lone surrogate at character {error.start}, which is not valid text; decode it anew"
        ) from None


def plain_metadata(document: Document) -> dict[str, Any]:
    """The metadata as plain dicts, lists and scalars; DocumentError if JSON cannot hold it."""
    plain = _plain(f"document {document.id!r}: metadata", document.metadata, 0)
    assert isinstance(plain, dict)
    return plain


def _plain(what: str, value: object, depth: int) -> object:
    if depth > MAX_DEPTH:
        raise DocumentError(f"{what} is nested more than {MAX_DEPTH} deep; flatten it")
    if isinstance(value, str):
        _check_characters(what, value)
        return value
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        if not math.isfinite(value):
            raise DocumentError(f"{what} is {value}, which JSON cannot hold; use null or leave it out")
        return value
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str):
                raise DocumentError(f"{what} has the key {key!r:.60}; keys must be text")
            _check_characters(f"{what} has a key that", key)
        return {key: _plain(f"{what}[{key!r:.60}]", inner, depth + 1) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(f"{what}[{place}]", inner, depth + 1) for place, inner in enumerate(value)]
    raise DocumentError(
        f"{what} is {type(value).__name__}: {value!r:.60}; use text, numbers, true, false, null, lists and objects"
    )


def content_digest(document: Document) -> bytes:
    """16 bytes that name the content: equal for documents with the same id, title, text and metadata, in any order."""
    content = [document.id, document.title, document.text, plain_metadata(document)]
    canonical = json.dumps(content, sort_keys=True, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return hashlib.blake2b(canonical.encode(), digest_size=16).digest()


def digest_holds(id: str, text: str, title: str, metadata: str, digest: bytes) -> bool:
    """Whether a document of the catalogue is the one that was written. SQLite has no checksums of its own."""
    try:
        return content_digest(Document(id, text, title, json.loads(metadata))) == digest
    except (ValueError, TypeError, AttributeError, PlaitError):
        return False

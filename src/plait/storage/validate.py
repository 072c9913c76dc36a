"""Checks what is to be stored: documents, ids, and batches of documents with their passages and embeddings. A content
digest identifies the content of a document, so that an unchanged document need not be encoded again."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from plait.checks import as_list, check_type, shown
from plait.codec.impacts import MAX_WEIGHT
from plait.codec.pooling import Pooling
from plait.embeddings import Embeddings, SparseVectors
from plait.encode.protocol import EmbeddingSpec
from plait.errors import DocumentError, InputError
from plait.records import LINE, Document, FileOrigin, Section, Span
from plait.storage.stored_values import stored_json

MAX_ID = 1024  # characters
MAX_TEXT = 100_000_000  # characters; its words in UTF-8 stay below the billion bytes that SQLite allows
MAX_DIGITS = 4_000  # of an integer; Python refuses to write much longer ones
MAX_INTEGER = 10**MAX_DIGITS
MAX_DEPTH = 64  # of nested lists and objects in metadata
RESERVED = "_plait"  # the key of metadata under which sections and the origin of a document are stored


def document_from(fields: Mapping[str, Any]) -> Document:
    """A checked document from `id` (or `_id`), `text` and `title`; all other fields are metadata.

    The fields of an object named `metadata` join them. A `text` or `title` of None counts as absent.
    """
    rest = dict(fields)
    ids = [rest.pop(key) for key in ("id", "_id") if key in rest]
    if not ids:
        raise DocumentError(f"a document has no 'id' (and no '_id'); its fields are {shown(list(fields), 200)}")
    if len(ids) == 2 and not _is_same(ids[0], ids[1]):
        raise DocumentError(f"a document has two ids: 'id' is {shown(ids[0])} and '_id' is {shown(ids[1])}; keep one")
    text, title, extra = rest.pop("text", None), rest.pop("title", None), rest.pop("metadata", None)
    if extra is None:
        extra = {}
    if not isinstance(extra, Mapping):
        name = shown(ids[0])
        raise DocumentError(f"document {name}: 'metadata' is {shown(extra)}; make it an object, or rename the field")
    clashing = [key for key in extra if key in rest and not _is_same(rest[key], extra[key])]
    if clashing:
        raise DocumentError(
            f"document {shown(ids[0])} has {shown(clashing, 200)} in 'metadata' and beside it, with different values"
        )
    sections, origin = parse_reserved(f"document {shown(ids[0])}", metadata := {**rest, **extra})
    document = Document(
        ids[0], "" if text is None else text, "" if title is None else title, metadata, sections, origin
    )
    check_document(document)
    return document


def _is_same(one: object, other: object) -> bool:
    try:
        return bool(one == other)
    except Exception:  # such as two arrays, which are refused later, or objects that cannot be compared
        return False


def check_document(document: Document) -> None:
    """Raises DocumentError, which names the document, if it cannot be stored."""
    _check_id(document.id)
    name = f"document {document.id!r}"
    for field, text in (("title", document.title), ("text", document.text)):
        if not isinstance(text, str):
            raise DocumentError(f"{name}: its {field} is {type(text).__name__}, not text: {shown(text)}")
        if len(text) > MAX_TEXT:
            raise DocumentError(f"{name}: its {field} has {len(text)} characters, more than {MAX_TEXT}; split it")
        _check_characters(f"{name}: its {field}", text)
    if not document.text.strip() and not document.title.strip():
        raise DocumentError(f"{name} is blank: it needs a text or a title; leave it out, or give it one")
    if not isinstance(document.metadata, Mapping):
        raise DocumentError(f"{name}: its metadata is {shown(document.metadata)}; it must be a mapping")
    if RESERVED in document.metadata:
        raise DocumentError(f"{name}: the key {RESERVED!r} of metadata is reserved; rename the field")
    _check_sections(name, document)
    plain_metadata(document)


def _check_sections(name: str, document: Document) -> None:
    before = 0
    for section in document.sections:
        start, label, level, _ = section
        if not (_is_integer(start) and before <= start <= len(document.text) and _is_integer(level) and level >= 0):
            raise DocumentError(f"{name}: {shown(section)} is not a section of its text, or not in order")
        if label.startswith(LINE) and not label.removeprefix(LINE).isdecimal():
            raise DocumentError(f"{name}: the label {shown(label)} of a section must have a number after {LINE!r}")
        before = start


def _check_id(id: object) -> None:
    if not isinstance(id, str):
        raise DocumentError(f"the id {shown(id)} is {type(id).__name__}, not text; turn it into a string")
    if not id:
        raise DocumentError("an id is empty; give every document an id")
    if len(id) > MAX_ID:
        raise DocumentError(f"the id {id[:40]!r}... has {len(id)} characters; at most {MAX_ID} are allowed")
    _check_characters(f"the id {id!r:.60}", id)


def check_ids(ids: Sequence[object]) -> None:
    """Raises DocumentError for ids that are not valid strings: SQLite would take the number 7 for the id "7"."""
    for id in as_list("ids", ids, "texts", DocumentError):
        if not isinstance(id, str):
            raise DocumentError(f"the id {shown(id)} is {type(id).__name__}, not text; turn it into a string")
        _check_characters(f"the id {id!r:.60}", id)


def _check_characters(what: str, text: str) -> None:
    if "\x00" in text:
        raise DocumentError(f"{what} has a NUL character at {text.index(chr(0))}; remove it, or decode the text again")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise DocumentError(
            f"{what} has a lone surrogate at character {error.start}, which is not valid text; decode it again"
        ) from None


def plain_metadata(document: Document) -> dict[str, Any]:
    """The metadata as plain dicts, lists and scalars; DocumentError if JSON cannot hold it."""
    plain = _plain(f"document {document.id!r}: metadata", document.metadata, 0)
    assert isinstance(plain, dict)
    if document.sections or document.origin is not None:
        origin = {} if document.origin is None else {"file": list(document.origin)}
        plain[RESERVED] = {**origin, "sections": [list(section) for section in document.sections]}
    return plain


def parse_reserved(name: str, metadata: dict[str, Any]) -> tuple[tuple[Section, ...], FileOrigin | None]:
    """Takes the sections and the origin out of stored metadata; DocumentError if they are damaged."""
    stored = metadata.pop(RESERVED, None)
    if stored is None:
        return (), None
    try:
        sections = tuple(Section(*section) for section in stored["sections"])
        origin = FileOrigin(*stored["file"]) if "file" in stored else None
        texts = [part for _, label, _, heading in sections for part in (label, heading)]
        numbers = [part for start, _, level, _ in sections for part in (start, level)]
        if origin is not None:
            texts += [origin.root, origin.path, origin.digest]
            numbers += [origin.size, origin.mtime_ns]
        is_valid = all(type(text) is str for text in texts) and all(type(number) is int for number in numbers)
    except (TypeError, KeyError, ValueError, AttributeError):
        is_valid = False
    if not is_valid:
        raise DocumentError(f"{name}: its metadata has {RESERVED!r}, which is reserved, as {shown(stored)}; remove it")
    return sections, origin


def _plain(what: str, value: object, depth: int) -> object:
    if depth > MAX_DEPTH:
        raise DocumentError(f"{what} is nested more than {MAX_DEPTH} deep; flatten it")
    if isinstance(value, str):
        _check_characters(what, value)
        return value
    if value is None or isinstance(value, bool | int):
        if isinstance(value, int) and abs(value) >= MAX_INTEGER:
            raise DocumentError(f"{what} is a number of more than {MAX_DIGITS} digits; store it as text")
        return value
    if isinstance(value, float):
        if not math.isfinite(value):
            raise DocumentError(f"{what} is {value}, which JSON cannot hold; use null or leave it out")
        return value
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str):
                raise DocumentError(f"{what} has the key {shown(key)}; keys must be text")
            _check_characters(f"{what} has a key that", key)
        return {key: _plain(f"{what}[{key!r:.60}]", inner, depth + 1) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(f"{what}[{position}]", inner, depth + 1) for position, inner in enumerate(value)]
    raise DocumentError(
        f"{what} is {type(value).__name__}: {shown(value)}; use text, numbers, true, false, null, lists and objects"
    )


def content_digest(document: Document) -> bytes:
    """16 bytes; equal for documents with the same id, title, text and metadata (its keys in any order)."""
    return _digest(document.id, document.title, document.text, plain_metadata(document))


_canonical_json = json.JSONEncoder(
    sort_keys=True, ensure_ascii=False, separators=(",", ":"), allow_nan=False, check_circular=False
).encode


def _digest(id: str, title: str, text: str, metadata: dict[str, Any]) -> bytes:
    return hashlib.blake2b(_canonical_json([id, title, text, metadata]).encode(), digest_size=16).digest()


def intact_metadata(id: str, text: str, title: str, metadata: str, digest: bytes) -> dict[str, Any] | None:
    """The metadata of a document of the catalogue; None if the document is not as it was written. SQLite itself has no
    checksums."""
    try:
        parsed = stored_json(metadata)  # plain values only, so the checks of `plain_metadata` are not needed
        return parsed if isinstance(parsed, dict) and _digest(id, title, text, parsed) == digest else None
    except (ValueError, TypeError, RecursionError):
        return None


def matches_digest(id: str, text: str, title: str, metadata: str, digest: bytes) -> bool:
    """Whether a document of the catalogue is as it was written."""
    return intact_metadata(id, text, title, metadata, digest) is not None


def check_batch(
    documents: Sequence[Document],
    spans: Sequence[Sequence[Span]],
    embeddings: Embeddings,
    spec: EmbeddingSpec,
    pooling: Pooling | None = None,
) -> None:
    """Raises InputError if documents, passages and embeddings do not match each other and the index."""
    check_type("embeddings", embeddings, Embeddings, "plait.Embeddings, such as Embeddings(dense=array)", InputError)
    if len(documents) != len(spans):
        raise InputError(
            f"there are {len(documents)} documents, but spans for {len(spans)}; give every document its spans"
        )
    seen: set[str] = set()
    for document, document_spans in zip(documents, spans, strict=True):
        check_document(document)
        if document.id in seen:
            raise DocumentError(f"document {document.id!r} is twice in one batch; keep one of them")
        seen.add(document.id)
        _check_spans(document, document_spans)
    _check_embeddings(embeddings, spec, n_items=sum(map(len, spans)))
    owners = [document.id for document, document_spans in zip(documents, spans, strict=True) for _ in document_spans]
    if embeddings.sparse is not None and spec.sparse is not None:
        _check_terms(owners, embeddings.sparse, spec.sparse)
    if embeddings.multi is not None:
        lengths = np.diff(embeddings.multi.offsets)
        if spec.fixed is not None:
            for item in np.flatnonzero(lengths != spec.fixed)[:1]:
                raise InputError(
                    f"document {owners[item]!r}: a passage has {lengths[item]} multi vectors, but the index stores "
                    f"{spec.fixed} for every passage"
                )
        if pooling is not None and pooling.fixed is not None:
            for item in np.flatnonzero(lengths == 0)[:1]:
                raise DocumentError(
                    f"document {owners[item]!r}: a passage has no multi vector, but the index stores {pooling.fixed} "
                    f"for "
                    f"every passage; leave it out, or give it a vector"
                )


def _check_terms(owners: Sequence[str], sparse: SparseVectors, vocabulary: int) -> None:
    items = np.repeat(np.arange(len(sparse)), np.diff(sparse.offsets))
    descends = np.zeros(len(items), bool)
    descends[1:] = (sparse.terms[1:] <= sparse.terms[:-1]) & (items[1:] == items[:-1])
    wrong = np.flatnonzero(
        descends
        | (sparse.terms < 0)
        | (sparse.terms >= vocabulary)
        | ~((sparse.weights >= 0) & (sparse.weights <= MAX_WEIGHT))
    )
    if len(wrong):
        entry = int(wrong[0])
        raise InputError(
            f"document {owners[items[entry]]!r}: its sparse vector has term {sparse.terms[entry]} with weight "
            f"{sparse.weights[entry]}; terms must ascend within a passage, each once and below {vocabulary}, and "
            f"weights must be finite and not negative"
        )


def _check_spans(document: Document, spans: Sequence[Span]) -> None:
    if not spans:
        raise DocumentError(f"document {document.id!r} has no passage; give it at least one span")
    for span in spans:
        if not (isinstance(span, tuple | list) and len(span) == 2 and all(map(_is_integer, span))):
            raise DocumentError(f"document {document.id!r}: a passage is {shown(span)}; it must be a Span(start, end)")
        start, end = span
        if not 0 <= start <= end <= len(document.text):
            raise DocumentError(
                f"document {document.id!r}: the passage from {start} to {end} is outside its text of "
                f"{len(document.text)} characters"
            )


def _is_integer(value: object) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def _check_embeddings(embeddings: Embeddings, spec: EmbeddingSpec, *, n_items: int) -> None:
    dims = {
        "dense": None if embeddings.dense is None else embeddings.dense.shape[1],
        "multi": None if embeddings.multi is None else embeddings.multi.dim,
    }
    for name, dim in dims.items():
        expected = getattr(spec, name)
        if dim is None and expected is not None:
            raise InputError(
                f"the {name} vectors are missing; the index stores {name} vectors of {expected} dimensions"
            )
        if dim is not None and expected is None:
            raise InputError(
                f"there are {name} vectors, but the index stores none; leave them out, or build an index with them"
            )
        if dim != expected:
            raise InputError(f"the {name} vectors have {dim} dimensions, but the index stores {expected}")
    if (embeddings.sparse is None) != (spec.sparse is None):
        raise InputError(
            "the sparse vectors are missing; the index stores them"
            if embeddings.sparse is None
            else "there are sparse vectors, but the index stores none; leave them out, or build an index with them"
        )
    for name, vectors in embeddings.present().items():
        if len(vectors) != n_items:
            raise InputError(f"there are {len(vectors)} {name} items for {n_items} passages; give every passage one")

"""The CUR index of an index: one file, `cur.plait`, an attachment of the index (plait.storage.attachments).

manifest  (bytes,): JSON; the cross-encoder, the anchor queries and documents, and how they were chosen
docs      (documents,): numbers of the scored documents
scores    (documents, anchor queries): their scores
codes     (documents, anchors): quantized item embeddings; scales (documents,) has one factor for each
inverse   (anchors, anchor queries): the pseudo-inverse, which turns the scores of later documents into embeddings

A document number is never reused for another text, so a stored score is never of another text.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from plait.checks import parse_json
from plait.cur.draft import ScoredBlock, ScoresManifest, drafted_documents
from plait.encode.chunking import with_title
from plait.errors import CorruptIndexError, NewerFormatError, NotAnIndexError
from plait.storage import verification
from plait.storage.attachments import newest_attachment, open_attachment
from plait.storage.segment_file import ArraySource, FileRecord, SegmentFile, write_file
from plait.storage.store import StoredDocument

FORMAT = 1
ATTACHMENT, FILE = "cur", "cur.plait"
ROWS_AT_ONCE = 16_384  # documents whose embeddings are float32 at a time


@dataclass(frozen=True, slots=True)
class CurManifest:
    """Describes a CUR index."""

    format: int
    scores: ScoresManifest
    anchor_docs: tuple[int, ...]  # document numbers
    anchor_texts: tuple[str, ...]  # as they were scored: searches still score an anchor after its deletion
    rcond: float
    budget: int  # for which the anchors were chosen
    k: int
    dev_recall: float  # Top-k-Recall on the dev queries that chose the number of anchors and rcond
    n_dev_queries: int
    rank: int  # singular values of the anchor block above rcond
    n_documents: int  # with an embedding
    created: str


class StoredCur:
    """A CUR index that is open for reading. Its arrays are read-only views of a memory map."""

    def __init__(self, number: int, file: SegmentFile) -> None:
        self.number = number  # each build and update has its own
        self.file = file
        self.manifest = _parse_manifest(file)
        n_documents, n_queries = self.manifest.n_documents, len(self.manifest.scores.queries)
        n_anchors = len(self.manifest.anchor_docs)
        self.docs: NDArray[np.int64] = file.array("docs", "<i8", (n_documents,))
        self.scores: NDArray[np.float32] = file.array("scores", "<f4", (n_documents, n_queries))
        self.codes: NDArray[np.int8] = file.array("codes", "|i1", (n_documents, n_anchors))
        self.scales: NDArray[np.float32] = file.array("scales", "<f4", (n_documents,))
        self.inverse: NDArray[np.float32] = file.array("inverse", "<f4", (n_anchors, n_queries))

    @cached_property
    def anchor_items(self) -> NDArray[np.int64]:
        """The rows of the anchor documents."""
        order = np.argsort(self.docs, kind="stable")
        anchors = np.array(self.manifest.anchor_docs, np.int64)
        places = np.minimum(np.searchsorted(self.docs, anchors, sorter=order), len(order) - 1)
        items: NDArray[np.int64] = order[places]
        missing = anchors[self.docs[items] != anchors]
        if len(missing):
            raise self.file.damaged(f"it has no row for its anchor document {missing[0]}")
        return items

    def verify(self) -> None:
        """Compares the whole file with its checksums."""
        self.file.verify()


def open_cur(index: Path, known: StoredCur | None = None) -> StoredCur | None:
    """The newest CUR index, or None. `known` is returned if it is still the newest."""
    record = newest_attachment(index, ATTACHMENT)
    if known is not None and verification.needs_attention:  # its file may be known by now to be damaged
        verification.raise_damage([known.file])
    if record is None or (known is not None and known.number == record.number):
        return known if record is not None else None
    opened = open_attachment(index, ATTACHMENT)
    if opened is None:
        return None
    record, files = opened
    if FILE not in files:
        raise CorruptIndexError(
            f"the CUR index of {index} has no file {FILE}; run plait check --repair {index}, then build it again"
        )
    verification.verify_before_use(files[FILE])
    return StoredCur(record.number, files[FILE])


def require_cur(index: Path, known: StoredCur | None = None) -> StoredCur:
    """The newest CUR index; NotAnIndexError if there is none."""
    stored = open_cur(index, known)
    if stored is None:
        n_drafted = drafted_documents(index)
        progress = f" ({n_drafted} documents are scored already)" if n_drafted else ""
        raise NotAnIndexError(
            f"index {index} has no CUR index{progress}; build it: plait cur build {index} --model CROSS"
        )
    return stored


def write_cur(
    folder: Path, manifest: CurManifest, blocks: Sequence[ScoredBlock], inverse: NDArray[np.float32]
) -> dict[str, FileRecord]:
    """Writes the file of a CUR index: the scores of all documents, and the embeddings that the inverse gives them."""
    n_documents, (n_anchors, n_queries) = sum(len(block.docs) for block in blocks), inverse.shape
    codes: list[NDArray[np.int8]] = []
    scales: list[NDArray[np.float32]] = []
    for block in blocks:
        for start in range(0, len(block.docs), ROWS_AT_ONCE):
            embeddings = np.asarray(block.scores[start : start + ROWS_AT_ONCE] @ inverse.T, np.float32)
            piece_codes, piece_scales = quantize(embeddings)
            codes.append(piece_codes)
            scales.append(piece_scales)
    stored_manifest = np.frombuffer(json.dumps(asdict(manifest)).encode(), np.uint8)
    sources = [
        ArraySource.of("manifest", "|u1", stored_manifest),
        ArraySource("docs", "<i8", (n_documents,), (block.docs.astype("<i8") for block in blocks)),
        ArraySource.of("inverse", "<f4", inverse),
        ArraySource("scales", "<f4", (n_documents,), scales),
        ArraySource("codes", "|i1", (n_documents, n_anchors), codes),
        ArraySource("scores", "<f4", (n_documents, n_queries), (block.scores.astype("<f4") for block in blocks)),
    ]
    return {FILE: write_file(folder / FILE, ATTACHMENT, sources, attributes={"format": FORMAT})}


def _parse_manifest(file: SegmentFile) -> CurManifest:
    format_number = file.attributes.get("format")
    if isinstance(format_number, int) and format_number > FORMAT:
        raise NewerFormatError(
            f"{file.path} has CUR format {format_number}, but this plait reads up to {FORMAT}; install a newer plait"
        )
    try:
        raw: dict[str, Any] = parse_json(file.array("manifest", "|u1", (None,)).tobytes())
        scores = ScoresManifest(raw["scores"]["scorer"], raw["scores"]["model"], tuple(raw["scores"]["queries"]))
        anchors = {"anchor_docs": tuple(raw["anchor_docs"]), "anchor_texts": tuple(raw["anchor_texts"])}
        manifest = CurManifest(**{**raw, **anchors, "scores": scores})
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise file.damaged(f"its manifest is invalid ({error!r:.200})") from error
    texts = [scores.scorer, scores.model, *scores.queries, *manifest.anchor_texts, manifest.created]
    counts = [*manifest.anchor_docs, manifest.budget, manifest.k, manifest.rank, manifest.n_documents]
    numbers = [manifest.rcond, manifest.dev_recall]
    if (
        not all(isinstance(text, str) for text in texts)
        or not all(type(count) is int and count >= 0 for count in [*counts, manifest.n_dev_queries])
        or not all(isinstance(number, float | int) and np.isfinite(number) for number in numbers)
        or len(manifest.anchor_docs) != len(manifest.anchor_texts)
        or not manifest.anchor_docs
        or not manifest.n_documents
        or not scores.queries
    ):
        raise file.damaged("its manifest has values of the wrong type")
    return manifest


def quantize(embeddings: NDArray[np.float32]) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
    """Rows as int8 codes with one scale each: the largest absolute value of a row becomes 127."""
    largest = np.abs(embeddings).max(axis=1, initial=0.0)
    scales = np.where(largest > 0, largest / 127, 1.0).astype(np.float32)
    return np.rint(embeddings / scales[:, None]).astype(np.int8), scales


def inner_products(
    query: NDArray[np.floating], codes: NDArray[np.int8], scales: NDArray[np.float32], *, block: int = 8192
) -> NDArray[np.float64]:
    """Inner products (documents,) of a query with quantized rows; in blocks, as each block is copied to float32."""
    query32, products = np.asarray(query, np.float32), np.empty(len(codes), np.float32)
    for start in range(0, len(codes), block):
        products[start : start + block] = codes[start : start + block].astype(np.float32) @ query32
    return np.asarray(products * scales, np.float64)


def scored_texts(documents: Sequence[StoredDocument]) -> list[str]:
    """The text of each document that the cross-encoder scores: the title, then the text. The model truncates it."""
    return [with_title(document.title, document.text) for document in documents]

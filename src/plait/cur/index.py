"""`CurFolder`: the CUR index of an index, in its folder `cur/`.

scores.json         the cross-encoder and the anchor queries that the scores are of
docs.i64            numbers of the scored documents, in the order of scoring
scores.f32          (documents, anchor queries): their scores; a row is valid once docs.i64 has its document
embeddings.i8       (documents, anchors): quantized item embeddings; scales.f32 has one factor for each document
pseudo_inverse.npy  (anchors, anchor queries): turns the scores of later documents into embeddings
manifest.json       describes the embeddings; replaced as a whole, last

A document number is never reused for another text, so a stored score is never of another text.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from plait.encode.chunking import with_title
from plait.errors import CorruptIndexError, NewerFormatError, NotAnIndexError
from plait.storage.fsync import storage_errors
from plait.storage.store import StoredDocument

FORMAT = 1
FOLDER = "cur"
MANIFEST, SCORES_MANIFEST = "manifest.json", "scores.json"
DOCS, SCORES = "docs.i64", "scores.f32"
EMBEDDINGS, SCALES, INVERSE = "embeddings.i8", "scales.f32", "pseudo_inverse.npy"


@dataclass(frozen=True, slots=True)
class ScoresManifest:
    """What the stored scores are of. Another model or other queries need other scores."""

    scorer: str  # the fingerprint of the cross-encoder
    model: str  # the folder or name it was loaded from; "" for the bundled one
    queries: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CurManifest:
    """Describes the item embeddings of a CUR index."""

    format: int
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


class CurFolder:
    """The files of one CUR index. Cheap to make; arrays are read or mapped on demand."""

    def __init__(self, index: Path) -> None:
        self.index, self.path = index, index / FOLDER

    # -- scores

    def scores_manifest(self) -> ScoresManifest | None:
        raw = self._read_json(SCORES_MANIFEST)
        return None if raw is None else ScoresManifest(raw["scorer"], raw["model"], tuple(raw["queries"]))

    def start_scores(self, manifest: ScoresManifest) -> None:
        """Removes all scores and embeddings, and starts without any."""
        with storage_errors(self.path):
            self.path.mkdir(exist_ok=True)
            for name in (MANIFEST, DOCS, SCORES, EMBEDDINGS, SCALES, INVERSE):
                (self.path / name).unlink(missing_ok=True)
            self._write_json(SCORES_MANIFEST, asdict(manifest))

    def recover_scores(self, n_queries: int) -> NDArray[np.int64]:
        """The documents with complete scores. Truncates what a killed build left half written."""
        with storage_errors(self.path):
            n_rows = self._n_score_rows(n_queries)
            for name, row_bytes in ((DOCS, 8), (SCORES, 4 * n_queries)):
                if _file_size(self.path / name) > n_rows * row_bytes:
                    os.truncate(self.path / name, n_rows * row_bytes)
            return np.fromfile(self.path / DOCS, np.int64) if n_rows else np.zeros(0, np.int64)

    def append_scores(self, docs: NDArray[np.int64], scores: NDArray[np.float32]) -> None:
        """Adds rows (documents, queries). Scores reach the disk before the document numbers that make them valid."""
        with storage_errors(self.path):
            for name, data in ((SCORES, scores.astype("<f4")), (DOCS, docs.astype("<i8"))):
                with (self.path / name).open("ab") as file:
                    file.write(np.ascontiguousarray(data).tobytes())
                    file.flush()
                    os.fsync(file.fileno())

    def scores(self, n_queries: int) -> NDArray[np.float32]:
        """Scores (documents, queries), memory-mapped."""
        n_rows = self._n_score_rows(n_queries)
        if n_rows == 0:
            return np.zeros((0, n_queries), np.float32)
        return np.memmap(self.path / SCORES, "<f4", "r", shape=(n_rows, n_queries))

    def docs(self) -> NDArray[np.int64]:
        """Numbers of the scored documents, in the order of the rows of all other arrays."""
        return np.fromfile(self.path / DOCS, "<i8") if (self.path / DOCS).is_file() else np.zeros(0, np.int64)

    def _n_score_rows(self, n_queries: int) -> int:
        return min(_file_size(self.path / DOCS) // 8, _file_size(self.path / SCORES) // (4 * n_queries))

    # -- embeddings

    def write_embeddings(
        self, manifest: CurManifest, embeddings: NDArray[np.float32], inverse: NDArray[np.float32]
    ) -> None:
        """Replaces the embeddings (documents, anchors), in the order of `docs`."""
        codes, scales = quantize(embeddings)
        with storage_errors(self.path):
            for name, data in ((EMBEDDINGS, codes), (SCALES, scales)):
                (self.path / f"{name}.new").write_bytes(data.tobytes())
            # numpy appends .npy to other suffixes.
            new_inverse = self.path / f"new.{INVERSE}"
            np.save(new_inverse, inverse.astype(np.float32))
            # The manifest is removed first and written last: in between there is no CUR index, never a mixture of two.
            (self.path / MANIFEST).unlink(missing_ok=True)
            new_inverse.replace(self.path / INVERSE)
            for name in (EMBEDDINGS, SCALES):
                (self.path / f"{name}.new").replace(self.path / name)
            self._write_json(MANIFEST, asdict(manifest))

    def manifest(self) -> CurManifest:
        """The manifest of the embeddings; NotAnIndexError if there are none."""
        raw = self._read_json(MANIFEST)
        if raw is None:
            progress = f" ({len(self.docs())} documents are scored already)" if self.scores_manifest() else ""
            raise NotAnIndexError(
                f"index {self.index} has no CUR index{progress}; build it: plait cur build {self.index} --model CROSS"
            )
        if raw.get("format", 0) > FORMAT:
            raise NewerFormatError(f"{self.path / MANIFEST} has format {raw['format']}; this plait reads {FORMAT}")
        try:
            anchor_docs, anchor_texts = tuple(raw["anchor_docs"]), tuple(raw["anchor_texts"])
            return CurManifest(**{**raw, "anchor_docs": anchor_docs, "anchor_texts": anchor_texts})
        except (KeyError, TypeError) as error:
            raise self._corrupt(str(error)) from error

    def version(self) -> int:
        """A number that changes with each build and update; 0 if there is no CUR index."""
        manifest = self.path / MANIFEST
        return manifest.stat().st_mtime_ns if manifest.is_file() else 0

    def embeddings(self, manifest: CurManifest) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
        """Codes (documents, anchors), memory-mapped, and scales (documents,)."""
        shape = (manifest.n_documents, len(manifest.anchor_docs))
        expected_sizes = {EMBEDDINGS: shape[0] * shape[1], SCALES: 4 * shape[0], DOCS: 8 * shape[0]}
        for name, expected in expected_sizes.items():
            size = _file_size(self.path / name)
            if size < expected or (size > expected and name != DOCS):
                raise self._corrupt(f"{name} has {size} bytes and should have {expected}")
        return np.memmap(self.path / EMBEDDINGS, np.int8, "r", shape=shape), np.fromfile(self.path / SCALES, "<f4")

    def inverse(self) -> NDArray[np.float32]:
        """The pseudo-inverse (anchors, anchor queries)."""
        array: NDArray[np.float32] = np.load(self.path / INVERSE)
        return array

    # -- JSON files

    def _read_json(self, name: str) -> dict[str, Any] | None:
        try:
            raw = json.loads((self.path / name).read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            raise self._corrupt(f"{name} cannot be read: {error}") from error
        if not isinstance(raw, dict):
            raise self._corrupt(f"{name} is not a JSON object")
        return raw

    def _write_json(self, name: str, fields: dict[str, Any]) -> None:
        new = self.path / f"{name}.new"
        new.write_text(json.dumps(fields), encoding="utf-8")
        new.replace(self.path / name)

    def _corrupt(self, what: str) -> CorruptIndexError:
        return CorruptIndexError(f"the CUR index in {self.path} is damaged: {what}; remove that folder and build again")


def _file_size(path: Path) -> int:
    return path.stat().st_size if path.is_file() else 0


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

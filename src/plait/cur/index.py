"""`CurFolder`: what an index keeps for search with a cross-encoder, in its folder `cur/`.

docs.i64      numbers of the documents that were scored, in the order they were
scores.f32    (documents, anchor queries): their scores; a row is whole when docs.i64 has its number
codes.i8      (documents, anchors): item embeddings, a byte a dimension; scales.f32 has one factor for each document
inverse.npy   (anchors, anchor queries): the pseudo-inverse, which makes embeddings of later documents
cur.json      what all that is; replaced whole, last
A document's number is never used for another text, so scores are never wrong, whatever happens to the index.
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

from plait.errors import CorruptIndexError, NewerFormatError, NotAnIndexError
from plait.storage.fsync import storage_errors

FORMAT = 1
NAME, MANIFEST, BEGUN = "cur", "cur.json", "begun.json"
DOCS, SCORES, CODES, SCALES, INVERSE = "docs.i64", "scores.f32", "codes.i8", "scales.f32", "inverse.npy"


@dataclass(frozen=True, slots=True)
class Begun:
    """What a score cache is of. Another model or other queries are another cache."""

    scorer: str  # its fingerprint
    model: str  # where it was loaded from
    queries: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CurFacts:
    """What was built."""

    format: int
    anchors: tuple[int, ...]  # document numbers
    anchor_texts: tuple[str, ...]  # as they were scored: a deleted anchor is still asked about
    cut: float
    budget: int  # for which the anchors were chosen
    k: int
    dev_recall: float  # Top-k-Recall on dev queries, which chose split and cut
    n_dev: int
    rank: int  # directions of the anchor block above the cut
    n_documents: int  # with an embedding
    made: str


class CurFolder:
    """The files of one index; cheap to hold, arrays are mapped when asked for."""

    def __init__(self, index: Path) -> None:
        self.index, self.path = index, index / NAME

    # -- scores

    def begun(self) -> Begun | None:
        raw = self._json(BEGUN)
        return None if raw is None else Begun(raw["scorer"], raw["model"], tuple(raw["queries"]))

    def begin(self, begun: Begun) -> None:
        """Starts an empty cache; whatever was there is gone."""
        with storage_errors(self.path):
            self.path.mkdir(exist_ok=True)
            for name in (MANIFEST, DOCS, SCORES, CODES, SCALES, INVERSE):
                (self.path / name).unlink(missing_ok=True)
            self._write_json(BEGUN, asdict(begun))

    def scored(self, n_queries: int) -> NDArray[np.int64]:
        """The documents whose scores are all there. What a killed build left half written is cut off."""
        with storage_errors(self.path):
            sizes = [_size(self.path / DOCS) // 8, _size(self.path / SCORES) // (4 * n_queries)]
            n = min(sizes)
            for name, width in ((DOCS, 8), (SCORES, 4 * n_queries)):
                if _size(self.path / name) > n * width:
                    os.truncate(self.path / name, n * width)
            return np.fromfile(self.path / DOCS, np.int64) if n else np.zeros(0, np.int64)

    def append(self, docs: NDArray[np.int64], scores: NDArray[np.float32]) -> None:
        """Adds rows (documents, queries); scores are on disk before the numbers that make them count."""
        with storage_errors(self.path):
            for name, data in ((SCORES, scores.astype("<f4")), (DOCS, docs.astype("<i8"))):
                with (self.path / name).open("ab") as file:
                    file.write(np.ascontiguousarray(data).tobytes())
                    file.flush()
                    os.fsync(file.fileno())

    def scores(self, n_queries: int) -> NDArray[np.float32]:
        """(documents, queries), mapped."""
        n = min(_size(self.path / DOCS) // 8, _size(self.path / SCORES) // (4 * n_queries))
        if n == 0:
            return np.zeros((0, n_queries), np.float32)
        return np.memmap(self.path / SCORES, "<f4", "r", shape=(n, n_queries))

    def docs(self) -> NDArray[np.int64]:
        return np.fromfile(self.path / DOCS, "<i8") if (self.path / DOCS).is_file() else np.zeros(0, np.int64)

    # -- embeddings

    def write(self, facts: CurFacts, embeddings: NDArray[np.float32], inverse: NDArray[np.float32]) -> None:
        """Keeps embeddings (documents, anchors), in the order of `docs`, and makes them live."""
        codes, scales = quantised(embeddings)
        with storage_errors(self.path):
            for name, data in ((CODES, codes), (SCALES, scales)):
                (self.path / f"{name}.new").write_bytes(data.tobytes())
            np.save(self.path / "inverse.new.npy", inverse.astype(np.float32))
            # The manifest goes first and comes last: in between there is no CUR index rather than a mixture of two.
            (self.path / MANIFEST).unlink(missing_ok=True)
            (self.path / "inverse.new.npy").replace(self.path / INVERSE)
            for name in (CODES, SCALES):
                (self.path / f"{name}.new").replace(self.path / name)
            self._write_json(MANIFEST, asdict(facts))

    def facts(self) -> CurFacts:
        """What was built; NotAnIndexError if nothing was."""
        raw = self._json(MANIFEST)
        if raw is None:
            scored = f" ({len(self.docs())} documents are scored already)" if self.begun() else ""
            raise NotAnIndexError(
                f"index {self.index} has no CUR index{scored}; build it: plait cur build {self.index} --model CROSS"
            )
        if raw.get("format", 0) > FORMAT:
            raise NewerFormatError(f"{self.path / MANIFEST} has format {raw['format']}; this plait reads {FORMAT}")
        try:
            return CurFacts(**{**raw, "anchors": tuple(raw["anchors"]), "anchor_texts": tuple(raw["anchor_texts"])})
        except (KeyError, TypeError) as error:
            raise self._damaged(str(error)) from error

    def stamp(self) -> int:
        """Another number after each build and update; 0 where there is none."""
        manifest = self.path / MANIFEST
        return manifest.stat().st_mtime_ns if manifest.is_file() else 0

    def embeddings(self, facts: CurFacts) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
        """Codes (documents, anchors) and scales (documents,), mapped."""
        shape = (facts.n_documents, len(facts.anchors))
        wanted = {CODES: shape[0] * shape[1], SCALES: 4 * shape[0], DOCS: 8 * shape[0]}
        for name, size in wanted.items():
            seen = _size(self.path / name)
            if seen < size or (seen > size and name != DOCS):
                raise self._damaged(f"{name} has {seen} bytes and should have {size}")
        return np.memmap(self.path / CODES, np.int8, "r", shape=shape), np.fromfile(self.path / SCALES, "<f4")

    def inverse(self) -> NDArray[np.float32]:
        found: NDArray[np.float32] = np.load(self.path / INVERSE)
        return found

    # -- within

    def _json(self, name: str) -> dict[str, Any] | None:
        try:
            raw = json.loads((self.path / name).read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            raise self._damaged(f"{name} cannot be read: {error}") from error
        if not isinstance(raw, dict):
            raise self._damaged(f"{name} is no object")
        return raw

    def _write_json(self, name: str, fields: dict[str, Any]) -> None:
        draft = self.path / f"{name}.new"
        draft.write_text(json.dumps(fields), encoding="utf-8")
        draft.replace(self.path / name)

    def _damaged(self, what: str) -> CorruptIndexError:
        return CorruptIndexError(f"the CUR index in {self.path} is damaged: {what}; remove that folder and build again")


def _size(path: Path) -> int:
    return path.stat().st_size if path.is_file() else 0


def quantised(embeddings: NDArray[np.float32]) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
    """Rows as bytes, with one factor each: the largest entry of a row becomes 127."""
    largest = np.abs(embeddings).max(axis=1, initial=0.0)
    scales = np.where(largest > 0, largest / 127, 1.0).astype(np.float32)
    return np.rint(embeddings / scales[:, None]).astype(np.int8), scales


def inner_products(
    query: NDArray[np.floating], codes: NDArray[np.int8], scales: NDArray[np.float32], *, block: int = 8192
) -> NDArray[np.float64]:
    """(documents,): what `quantised` rows give with a query, a block at a time so that they are never copied whole."""
    wanted, found = np.asarray(query, np.float32), np.empty(len(codes), np.float32)
    for start in range(0, len(codes), block):
        found[start : start + block] = codes[start : start + block].astype(np.float32) @ wanted
    return np.asarray(found * scales, np.float64)


def texts_of(documents: Sequence[Any]) -> list[str]:
    """What is scored of stored documents: the title leads the text, and the model cuts what is too long for it."""
    from plait.encode.chunking import with_title

    return [with_title(document.title, document.text) for document in documents]

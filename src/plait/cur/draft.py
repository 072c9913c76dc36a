"""The draft of a CUR index: scores of a build that is not finished, in `cur/draft-DIGEST.scores` of the index.

    magic, length and checksum of the header   16 bytes
    JSON header                                the cross-encoder and the anchor queries; padded with spaces
    blocks                                     number of documents, checksum; document numbers; scores; padding

Scoring may take hours, so each block is stored when it is scored. A draft belongs to no commit. Resuming reads all of
it: the first block that is cut or does not match its checksum is removed with those after it, and is scored again.
"""

from __future__ import annotations

import hashlib
import json
import mmap
import os
import struct
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from plait.checks import parse_json
from plait.scoring.crc32c import crc32c
from plait.storage.folder import check_file, check_folder
from plait.storage.fsync import make_folders, storage_errors, sync_file, sync_folder

FOLDER = "cur"
MAGIC = b"\x89PLCUR1\n"
PRELUDE = struct.Struct("<8sII")
BLOCK = struct.Struct("<II")
ALIGNMENT = 8


@dataclass(frozen=True, slots=True)
class ScoresManifest:
    """What scores are of. Another model or other queries need other scores."""

    scorer: str  # the fingerprint of the cross-encoder
    model: str  # the folder or name it was loaded from; "" for the bundled one
    queries: tuple[str, ...]

    def is_comparable(self, other: ScoresManifest | None) -> bool:
        """The model's folder may have moved; its fingerprint says whether it is the same model."""
        return other is not None and (self.scorer, self.queries) == (other.scorer, other.queries)


@dataclass(frozen=True, slots=True, eq=False)
class ScoredBlock:
    """Scores (documents, anchor queries) of some documents."""

    docs: NDArray[np.int64]
    scores: NDArray[np.float32]


def draft_folder(index: Path) -> Path:
    return index / FOLDER


def drafted_documents(index: Path) -> int:
    """The number of documents in the longest draft."""
    drafts = [ScoreDraft(file) for file in _draft_files(index)]
    return max((sum(len(block.docs) for block in draft.read()) for draft in drafts), default=0)


def remove_drafts(index: Path) -> None:
    """Removes all drafts: their scores are committed, or are of models and queries that were given up."""
    with storage_errors(index):
        for file in _draft_files(index):
            file.unlink()


def _draft_files(index: Path) -> list[Path]:
    folder = draft_folder(index)
    files = sorted(folder.glob("draft-*.scores")) if check_folder(folder) else []
    return [file for file in files if check_file(file)]


class ScoreDraft:
    """One draft file. The caller holds the lock of the draft folder while it appends."""

    def __init__(self, file: Path) -> None:
        self._file = file

    @classmethod
    def resume(cls, index: Path, manifest: ScoresManifest) -> ScoreDraft:
        """The draft of these scores: the one that exists, without its damaged end, or a new one."""
        key = json.dumps([manifest.scorer, manifest.queries]).encode()
        draft = cls(draft_folder(index) / f"draft-{hashlib.sha256(key).hexdigest()[:12]}.scores")
        with storage_errors(draft._file):
            if not check_folder(draft._file.parent):
                make_folders(draft._file.parent)
            check_file(draft._file)
            if not manifest.is_comparable(draft._manifest()):
                draft._start(manifest)
            end = draft._scan()[1]
            if end < draft._file.stat().st_size:
                os.truncate(draft._file, end)
        return draft

    def append(self, docs: NDArray[np.int64], scores: NDArray[np.float32]) -> None:
        """Adds the scores (documents, queries) of some documents; durable when this returns."""
        data = docs.astype("<i8").tobytes() + np.ascontiguousarray(scores.astype("<f4")).tobytes()
        length = len(docs).to_bytes(4, "little")
        block = length + crc32c(data, crc32c(length)).to_bytes(4, "little") + data
        with storage_errors(self._file), self._file.open("ab") as file:
            file.write(block.ljust(_aligned(len(block)), b"\0"))
            file.flush()
            sync_file(file.fileno())

    def read(self) -> list[ScoredBlock]:
        """All blocks that are whole, as views of a memory map."""
        with storage_errors(self._file):
            return self._scan()[0]

    def remove(self) -> None:
        with storage_errors(self._file):
            self._file.unlink(missing_ok=True)

    def _start(self, manifest: ScoresManifest) -> None:
        header = json.dumps(asdict(manifest)).encode()
        header = header.ljust(_aligned(PRELUDE.size + len(header)) - PRELUDE.size)
        with self._file.open("wb") as file:
            file.write(PRELUDE.pack(MAGIC, len(header), crc32c(header)) + header)
            file.flush()
            sync_file(file.fileno())
        sync_folder(self._file.parent)

    def _manifest(self) -> ScoresManifest | None:
        """The manifest in the header; None if there is none or it is damaged."""
        header = self._header()
        if header is None:
            return None
        try:
            raw = parse_json(header)
            return ScoresManifest(raw["scorer"], raw["model"], tuple(raw["queries"]))
        except (ValueError, KeyError, TypeError, RecursionError):
            return None

    def _header(self) -> bytes | None:
        try:
            with self._file.open("rb") as file:
                prelude = file.read(PRELUDE.size)
                if len(prelude) < PRELUDE.size:
                    return None
                magic, length, checksum = PRELUDE.unpack(prelude)
                header = file.read(length) if magic == MAGIC else b""
        except FileNotFoundError:
            return None
        return header if magic == MAGIC and len(header) == length and crc32c(header) == checksum else None

    def _scan(self) -> tuple[list[ScoredBlock], int]:
        """The blocks before the first damaged one, and where the last of them ends."""
        manifest, header = self._manifest(), self._header()
        if manifest is None or header is None or not manifest.queries:
            return [], 0
        n_queries, at = len(manifest.queries), PRELUDE.size + len(header)
        blocks = []
        with self._file.open("rb") as file:
            view = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        while at + BLOCK.size <= len(view):
            n_docs, checksum = BLOCK.unpack(view[at : at + BLOCK.size])
            start, end = at + BLOCK.size, at + BLOCK.size + n_docs * (8 + 4 * n_queries)
            if n_docs == 0 or _aligned(end) > len(view):
                break
            if crc32c(view[start:end], crc32c(view[at : at + 4])) != checksum:
                break
            docs = np.frombuffer(view[start : start + 8 * n_docs], "<i8")
            scores = np.frombuffer(view[start + 8 * n_docs : end], "<f4").reshape(n_docs, n_queries)
            blocks.append(ScoredBlock(docs, scores))
            at = _aligned(end)
        return blocks, at


def _aligned(nbytes: int) -> int:
    return -(-nbytes // ALIGNMENT) * ALIGNMENT


def unique_blocks(blocks: Sequence[ScoredBlock]) -> list[ScoredBlock]:
    """The blocks, each without documents that an earlier one has."""
    known, unique = np.zeros(0, np.int64), []
    for block in blocks:
        _, first = np.unique(block.docs, return_index=True)
        is_new = np.zeros(len(block.docs), bool)
        is_new[first] = True
        is_new &= ~np.isin(block.docs, known)
        if not is_new.all():
            block = ScoredBlock(block.docs[is_new], block.scores[is_new])
        known = np.concatenate([known, block.docs])
        unique.append(block)
    return unique

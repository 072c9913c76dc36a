"""The spool of a build: encoded blocks of documents on disk, named by a digest of all that they depend on. A build that
was interrupted finds them and encodes only what is missing.

A block is a folder with one file for each shard that owns documents of it. The folder is renamed into place when it is
complete, so a block is there as a whole or not at all.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
from numpy.typing import NDArray

from plait.cluster.hashing import even_starts, owner
from plait.embeddings import Embeddings, MultiVectors, SparseVectors
from plait.errors import CorruptIndexError
from plait.records import Document, Span
from plait.storage.fsync import make_folders, storage_errors, sync_file, sync_folder
from plait.storage.validate import parse_reserved, plain_metadata

SUMMARY = "block.json"


@dataclass(frozen=True, slots=True)
class EncodedBlock:
    """Documents, their passages, and the embeddings of the passages in this order."""

    documents: Sequence[Document]
    spans: Sequence[Sequence[Span]]
    embeddings: Embeddings

    def part(self, numbers: Sequence[int]) -> EncodedBlock:
        """The documents at these positions, ascending."""
        begins = np.cumsum([0, *(len(spans) for spans in self.spans)])
        rows = np.concatenate([np.zeros(0, np.int64), *(np.arange(begins[n], begins[n + 1]) for n in numbers)])
        given = self.embeddings
        return EncodedBlock(
            [self.documents[number] for number in numbers],
            [self.spans[number] for number in numbers],
            Embeddings(
                dense=None if given.dense is None else given.dense[rows],
                sparse=None if given.sparse is None else given.sparse.take(rows),
                multi=None if given.multi is None else given.multi.take(rows),
            ),
        )


@dataclass(frozen=True, slots=True)
class BlockSummary:
    """A block of the spool."""

    key: str
    n_documents: int
    n_passages: int
    n_vectors: Mapping[int, int]  # multi vectors, by shard that owns documents of the block


class Spool:
    """The encoded blocks of a build."""

    def __init__(self, folder: Path, n_shards: int) -> None:
        self._folder, self._starts = folder, even_starts(n_shards)

    def find(self, key: str) -> BlockSummary | None:
        """A block that is complete."""
        path = self._folder / key / SUMMARY
        if not path.is_file():
            return None
        try:
            stored: Any = json.loads(path.read_bytes())
            stored["n_vectors"] = {int(shard): int(count) for shard, count in stored["n_vectors"].items()}
            return BlockSummary(**stored)
        except (ValueError, TypeError, KeyError, AttributeError):
            raise CorruptIndexError(f"{path} is damaged; delete {path.parent} and build again") from None

    def write(self, key: str, block: EncodedBlock) -> BlockSummary:
        """Writes a block, durably and in one step. Two writers of one block leave one of two equal ones."""
        by_shard: dict[int, list[int]] = {}
        for number, document in enumerate(block.documents):
            by_shard.setdefault(owner(self._starts, document.id), []).append(number)
        draft = self._folder / f".{key}.{os.getpid()}.{uuid4().hex[:8]}"
        with storage_errors(self._folder):
            make_folders(draft)
            try:
                n_vectors = {}
                for shard, numbers in sorted(by_shard.items()):
                    part = block.part(numbers)
                    multi = part.embeddings.multi
                    n_vectors[shard] = 0 if multi is None else len(multi.values)
                    with (draft / f"{shard}.npz").open("wb") as file:
                        np.savez(file, allow_pickle=False, **_arrays(part))
                        sync_file(file.fileno())
                n_passages = sum(map(len, block.spans))
                summary = BlockSummary(key, len(block.documents), n_passages, n_vectors)
                (draft / SUMMARY).write_text(json.dumps(asdict(summary)), encoding="utf-8")
                sync_folder(draft)
                if self.find(key) is None:
                    draft.rename(self._folder / key)
                    sync_folder(self._folder)
            finally:
                shutil.rmtree(draft, ignore_errors=True)
        return summary

    def read(self, key: str, shard: int) -> EncodedBlock:
        """The part of a block that a shard owns."""
        path = self._folder / key / f"{shard}.npz"
        with _opened(path) as stored:
            return _block(path, stored)

    def vectors(self, key: str, shard: int, rows: NDArray[np.int64]) -> NDArray[np.float16]:
        """Some multi vectors of a part of a block."""
        with _opened(self._folder / key / f"{shard}.npz") as stored:
            return np.asarray(stored["multi"][rows], np.float16)

    def remove(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)


@contextmanager
def _opened(path: Path) -> Iterator[Mapping[str, NDArray[Any]]]:
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as stored:
            yield stored
    except (OSError, ValueError, KeyError, zipfile.BadZipFile) as error:
        raise CorruptIndexError(f"{path} cannot be read ({error}); delete {path.parent} and build again") from None


def block_key(settings: str, documents: Sequence[Document]) -> str:
    """The name of a block: of `settings`, which has the model and the chunking, and of all contents."""
    digest = hashlib.blake2b(settings.encode(), digest_size=16)
    for document in documents:
        digest.update(json.dumps(_plain(document), sort_keys=True).encode())
        digest.update(b"\n")
    return digest.hexdigest()


def _plain(document: Document) -> list[Any]:
    return [document.id, document.text, document.title, plain_metadata(document)]


def _arrays(block: EncodedBlock) -> dict[str, NDArray[Any]]:
    given = block.embeddings
    documents = json.dumps([_plain(document) for document in block.documents], allow_nan=False).encode()
    spans = [(number, *span) for number, each in enumerate(block.spans) for span in each]
    arrays: dict[str, NDArray[Any]] = {
        "documents": np.frombuffer(documents, np.uint8),
        "spans": np.asarray(spans, np.int64).reshape(-1, 3),
    }
    if given.dense is not None:
        arrays["dense"] = given.dense
    if given.sparse is not None:
        arrays |= {"terms": given.sparse.terms, "weights": given.sparse.weights, "term_offsets": given.sparse.offsets}
    if given.multi is not None:
        arrays |= {"multi": given.multi.values, "multi_offsets": given.multi.offsets}
    return arrays


def _block(path: Path, stored: Mapping[str, NDArray[Any]]) -> EncodedBlock:
    documents = []
    for id, text, title, metadata in json.loads(stored["documents"].tobytes()):
        sections, origin = parse_reserved(f"{path}: document {id!r:.100}", metadata)
        documents.append(Document(id, text, title, metadata, sections, origin))
    spans: list[list[Span]] = [[] for _ in documents]
    for number, start, end in stored["spans"].tolist():
        spans[number].append(Span(start, end))
    embeddings = Embeddings(
        dense=stored.get("dense"),
        sparse=SparseVectors(stored["terms"], stored["weights"], stored["term_offsets"]) if "terms" in stored else None,
        multi=MultiVectors(stored["multi"], stored["multi_offsets"]) if "multi" in stored else None,
    )
    return EncodedBlock(documents, spans, embeddings)

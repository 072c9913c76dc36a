"""Stanford PLAID indexes, and those of RAGatouille, which add texts, ids and metadata. Needs no torch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from plait.checks import parse_json
from plait.encode.protocol import EmbeddingSpec
from plait.transfer.fields import plain_value
from plait.transfer.numpy_folder import read_json
from plait.transfer.pickles import read_tensor, read_torch
from plait.transfer.residual_codes import BucketCodec, read_lengths, read_n_chunks
from plait.transfer.source import ImportOptions, Row, Source, damaged


def open_source(path: str, options: ImportOptions) -> Source:
    """The passages of an index folder."""
    del options
    folder = Path(path)
    metadata = read_json(folder / "metadata.json")
    buckets = read_torch(folder / "buckets.pt")
    if not (isinstance(buckets, tuple) and len(buckets) == 2 and all(isinstance(one, np.ndarray) for one in buckets)):
        raise damaged(folder / "buckets.pt", "it must have the cutoffs and the weights of the buckets")
    codec = BucketCodec.checked(folder, read_tensor(folder / "centroids.pt", "f", 2), buckets[1])
    n_chunks = read_n_chunks(folder / "metadata.json", metadata)
    lengths = [read_lengths(folder / f"doclens.{chunk}.json") for chunk in range(n_chunks)]
    n_passages = sum(map(len, lengths))
    texts = _Ragatouille(folder, n_passages)
    config = metadata.get("config")
    model = config.get("checkpoint", "") if isinstance(config, dict) else ""

    def rows() -> Iterator[Row]:
        passage = 0
        for chunk, chunk_lengths in enumerate(lengths):
            cells = read_tensor(folder / f"{chunk}.codes.pt", "iu", 1)
            residuals = read_tensor(folder / f"{chunk}.residuals.pt", "u", 2)
            if len(cells) != sum(chunk_lengths):
                raise damaged(folder, f"chunk {chunk} has {len(cells)} codes for {sum(chunk_lengths)} vectors")
            vectors = codec.decode(folder / f"{chunk}.residuals.pt", cells, residuals, normalize=True)
            end = 0
            for length in chunk_lengths:
                begin, end = end, end + length
                yield replace(texts.row(passage), multi=vectors[begin:end].astype(np.float16), cells=cells[begin:end])
                passage += 1

    spec = EmbeddingSpec(multi=codec.dim)
    form = "plaid (RAGatouille)" if texts.has_texts else "plaid"
    return Source(form, spec, rows, n_passages, str(model or ""), codec.original(), texts.has_ids)


class _Ragatouille:
    """The files that RAGatouille adds: texts, the document of each passage, and metadata of documents."""

    def __init__(self, folder: Path, n_passages: int) -> None:
        self._texts = _read(folder / "collection.json")
        self._owners = _read(folder / "pid_docid_map.json")
        self._metadata = _read(folder / "docid_metadata_map.json")
        self._texts = list(self._texts.values()) if isinstance(self._texts, dict) else self._texts
        self.has_texts = isinstance(self._texts, list)
        self.has_ids = isinstance(self._owners, dict)
        if isinstance(self._texts, list) and len(self._texts) != n_passages:
            raise damaged(
                folder / "collection.json", f"it has {len(self._texts)} texts, but the index has {n_passages} passages"
            )
        self._before: str | None = None
        self._number = 0

    def row(self, passage: int) -> Row:
        """A passage without its vectors. Passages of one document stay documents of their own, DOC#1, DOC#2 and so on:
        RAGatouille does not store how they made up its text."""
        text = str(self._texts[passage]) if isinstance(self._texts, list) else ""
        if not isinstance(self._owners, dict):
            return Row(str(passage), text)
        owner = str(self._owners.get(str(passage), passage))
        self._number = self._number + 1 if owner == self._before else 0
        self._before = owner
        metadata: dict[str, Any] = {}
        if isinstance(self._metadata, Mapping) and isinstance(given := self._metadata.get(owner), Mapping):
            metadata = plain_value(given)
        if self._number:
            metadata = {**metadata, "document_id": owner}
        return Row(f"{owner}#{self._number}" if self._number else owner, text, "", metadata)


def _read(file: Path) -> Any:
    if not file.exists():
        return None
    try:
        return parse_json(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise damaged(file, error) from None

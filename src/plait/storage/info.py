"""What an index is made of, in numbers; read from the catalogue alone, so that it costs the same at any size."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from plait.encode.protocol import EmbeddingSpec
from plait.storage.catalogue import pooling_in, read_meta, read_segments
from plait.storage.connection import ReadTransaction
from plait.storage.drift import Drift, read_drift
from plait.storage.fusion_weights import SavedWeights, read_weights
from plait.storage.snapshot import CATALOGUE
from plait.storage.store import Store
from plait.storage.tuned_params import SavedParams, read_tuned_params


@dataclass(frozen=True, slots=True)
class StoreInfo:
    """An index at one commit."""

    path: Path
    documents: int
    passages: int  # that are not deleted
    segments: int
    deleted_rows: int  # that still take space
    bytes: int
    bytes_by_part: Mapping[str, int]  # catalogue, rows, and each strand
    format: int
    created: str
    fingerprint: str
    spec: EmbeddingSpec
    properties: Mapping[str, Any]
    tuned: SavedParams  # the plan that searches of the multi strand go by
    pooling: str = ""  # how the multi strand is pooled; empty where it is not
    weights: SavedWeights = SavedWeights(None)  # noqa: RUF009 -- frozen; those of strands that hybrid search goes by
    language: str | None = None  # that the full text is stemmed for; None is English, and texts of any language
    drift: Drift | None = None  # of vectors that were coded since the codec was fitted
    resident: int | None = None  # bytes of the segments that this process has in memory; None where it cannot be told

    @property
    def deleted_share(self) -> float:
        """Of all rows that take space."""
        return self.deleted_rows / max(self.passages + self.deleted_rows, 1)


def info(store: Store) -> StoreInfo:
    """The numbers of the newest commit."""
    catalogue = store.path / CATALOGUE
    view = ReadTransaction(catalogue)
    try:
        segments = read_segments(view)
        n_deleted = int(view.rows("SELECT COUNT(*) FROM tombstones")[0][0])
        n_documents, tuned, drift = view.count("n_documents"), read_tuned_params(view), read_drift(view)
        weights = read_weights(view)
        meta = read_meta(view)  # of now: a compaction may have chosen a pooling since the index was opened
    finally:
        view.close()
    parts = Counter({"catalogue": _nbytes(catalogue) + _nbytes(catalogue.with_name(f"{CATALOGUE}-wal"))})
    for segment in segments:
        for name, facts in segment.files.items():
            parts[name.removesuffix(".plait")] += facts.nbytes
    return StoreInfo(
        path=store.path,
        documents=n_documents,
        passages=sum(segment.n_rows for segment in segments) - n_deleted,
        segments=len(segments),
        deleted_rows=n_deleted,
        bytes=sum(parts.values()),
        bytes_by_part=dict(parts),
        format=meta["format"],
        created=store.created,
        fingerprint=store.fingerprint,
        spec=store.spec,
        properties=json.loads(meta["facts"]),
        tuned=tuned,
        weights=weights,
        language=store.language,
        pooling=str(pooling_in(meta["facts"]) or ""),
        drift=drift,
        resident=resident_bytes(store.path),
    )


def resident_bytes(path: Path) -> int | None:
    """How much of the segments this process has mapped and in memory: what the system reads in as it is searched, and
    takes away again when others need it."""
    folder, total, counting = str(path.resolve() / "segments"), 0, False
    try:
        lines = Path("/proc/self/smaps").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return None
    for line in lines:
        first, *rest = line.split(maxsplit=5)
        if not first.endswith(":"):
            counting = len(rest) == 5 and rest[4].startswith(folder)
        elif counting and first == "Rss:":
            total += int(rest[0]) * 1024
    return total


def _nbytes(file: Path) -> int:
    try:
        return file.stat().st_size
    except FileNotFoundError:
        return 0

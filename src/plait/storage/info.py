"""The numbers of an index, read from the catalogue alone, so that it takes the same time at any size."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from plait.encode.protocol import EmbeddingSpec
from plait.storage.attachments import read_attachments
from plait.storage.catalogue import (
    N_ROWS,
    parse_chunking,
    parse_pooling,
    parse_projection,
    parse_properties,
    read_meta,
    read_segments,
)
from plait.storage.codec_recall import Drift, read_drift
from plait.storage.connection import CATALOGUE, ReadTransaction
from plait.storage.log import LogState, log_nbytes, log_state
from plait.storage.projections import ProjectionFacts, read_facts
from plait.storage.saved_settings import (
    SavedCalibration,
    SavedParams,
    SavedWeights,
    read_calibration,
    read_fusion_weights,
    read_tuned_params,
)
from plait.storage.store import Store


@dataclass(frozen=True, slots=True)
class StoreInfo:
    """An index at one commit."""

    path: Path
    documents: int
    passages: int  # not counting deleted ones
    segments: int
    deleted_passages: int  # that still take space
    bytes: int
    bytes_by_part: Mapping[str, int]  # catalogue, each kind of segment file, each attachment
    format: int
    created: str
    fingerprint: str
    spec: EmbeddingSpec
    properties: Mapping[str, Any]
    tuned: SavedParams  # params of searches over multi vectors
    pooling: str = ""  # of the multi vectors; empty if they are not pooled
    wanted_projection: str = ""  # of the multi vectors, when there are enough; empty if none is wanted
    projection: ProjectionFacts | None = None  # of the multi vectors; None if they are whole
    chunking: str = ""  # how documents are split into passages; empty: as the model does
    weights: SavedWeights = SavedWeights(None)  # noqa: RUF009 -- frozen; weights of hybrid search
    calibration: SavedCalibration = SavedCalibration(None)  # noqa: RUF009 -- frozen; what scores mean
    language: str | None = None  # of the stemmer; None stems English and suits any language
    drift: Drift | None = None  # of the vectors that were coded after the codec was fitted
    log: LogState = LogState(0)  # noqa: RUF009 -- frozen; SQLite's write-ahead log, a part of the catalogue
    resident_bytes: int | None = None  # of the segments, in memory of this process; None if the system does not say

    @property
    def deleted_share(self) -> float:
        """The share of deleted passages among those that take space."""
        return self.deleted_passages / max(self.passages + self.deleted_passages, 1)


def info(store: Store) -> StoreInfo:
    """The numbers of the newest commit."""
    catalogue = store.path / CATALOGUE
    with ReadTransaction(catalogue) as view:
        segments = read_segments(view)
        n_deleted = int(view.rows(f"SELECT COUNT(*) FROM (SELECT 1 FROM deleted_rows LIMIT {N_ROWS})")[0][0])
        n_documents, tuned, drift = view.count("n_documents"), read_tuned_params(view), read_drift(view)
        weights, attachments = read_fusion_weights(view), read_attachments(view.rows)
        calibration, projection = read_calibration(view), read_facts(view.rows)
        log = log_state(catalogue)
        meta = read_meta(view)  # the store's may be older: a compaction may have chosen a pooling since
    parts = Counter({"catalogue": _nbytes(catalogue) + log_nbytes(catalogue)})
    for segment in segments:
        for name, file in segment.files.items():
            parts[name.removesuffix(".plait")] += file.nbytes
    for attached in attachments:
        parts[attached.name] += attached.nbytes
    return StoreInfo(
        path=store.path,
        documents=n_documents,
        passages=sum(segment.n_rows for segment in segments) - n_deleted,
        segments=len(segments),
        deleted_passages=n_deleted,
        bytes=sum(parts.values()),
        bytes_by_part=dict(parts),
        format=meta["format"],
        created=store.created,
        fingerprint=store.fingerprint,
        spec=store.spec,
        properties=parse_properties(meta.get("properties")),
        tuned=tuned,
        weights=weights,
        calibration=calibration,
        language=store.language,
        pooling=str(parse_pooling(meta.get("properties")) or ""),
        wanted_projection=str(parse_projection(meta.get("properties")) or ""),
        projection=projection,
        chunking=str(parse_chunking(meta.get("properties")) or ""),
        drift=drift,
        resident_bytes=resident_bytes(store.path),
        log=log,
    )


def resident_bytes(path: Path) -> int | None:
    """The bytes of mapped segments that are in memory. The system loads them as they are searched, and drops them if
    other programs need the memory."""
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

"""`cluster.json`: the shards of a collection and what they share. It is the only file that is replaced, in one step: a
reader sees the old collection or the new one.

A shard folder never changes its place. A new generation has a new manifest, which may name folders of the old one.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

from plait.cluster.hashing import HASH, N_HASHES
from plait.encode.protocol import EmbeddingSpec
from plait.errors import ConfigError, CorruptIndexError, EncoderMismatchError, NewerFormatError, NotAnIndexError
from plait.storage.connection import CATALOGUE
from plait.storage.fsync import make_folders, storage_errors, sync_file, sync_folder
from plait.storage.saved_settings import Calibration
from plait.version import __version__

FORMAT = 1
MANIFEST = "cluster.json"
DRAFT = "cluster.json.new"
LOCK = "cluster.lock"  # held by writers of documents and of manifests
MAX_BYTES = 64 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardRecord:
    """A shard as the manifest lists it."""

    uri: str  # relative to the folder of the manifest, or absolute
    first_hash: int  # it owns the hashes from here to before the next shard's first
    n_documents: int
    n_passages: int
    n_vectors: int = 0  # multi vectors
    n_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """A collection: its model, its shards and what all of them use."""

    fingerprint: str  # of the encoder
    model: str | None
    spec: EmbeddingSpec
    shards: Sequence[ShardRecord]
    generation: int = 1
    language: str | None = None
    exclude_from_hybrid: Sequence[str] = ()
    codebook: str | None = None  # digest of the codec that all shards use; None if vectors are not compressed
    calibration: Calibration | None = None
    properties: Mapping[str, Any] = field(default_factory=dict)  # pooling and chunking, as indexes keep them
    created: str = ""

    def __post_init__(self) -> None:
        starts = self.starts
        if not starts or starts[0] != 0 or any(after <= before for before, after in pairwise([*starts, N_HASHES])):
            raise ConfigError(f"the shards must own ascending ranges of hashes from 0; got {starts[:5]}")

    @property
    def starts(self) -> list[int]:
        """The first hash of each shard."""
        return [shard.first_hash for shard in self.shards]

    @property
    def n_documents(self) -> int:
        return sum(shard.n_documents for shard in self.shards)

    @property
    def n_passages(self) -> int:
        return sum(shard.n_passages for shard in self.shards)

    def shard_path(self, folder: Path, number: int) -> Path:
        """The folder of a shard, for a manifest that was read from `folder`."""
        return folder / self.shards[number].uri

    def check_model(self, fingerprint: str) -> None:
        if fingerprint != self.fingerprint:
            raise EncoderMismatchError(
                f"the collection was built with encoder {self.fingerprint!r}, but this one is {fingerprint!r}: their "
                f"vectors cannot be compared. Use the first encoder, or build a new collection"
            )

    def next_generation(self, **changes: Any) -> Manifest:
        """The manifest that replaces this one."""
        return replace(self, generation=self.generation + 1, created="", **changes)


def publish(folder: Path, manifest: Manifest) -> Manifest:
    """Makes a manifest the one of its folder, in one durable step. Every shard must be there.

    A manifest of a lower or the same generation as the published one is refused: another builder was faster.
    """
    for number, _ in enumerate(manifest.shards):
        _check_shard_folder(manifest.shard_path(folder, number), number)
    with storage_errors(folder):
        make_folders(folder)
        if (folder / MANIFEST).exists() and (known := read_manifest(folder)).generation >= manifest.generation:
            raise ConfigError(
                f"{folder} already has generation {known.generation}, and this one is {manifest.generation}: another "
                f"build was published meanwhile; read it, and make the change again"
            )
        dated = replace(manifest, created=datetime.now(UTC).isoformat(timespec="seconds"))
        draft = folder / DRAFT
        with draft.open("w", encoding="utf-8") as file:
            file.write(to_json(dated))
            file.flush()
            sync_file(file.fileno())
        draft.replace(folder / MANIFEST)
        sync_folder(folder)
    return dated


def read_manifest(folder: Path) -> Manifest:
    """The published manifest of a folder. The shards are not looked at: see `check_shards`."""
    path = folder / MANIFEST
    if not path.is_file():
        seen = "there is no such folder" if not folder.exists() else f"it has no {MANIFEST}"
        raise NotAnIndexError(
            f"{folder} is not a sharded collection: {seen}; check the path, or build one with plait cluster index"
        )
    with storage_errors(folder), path.open("rb") as file:
        return from_json(path, file.read(MAX_BYTES + 1))


def check_shards(folder: Path, manifest: Manifest) -> None:
    """Raises an error for a shard folder that is missing."""
    for number, _ in enumerate(manifest.shards):
        _check_shard_folder(manifest.shard_path(folder, number), number)


def to_json(manifest: Manifest) -> str:
    body: dict[str, Any] = {"format": FORMAT, "plait_version": __version__, "hash": HASH, **asdict(manifest)}
    body["shards"] = [{**shard, "first_hash": f"{shard['first_hash']:016x}"} for shard in body["shards"]]
    return json.dumps({**body, "checksum": _checksum(body)}, indent=1, allow_nan=False) + "\n"


def from_json(path: Path, data: bytes) -> Manifest:
    """The manifest of a file; NewerFormatError or CorruptIndexError if it cannot be read."""
    try:
        body: Any = json.loads(data)
        version = body["format"]
    except (ValueError, TypeError, KeyError, RecursionError):
        raise _damaged(path, "it is not a manifest") from None
    if type(version) is not int or version < 1:
        raise _damaged(path, f"its format is {version!r:.40}")
    if version > FORMAT:
        raise NewerFormatError(
            f"{path} has format {version}, and this plait reads formats up to {FORMAT}; install a newer plait"
        )
    checksum = body.pop("checksum", None)
    if checksum != _checksum(body):
        raise _damaged(path, "its checksum does not match")
    if body["hash"] != HASH:
        raise NewerFormatError(f"{path} assigns ids to shards by {body['hash']!r:.40}, which this plait does not have")
    try:
        return _parse(body)
    except (ConfigError, CorruptIndexError, ValueError, TypeError, KeyError) as error:
        raise _damaged(path, str(error)[:200]) from None


def _parse(body: Mapping[str, Any]) -> Manifest:
    values = {name: body[name] for name in Manifest.__dataclass_fields__}
    values["spec"] = EmbeddingSpec(**values["spec"])
    values["shards"] = tuple(
        ShardRecord(**{**shard, "first_hash": int(shard["first_hash"], 16)}) for shard in values["shards"]
    )
    if values["calibration"] is not None:
        known = values["calibration"]
        values["calibration"] = Calibration(
            **{**known, "bounds": {kind: tuple(pair) for kind, pair in known["bounds"].items()}}
        )
    return Manifest(**values)


def _checksum(body: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True, allow_nan=False).encode()).hexdigest()


def _damaged(path: Path, what: str) -> CorruptIndexError:
    return CorruptIndexError(f"{path} is damaged: {what}; restore it from a copy, or build the collection again")


def _check_shard_folder(path: Path, number: int) -> None:
    if not (path / CATALOGUE).is_file():
        raise NotAnIndexError(
            f"shard {number} is missing: {path} has no index; restore its folder, or build the collection again"
        )

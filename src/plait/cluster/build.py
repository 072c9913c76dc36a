"""Building a collection, step by step. Each step is a function of files and small values, so that Ray can run it on any
node that sees the folder, and each leaves a complete result or none:

encode blocks into the spool -> fit one codec on a sample of all blocks -> build every shard -> publish the manifest

The names of blocks and shards are digests of what they depend on. A build that is started again finds those that are
finished.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np

from plait.checks import check_count
from plait.cluster.calibration import calibrated
from plait.cluster.hashing import even_starts
from plait.cluster.manifest import DRAFT, LOCK, MANIFEST, Manifest, ShardRecord, publish, read_manifest
from plait.cluster.shard import codec_digest
from plait.cluster.sharded_index import LOCK_SECONDS
from plait.cluster.spool import BlockSummary, EncodedBlock, Spool, block_key
from plait.codec.codebook import Codebook
from plait.codec.packing import check_bits
from plait.codec.residual import ResidualCodec
from plait.codec.train import MIN_ROWS, FittedCodec, cells_for, fit, sample_rows, sample_size
from plait.encode.chunking import Chunking, chunker_for
from plait.encode.load import LazyEncoder
from plait.encode.protocol import EmbeddingSpec, Encoder
from plait.errors import ConfigError, CorruptIndexError, SourceError
from plait.ingest import as_document, passage_text, split_document
from plait.records import Document
from plait.search.calibration import model_bounds
from plait.storage.fsync import make_folders, storage_errors, sync_folder
from plait.storage.info import info
from plait.storage.lock import WriterLock
from plait.storage.network import network_file_system
from plait.storage.saved_settings import Calibration
from plait.storage.store import EXCLUDE_FROM_HYBRID, Store

BLOCK_DOCUMENTS = 512
MAX_BLOCK_CHARACTERS = 1_000_000
SEED = 0
SHARDS, WORK = "shards", "build"  # folders beside the manifest


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildConfig:
    """All that the contents of a collection depend on, apart from its documents."""

    fingerprint: str
    model: str | None
    spec: EmbeddingSpec
    exclude_from_hybrid: Sequence[str] = ()
    n_shards: int = 4
    bits: int = 2
    language: str | None = None
    chunking: Mapping[str, Any] | None = None  # as `Chunking.to_dict` writes it
    bounds: Mapping[str, tuple[float, float]] = field(default_factory=dict)  # of scores; see plait.search.calibration

    def __post_init__(self) -> None:
        check_count("shards", self.n_shards)
        check_bits(self.bits)

    @classmethod
    def of(cls, source: LazyEncoder, *, chunking: Chunking | None = None, **options: Any) -> BuildConfig:
        """For the model of `source`, which is loaded to measure its bounds."""
        return cls(
            fingerprint=source.fingerprint(),
            model=source.name,
            spec=source.spec(),
            exclude_from_hybrid=source.exclude_from_hybrid(),
            chunking=None if chunking is None else chunking.to_dict(),
            bounds=model_bounds(source.get()),
            **options,
        )

    @property
    def block_settings(self) -> str:
        return json.dumps([self.fingerprint, self.chunking, self.n_shards], sort_keys=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildReport:
    """What a build did. Blocks and shards that an earlier build had finished are `reused`."""

    manifest: Manifest
    n_blocks: int
    n_blocks_reused: int
    n_shards_reused: int


def blocks_of(documents: Iterable[Document | Mapping[str, Any]]) -> Iterator[list[Document]]:
    """Documents, some hundreds at a time. The blocks depend on the documents alone."""
    block: list[Document] = []
    n_characters = 0
    for given in documents:
        document = as_document(given)
        block.append(document)
        n_characters += len(document.text)
        if len(block) >= BLOCK_DOCUMENTS or n_characters >= MAX_BLOCK_CHARACTERS:
            yield block
            block, n_characters = [], 0
    if block:
        yield block


# -- step 1


def spool_of(folder: Path, config: BuildConfig) -> Spool:
    return Spool(folder / WORK / "spool", config.n_shards)


def encode_block(
    folder: Path, config: BuildConfig, encoder: Encoder, documents: Sequence[Document]
) -> tuple[BlockSummary, bool]:
    """Encodes a block into the spool; also whether it was there already."""
    latest = {document.id: document for document in documents}  # of documents with one id, the last is kept
    documents = list(latest.values())
    spool, key = spool_of(folder, config), block_key(config.block_settings, documents)
    if (known := spool.find(key)) is not None:
        return known, True
    chunker = chunker_for(encoder, None if config.chunking is None else Chunking.from_dict(dict(config.chunking)))
    spans = [split_document(chunker, document) for document in documents]
    texts = [
        passage_text(document, span.start, span.end)
        for document, passages in zip(documents, spans, strict=True)
        for span in passages
    ]
    return spool.write(key, EncodedBlock(documents, spans, encoder.encode_documents(texts))), False


# -- step 2


def fit_codebook(
    folder: Path, config: BuildConfig, blocks: Sequence[BlockSummary], *, n_threads: int = 1
) -> Path | None:
    """The file of the codec that all shards use, fitted on a sample of all blocks; None if the vectors stay as they
    are: there are few, or the model has none."""
    parts = [(block.key, shard, count) for block in blocks for shard, count in sorted(block.n_vectors.items()) if count]
    total = sum(count for _, _, count in parts)
    if config.spec.multi is None or config.spec.multi % 8 or total < MIN_ROWS:
        return None
    path = folder / WORK / f"codec-{_digest([part[:2] for part in parts], config.bits)}.npz"
    if path.is_file():
        return path
    # A query scores every centroid in every shard and reads postings of a shard, so the size of a shard counts.
    n_cells = cells_for(max(total // config.n_shards, MIN_ROWS))
    positions = sample_rows(total, sample_size(total, n_cells), seed=SEED)
    ends = np.cumsum([count for _, _, count in parts])
    spool, sample = spool_of(folder, config), []
    for (key, shard, count), end in zip(parts, ends.tolist(), strict=True):
        begin, stop = np.searchsorted(positions, [end - count, end])
        if stop > begin:
            sample.append(spool.vectors(key, shard, positions[begin:stop] - (end - count)))
    fitted = fit(np.concatenate(sample), bits=config.bits, n_cells=n_cells, n_threads=n_threads, seed=SEED)
    write_codec(path, fitted)
    return path


def write_codec(path: Path, fitted: FittedCodec) -> None:
    codec, book = fitted.codec, fitted.codec.codebook
    draft = path.with_suffix(".new")
    with storage_errors(path), draft.open("wb") as file:
        np.savez(
            file,
            allow_pickle=False,
            centroids=book.centroids,
            steps=codec.steps,
            lengths=codec.lengths,
            factors=codec.factors,
            numbers=np.asarray([codec.bits, book.scale, book.longest, fitted.error], np.float64),
        )
    draft.replace(path)


def read_codec(path: Path) -> FittedCodec:
    try:
        with np.load(path, allow_pickle=False) as stored:
            bits, scale, longest, error = stored["numbers"].tolist()
            book = Codebook(stored["centroids"], scale, longest)
            codec = ResidualCodec(book, int(bits), stored["steps"], stored["lengths"], stored["factors"])
            return FittedCodec(codec, None, error)
    except (OSError, ValueError, KeyError) as problem:
        raise CorruptIndexError(f"{path} cannot be read ({problem}); delete it and build again") from None


# -- step 3


def build_shard(
    folder: Path,
    config: BuildConfig,
    blocks: Sequence[BlockSummary],
    number: int,
    codec_file: Path | None,
    *,
    n_threads: int = 1,
) -> tuple[ShardRecord, bool]:
    """Builds one shard; also whether it was there already."""
    keys = [block.key for block in blocks if number in block.n_vectors]
    fitted = None if codec_file is None else read_codec(codec_file)
    codec = "" if fitted is None else codec_digest(fitted.codec)
    name = f"{number:04d}-{_digest(keys, codec, config.block_settings, config.language, dict(config.bounds))}"
    final, record_file = folder / SHARDS / name, folder / SHARDS / f"{name}.json"
    if final.is_dir() and record_file.is_file():
        return ShardRecord(**json.loads(record_file.read_bytes())), True
    # Names of their own: another attempt may still run on a node that was only cut off.
    draft = folder / SHARDS / f".{name}.{uuid4().hex[:8]}"
    with storage_errors(folder), tempfile.TemporaryDirectory(prefix="plait-shard-") as scratch:
        make_folders(folder / SHARDS)
        is_local = network_file_system(folder) is None  # SQLite cannot write to a network disk
        built = draft if is_local else Path(scratch) / "shard"
        try:
            _write_shard(built, folder, config, keys, number, fitted, n_threads)
            n_vectors = sum(block.n_vectors[number] for block in blocks if number in block.n_vectors)
            record = _record(built, config, number, f"{SHARDS}/{name}", n_vectors)
            if not is_local:
                shutil.copytree(built, draft)
            if not final.is_dir():
                draft.rename(final)
            record_draft = draft.with_suffix(".json")
            record_draft.write_text(json.dumps(asdict(record)), encoding="utf-8")
            record_draft.replace(record_file)
            sync_folder(final.parent)
        finally:
            shutil.rmtree(draft, ignore_errors=True)
    return record, False


def _record(path: Path, config: BuildConfig, number: int, uri: str, n_vectors: int) -> ShardRecord:
    with Store.open(path, read_only=True) as store:
        facts = info(store)
    return ShardRecord(
        uri=uri,
        first_hash=even_starts(config.n_shards)[number],
        n_documents=facts.documents,
        n_passages=facts.passages,
        n_vectors=n_vectors,
        n_bytes=sum(file.stat().st_size for file in path.rglob("*") if file.is_file()),
    )


def _write_shard(
    path: Path,
    folder: Path,
    config: BuildConfig,
    keys: Sequence[str],
    number: int,
    fitted: FittedCodec | None,
    n_threads: int,
) -> None:
    spool = spool_of(folder, config)
    properties: dict[str, Any] = {} if config.model is None else {"model": config.model}
    if config.exclude_from_hybrid:
        properties[EXCLUDE_FROM_HYBRID] = list(config.exclude_from_hybrid)
    chunking = None if config.chunking is None else Chunking.from_dict(dict(config.chunking))
    created = Store.create(
        path,
        fingerprint=config.fingerprint,
        spec=config.spec,
        properties=properties,
        language=config.language,
        chunking=chunking,
    )
    with created as store, store.writer() as writer:
        for key in keys:
            block = spool.read(key, number)
            writer.write(block.documents, block.spans, block.embeddings)
        writer.compact(codec=fitted, n_threads=n_threads)
        writer.save_calibration(_calibration(config))


def _calibration(config: BuildConfig) -> Calibration:
    """Bounds depend on the model alone. What unrelated queries score is measured on the collection."""
    return Calibration(
        bounds={kind: pair for kind, pair in config.bounds.items() if kind in config.spec.sizes()},
        weights={},
        unrelated_mean=None,
        unrelated_deviation=None,
        n_queries=0,
        n_documents=0,
        date=datetime.now(UTC).date().isoformat(),
    )


# -- step 4


def finish(
    folder: Path,
    config: BuildConfig,
    shards: Sequence[ShardRecord],
    codec_file: Path | None,
    encoder: Encoder,
) -> Manifest:
    """Measures what scores mean and publishes the collection. If it is the one that is published already, nothing
    changes."""
    manifest = Manifest(
        fingerprint=config.fingerprint,
        model=config.model,
        spec=config.spec,
        shards=tuple(shards),
        language=config.language,
        exclude_from_hybrid=tuple(config.exclude_from_hybrid),
        codebook=None if codec_file is None else codec_digest(read_codec(codec_file).codec),
        calibration=_calibration(config),
        properties={} if config.chunking is None else {"chunking": dict(config.chunking)},
    )
    if network_file_system(folder) is None:  # otherwise every shard would be copied here to be searched
        manifest = calibrated(folder, manifest, encoder)
    lock = WriterLock(folder / LOCK, timeout=LOCK_SECONDS)
    try:
        if (folder / MANIFEST).exists():
            known = read_manifest(folder)
            if [shard.uri for shard in known.shards] == [shard.uri for shard in shards]:
                return known
            manifest = replace(manifest, generation=known.generation + 1)
        published = publish(folder, manifest)
    finally:
        lock.release()
    for leftover in (folder / SHARDS).glob(".*"):  # of builds that were killed
        shutil.rmtree(leftover, ignore_errors=True)
    return published


def build_locally(
    documents: Iterable[Document | Mapping[str, Any]],
    encoder: Encoder,
    folder: Path,
    config: BuildConfig,
    *,
    n_threads: int = 1,
) -> BuildReport:
    """All steps in this process, one after the other."""
    check_target(folder)
    blocks, n_reused = [], 0
    for block in blocks_of(documents):
        summary, is_known = encode_block(folder, config, encoder, block)
        blocks.append(summary)
        n_reused += is_known
    if not blocks:
        raise SourceError("the source has no documents; nothing was built")
    codec_file = fit_codebook(folder, config, blocks, n_threads=n_threads)
    shards, n_known = [], 0
    for number in range(config.n_shards):
        record, is_known = build_shard(folder, config, blocks, number, codec_file, n_threads=n_threads)
        shards.append(record)
        n_known += is_known
    manifest = finish(folder, config, shards, codec_file, encoder)
    return BuildReport(manifest=manifest, n_blocks=len(blocks), n_blocks_reused=n_reused, n_shards_reused=n_known)


def check_target(folder: Path) -> None:
    """Raises ConfigError for a folder that is something else than a collection or an unfinished build."""
    if not folder.exists():
        return
    others = sorted(entry.name for entry in folder.iterdir() if entry.name not in {MANIFEST, DRAFT, LOCK, SHARDS, WORK})
    if others:
        raise ConfigError(f"{folder} has other files ({', '.join(others[:3])}); choose another folder")


def _digest(*facts: Any) -> str:
    return hashlib.blake2b(json.dumps(facts, sort_keys=True).encode(), digest_size=8).hexdigest()

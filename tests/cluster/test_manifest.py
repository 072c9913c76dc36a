"""`cluster.json` is published whole or not at all, and what is wrong with it is said."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

import plait
from cluster.collections import config_for, make_documents, make_encoder
from encoders import WordEncoder
from plait.cluster.build import build_locally
from plait.cluster.hashing import even_starts, hash_id, owned, owner
from plait.cluster.manifest import MANIFEST, Manifest, ShardRecord, from_json, publish, read_manifest, to_json
from plait.cluster.sharded_index import open_cluster
from plait.encode.protocol import EmbeddingSpec
from plait.errors import ConfigError, CorruptIndexError, EncoderMismatchError, NewerFormatError, NotAnIndexError
from plait.storage.store import Store


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A collection of two shards."""
    encoder = make_encoder()
    build_locally(make_documents(40), encoder, tmp_path / "collection", config_for(encoder, n_shards=2))
    return tmp_path / "collection"


def test_a_manifest_is_read_as_it_was_published(folder: Path) -> None:
    manifest = read_manifest(folder)
    assert from_json(folder / MANIFEST, to_json(manifest).encode()) == manifest
    assert (manifest.generation, manifest.n_documents, len(manifest.shards)) == (1, 40, 2)
    assert manifest.codebook is not None
    assert manifest.calibration is not None


def test_each_shard_is_an_ordinary_index(folder: Path) -> None:
    manifest = read_manifest(folder)
    for number, record in enumerate(manifest.shards):
        with plait.open(manifest.shard_path(folder, number), encoder=make_encoder(), read_only=True) as index:
            assert len(index) == record.n_documents > 0
            assert index.search("balor", 3)


@pytest.mark.parametrize("cut", [0, 1, 40, 400, -2])
def test_a_damaged_manifest_is_an_error(folder: Path, cut: int) -> None:
    data = (folder / MANIFEST).read_bytes()
    (folder / MANIFEST).write_bytes(data[:cut])
    with pytest.raises(CorruptIndexError, match="is damaged"):
        read_manifest(folder)


def test_a_changed_value_is_noticed(folder: Path) -> None:
    body = json.loads((folder / MANIFEST).read_text())
    body["shards"][0]["n_documents"] += 1
    (folder / MANIFEST).write_text(json.dumps(body))
    with pytest.raises(CorruptIndexError, match="checksum"):
        open_cluster(folder, encoder=make_encoder())


def test_a_newer_format_and_no_collection_are_errors(folder: Path, tmp_path: Path) -> None:
    body = json.loads((folder / MANIFEST).read_text())
    (folder / MANIFEST).write_text(json.dumps({**body, "format": 2}))
    with pytest.raises(NewerFormatError, match="format 2"):
        read_manifest(folder)
    with pytest.raises(NotAnIndexError, match="there is no such folder"):
        read_manifest(tmp_path / "nowhere")
    with pytest.raises(NotAnIndexError, match=r"it has no cluster\.json"):
        open_cluster(tmp_path)


def test_a_missing_shard_is_an_error_for_readers_and_for_publishing(folder: Path) -> None:
    manifest = read_manifest(folder)
    shutil.rmtree(manifest.shard_path(folder, 1))
    with pytest.raises(NotAnIndexError, match="shard 1 is missing"):
        open_cluster(folder, encoder=make_encoder())
    before = (folder / MANIFEST).read_bytes()
    with pytest.raises(NotAnIndexError, match="shard 1 is missing"):
        publish(folder, manifest.next_generation())
    assert (folder / MANIFEST).read_bytes() == before


def test_the_manifest_and_the_shards_of_another_model_are_errors(folder: Path) -> None:
    with pytest.raises(EncoderMismatchError, match="words-24"):
        open_cluster(folder, encoder=WordEncoder(dim=24))
    manifest = read_manifest(folder)
    shutil.rmtree(manifest.shard_path(folder, 0))
    spec = EmbeddingSpec(dense=16, sparse=300, multi=16)
    Store.create(manifest.shard_path(folder, 0), fingerprint="another", spec=spec, properties={}).close()
    with pytest.raises(EncoderMismatchError, match=r"shard 0 .* was built with encoder 'another'"):
        open_cluster(folder, encoder=make_encoder())


def test_a_shard_with_another_codec_is_an_error(folder: Path) -> None:
    path = read_manifest(folder).shard_path(folder, 0)
    with plait.open(path, encoder=make_encoder()) as index:
        index.compact(bits=2)
    with pytest.raises(CorruptIndexError, match="shard 0 has another codec"):
        open_cluster(folder, encoder=make_encoder())


def test_an_older_generation_does_not_replace_a_newer_one(folder: Path) -> None:
    manifest = read_manifest(folder)
    newer = publish(folder, manifest.next_generation())
    assert newer.generation == 2
    with pytest.raises(ConfigError, match="already has generation 2"):
        publish(folder, manifest.next_generation())


def test_a_crash_before_the_rename_leaves_the_old_manifest(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = read_manifest(folder)

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", fail)
    with pytest.raises(plait.StoreError, match="No space left"):
        publish(folder, before.next_generation())
    assert read_manifest(folder) == before


def test_ranges_of_hashes_must_cover_all() -> None:
    record = ShardRecord(uri="a", first_hash=0, n_documents=0, n_passages=0)
    for shards in ([], [replace(record, first_hash=5)], [record, record]):
        with pytest.raises(ConfigError, match="ascending ranges"):
            Manifest(fingerprint="x", model=None, spec=EmbeddingSpec(), shards=shards)


def test_ids_are_spread_evenly_and_stay_where_they_are() -> None:
    assert hash_id("doc-1") == 0x56F47A285F34F541  # for ever: it says where documents of old collections are
    ids = [f"doc-{number}" for number in range(3000)]
    sizes = [len(part) for part in owned(even_starts(6), ids).values()]
    assert len(sizes) == 6
    assert max(sizes) < 1.2 * min(sizes)
    halves = [owner(even_starts(12), id) // 2 for id in ids]  # a range that is split stays where it was
    assert halves == [owner(even_starts(6), id) for id in ids]

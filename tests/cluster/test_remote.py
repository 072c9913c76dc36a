"""Collections in an object store and on a network file system: copied whole, the manifest last."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import pytest

from cluster.collections import config_for, make_documents, make_encoder
from plait.cluster import build, remote
from plait.cluster.build import build_locally
from plait.cluster.manifest import MANIFEST, read_manifest
from plait.cluster.remote import local_copy, pull, pull_manifest, pull_shard, push
from plait.cluster.sharded_index import open_cluster
from plait.errors import ConfigError, CorruptIndexError, NotAnIndexError, StoreError

URI = "memory://bucket/big"


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    encoder = make_encoder()
    build_locally(make_documents(40), encoder, tmp_path / "big", config_for(encoder, 2))
    yield tmp_path / "big"
    fsspec.filesystem("memory").store.clear()


def test_a_collection_comes_back_from_an_object_store(folder: Path, tmp_path: Path) -> None:
    assert push(folder, URI) == 2
    assert push(folder, URI) == 0
    assert pull(URI, tmp_path / "copy") == read_manifest(folder)
    with (
        open_cluster(folder, encoder=make_encoder()) as one,
        open_cluster(tmp_path / "copy", encoder=make_encoder()) as other,
    ):
        assert [hit.id for hit in one.search("balor", 10)] == [hit.id for hit in other.search("balor", 10)]


def test_the_manifest_goes_last(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = fsspec.filesystem("memory")
    real, calls = files.put_file, list[str]()

    def fail_late(source: str, target: str, **options: Any) -> None:
        calls.append(target)
        if len(calls) == 4:
            raise OSError(28, "No space left on device")
        real(source, target, **options)

    monkeypatch.setattr(type(files), "put_file", lambda _, *args, **options: fail_late(*args, **options))
    with pytest.raises(OSError, match="No space left"):
        push(folder, URI)
    with pytest.raises(NotAnIndexError, match="there is no collection at"):
        pull_manifest(URI, folder.parent / "copy")


def test_a_missing_shard_and_a_damaged_manifest_are_errors(folder: Path, tmp_path: Path) -> None:
    push(folder, URI)
    files = fsspec.filesystem("memory")
    shard = read_manifest(folder).shards[1].uri
    files.rm(f"/bucket/big/{shard}", recursive=True)
    with pytest.raises(NotAnIndexError, match="is missing; push"):
        pull(URI, tmp_path / "copy")
    assert not (tmp_path / "copy" / MANIFEST).exists()
    files.pipe_file(f"/bucket/big/{MANIFEST}", b"{}")
    with pytest.raises(CorruptIndexError, match="damaged"):
        pull_manifest(URI, tmp_path / "other")
    with pytest.raises(ConfigError, match="cannot be reached"):
        push(folder, "nosuch://bucket")


def test_a_shard_is_copied_once(folder: Path, tmp_path: Path) -> None:
    push(folder, URI)
    shard = read_manifest(folder).shards[0].uri
    path = pull_shard(URI, shard, tmp_path / "node" / "shard")
    (path / "mark").write_text("")
    assert pull_shard(URI, shard, path) == path
    assert (path / "mark").exists()


def test_shards_of_a_network_disk_are_built_and_opened_on_a_local_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = tmp_path / "shared"

    def kind(path: Path) -> str | None:
        return "nfs4" if path.is_relative_to(shared) else None

    for module in (remote, build):
        monkeypatch.setattr(module, "network_file_system", kind)
    monkeypatch.setattr("plait.storage.network.network_file_system", kind)
    monkeypatch.setattr(remote, "CACHE", tmp_path / "cache")
    encoder, documents = make_encoder(), make_documents(40)
    build_locally(documents, encoder, shared / "big", config_for(encoder, 2))
    with open_cluster(shared / "big", encoder=encoder, read_only=False) as opened:
        assert len(opened.search("balor", 50, mode="dense")) == 40
        with pytest.raises(StoreError, match="network file system \\(nfs4\\)"):
            opened.delete(["doc-1"])
    copies = list((tmp_path / "cache").glob("*/*"))
    assert len(copies) == 2
    path = read_manifest(shared / "big").shard_path(shared / "big", 0)
    assert local_copy(path) in copies
    shutil.rmtree(path)  # the copy is enough for a reader that has it
    assert local_copy(path).is_dir()

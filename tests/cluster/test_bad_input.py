"""What is wrong with a collection or a disk is said, and nothing is left half-done. tests/cluster/on_ray has the same
on nodes: a full disk, a link that is cut."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import fsspec
import pytest
from typer.testing import CliRunner

from cluster.collections import config_for, make_documents, make_encoder
from plait.cli.app import app
from plait.cluster import build
from plait.cluster.build import BuildConfig, build_locally
from plait.cluster.manifest import MANIFEST, read_manifest
from plait.cluster.remote import pull_shard, push
from plait.cluster.sharded_index import open_cluster
from plait.encode.load import LazyEncoder
from plait.errors import StoreError
from plait.records import Document

URI = "memory://full/big"
runner = CliRunner()


@pytest.fixture
def collection(tmp_path: Path) -> Path:
    """Of the bundled model, which commands load by themselves."""
    source = LazyEncoder(None, None, precision=None, n_threads=1)
    documents = [Document(f"d{number}", f"a loom of {number} threads") for number in range(8)]
    build_locally(documents, source.get(), tmp_path / "big", BuildConfig.of(source, n_shards=2))
    return tmp_path / "big"


def commands(collection: Path) -> list[list[str]]:
    return [["search", str(collection), "loom"], ["serve", str(collection)], ["push", str(collection), URI]]


def test_a_missing_shard_is_named_by_every_command(collection: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", ModuleType("ray"))  # serve checks the collection before it starts Ray
    shutil.rmtree(read_manifest(collection).shard_path(collection, 1))
    for command in commands(collection):
        result = runner.invoke(app, ["cluster", *command])
        assert result.exit_code == 2, command
        assert "shard 1 is missing" in result.stderr
    assert not fsspec.filesystem("memory").exists("/full/big")


def test_another_model_is_refused(collection: Path) -> None:
    result = runner.invoke(app, ["cluster", "search", str(collection), "loom", "--model", "plait-gte-small"])
    assert result.exit_code == 2
    assert "was built with" in result.stderr


def test_a_disk_that_is_full_while_a_shard_is_built_leaves_no_shard(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoder, documents = make_encoder(), make_documents(40)
    write = build._write_shard

    def fail(path: Path, folder: Path, config: BuildConfig, keys: Any, number: int, *more: Any) -> None:
        write(path, folder, config, keys, number, *more)
        if number == 1:
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(build, "_write_shard", fail)
    with pytest.raises(StoreError, match="No space left"):
        build_locally(documents, encoder, tmp_path / "c", config_for(encoder, 3))
    assert not (tmp_path / "c" / MANIFEST).exists()
    assert [path.name[:4] for path in sorted((tmp_path / "c" / "shards").iterdir())] == [
        "0000",
        "0000",
    ]  # and its record
    monkeypatch.setattr(build, "_write_shard", write)
    report = build_locally(documents, encoder, tmp_path / "c", config_for(encoder, 3))
    assert (report.n_blocks_reused, report.n_shards_reused) == (1, 1)
    with open_cluster(tmp_path / "c", encoder=encoder) as opened:
        assert len(opened) == 40


def test_a_disk_that_is_full_while_a_replica_copies_its_shard_leaves_no_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoder = make_encoder()
    build_locally(make_documents(40), encoder, tmp_path / "c", config_for(encoder, 2))
    push(tmp_path / "c", URI)
    files, shard = fsspec.filesystem("memory"), read_manifest(tmp_path / "c").shards[0].uri
    real, copied = type(files).get_file, list[str]()

    def fail_late(self: Any, source: str, target: str, **options: Any) -> None:
        copied.append(source)
        if len(copied) == 2:
            raise OSError(28, "No space left on device")
        real(self, source, target, **options)

    monkeypatch.setattr(type(files), "get_file", fail_late)
    to = tmp_path / "node" / shard
    with pytest.raises(StoreError, match="No space left"):
        pull_shard(URI, shard, to)
    assert not to.exists()
    assert list(to.parent.iterdir()) == []
    monkeypatch.setattr(type(files), "get_file", real)
    assert pull_shard(URI, shard, to) == to
    files.store.clear()

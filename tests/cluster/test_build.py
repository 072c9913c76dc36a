"""A build that is started again does only what is missing."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import plait
from cluster.collections import config_for, make_documents, make_encoder
from plait.cluster import build
from plait.cluster.build import build_locally, encode_block, read_codec
from plait.cluster.manifest import MANIFEST, read_manifest
from plait.cluster.sharded_index import open_cluster
from plait.cluster.spool import Spool
from plait.errors import ConfigError, CorruptIndexError, ReadOnlyError, SourceError


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "BLOCK_DOCUMENTS", 16)


def test_a_second_build_encodes_and_builds_nothing(tmp_path: Path) -> None:
    documents, encoder = make_documents(60), make_encoder()
    first = build_locally(documents, encoder, tmp_path / "c", config_for(encoder, 3))
    assert (first.n_blocks, first.n_blocks_reused, first.n_shards_reused) == (4, 0, 0)
    before, n_encoded = (tmp_path / "c" / MANIFEST).read_bytes(), encoder.n_encoded
    second = build_locally(documents, encoder, tmp_path / "c", config_for(encoder, 3))
    assert (second.n_blocks_reused, second.n_shards_reused) == (4, 3)
    assert encoder.n_encoded == n_encoded
    assert (tmp_path / "c" / MANIFEST).read_bytes() == before


def test_after_a_crash_only_what_is_missing_is_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    documents, encoder = make_documents(60), make_encoder()
    config = config_for(encoder, 3)
    with monkeypatch.context() as patch:
        real, calls = build.build_shard, []

        def crash(*args: object, **options: object) -> object:
            calls.append(args)
            if len(calls) == 2:
                raise KeyboardInterrupt
            return real(*args, **options)  # type: ignore[arg-type]

        patch.setattr(build, "build_shard", crash)
        with pytest.raises(KeyboardInterrupt):
            build_locally(documents, encoder, tmp_path / "c", config)
    assert not (tmp_path / "c" / MANIFEST).exists()
    shutil.rmtree(next((tmp_path / "c" / "build" / "spool").iterdir()))  # a block that was not finished
    n_encoded = encoder.n_encoded
    report = build_locally(documents, encoder, tmp_path / "c", config)
    assert (report.n_blocks_reused, report.n_shards_reused) == (3, 1)
    assert 0 < encoder.n_encoded - n_encoded < 60
    with open_cluster(tmp_path / "c", encoder=encoder) as sharded:
        assert sharded.get([document.id for document in documents]) == documents


def test_changed_documents_make_a_new_generation(tmp_path: Path) -> None:
    documents, encoder = make_documents(60), make_encoder()
    build_locally(documents, encoder, tmp_path / "c", config_for(encoder, 3))
    report = build_locally(documents[:50], encoder, tmp_path / "c", config_for(encoder, 3))
    assert report.manifest.generation == 2
    assert report.n_blocks_reused == 3
    with open_cluster(tmp_path / "c", encoder=encoder) as sharded:
        assert len(sharded) == 50


def test_the_last_document_of_an_id_is_kept(tmp_path: Path) -> None:
    documents, encoder = make_documents(40), make_encoder()
    again = plait.Document("doc-1", "entirely new")
    build_locally([*documents, again], encoder, tmp_path / "c", config_for(encoder, 2))
    with open_cluster(tmp_path / "c", encoder=encoder) as sharded:
        assert len(sharded) == 40
        assert sharded.get(["doc-1"]) == [again]


def test_a_block_comes_back_from_the_spool_as_it_was(tmp_path: Path) -> None:
    encoder, config = make_encoder(), config_for(make_encoder(), 1)
    document = plait.Document("x", "balor bemant", "title", {"a": [1, None, "é"]})
    summary, is_known = encode_block(tmp_path, config, encoder, [document])
    assert not is_known
    assert encode_block(tmp_path, config, encoder, [document]) == (summary, True)
    block = Spool(tmp_path / "build" / "spool", 1).read(summary.key, 0)
    assert list(block.documents) == [document]
    wanted = encoder.encode_documents(["title\nbalor bemant"])
    assert block.embeddings.multi is not None
    assert wanted.multi is not None
    assert block.embeddings.multi.values.shape == wanted.multi.values.shape
    (tmp_path / "build" / "spool" / summary.key / "0.npz").write_bytes(b"PK\x03\x04 damaged")
    with pytest.raises(CorruptIndexError, match="cannot be read"):
        Spool(tmp_path / "build" / "spool", 1).read(summary.key, 0)


def test_other_files_and_no_documents_are_errors(tmp_path: Path) -> None:
    encoder = make_encoder()
    with pytest.raises(SourceError, match="no documents"):
        build_locally([], encoder, tmp_path / "empty", config_for(encoder, 2))
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "todo.txt").write_text("x")
    with pytest.raises(ConfigError, match=r"other files \(todo.txt\)"):
        build_locally(make_documents(5), encoder, tmp_path / "notes", config_for(encoder, 2))
    with pytest.raises(ConfigError, match="shards"):
        config_for(encoder, 0)


def test_few_vectors_stay_uncompressed(tmp_path: Path) -> None:
    encoder = make_encoder()
    documents = [plait.Document(str(number), "balor bemant") for number in range(8)]
    report = build_locally(documents, encoder, tmp_path / "c", config_for(encoder, 3))
    assert report.manifest.codebook is None
    with open_cluster(tmp_path / "c", encoder=encoder) as sharded:
        assert len(sharded.search("balor", 20)) == 8


def test_writes_go_to_the_owner_and_are_found_at_once(tmp_path: Path) -> None:
    documents, encoder = make_documents(60), make_encoder()
    build_locally(documents, encoder, tmp_path / "c", config_for(encoder, 3))
    with open_cluster(tmp_path / "c", encoder=encoder, read_only=False) as sharded:
        new = [plait.Document(f"new-{number}", f"zebra stripes {number}") for number in range(6)]
        assert sharded.add(new).added == 6
        assert {hit.id for hit in sharded.search("zebra", 10, mode="bm25")} == {document.id for document in new}
        assert sharded.delete(["new-0", "doc-3", "absent"]) == 2
        assert len(sharded) == 64
        before = sharded.search("balor zebra", 10)
        sharded.compact()
        assert sharded.manifest == read_manifest(tmp_path / "c")
        assert (sharded.manifest.generation, sharded.manifest.n_documents) == (2, 64)
        after = sharded.search("balor zebra", 10)
    assert [hit.id for hit in after][:3] == [hit.id for hit in before][:3]
    with (
        open_cluster(tmp_path / "c", encoder=encoder) as sharded,
        pytest.raises(ReadOnlyError, match="read_only=False"),
    ):
        sharded.delete(["doc-1"])


def test_a_codec_comes_back_from_its_file(tmp_path: Path) -> None:
    encoder = make_encoder()
    build_locally(make_documents(60), encoder, tmp_path / "c", config_for(encoder, 2))
    (path,) = (tmp_path / "c" / "build").glob("codec-*.npz")
    codec = read_codec(path).codec
    assert codec.bits == 4
    assert np.isfinite(codec.steps).all()
    path.write_bytes(b"x")
    with pytest.raises(CorruptIndexError, match="cannot be read"):
        read_codec(path)


def test_a_split_shard_gives_the_same_answers_without_encoding(tmp_path: Path) -> None:
    documents, encoder = make_documents(90), make_encoder()
    build_locally(documents, encoder, tmp_path / "c", config_for(encoder, 2))
    with (
        open_cluster(tmp_path / "c", encoder=encoder, read_only=False) as sharded,
        open_cluster(tmp_path / "c", encoder=encoder, read_only=False) as other,
    ):
        queries = ["balor bemant", "unique7", "doc-3"]
        before, n_encoded = sharded.search_many(queries, 10), encoder.n_encoded
        manifest = sharded.split(1)
        assert (manifest.generation, len(manifest.shards), manifest.n_documents) == (2, 3, 90)
        assert encoder.n_encoded == n_encoded
        assert sharded.get([document.id for document in documents]) == documents
        for hits, wanted in zip(sharded.search_many(queries, 10), before, strict=True):
            scores = [hit.score for hit in wanted]
            assert [hit.score for hit in hits] == pytest.approx(scores, rel=1e-5)
        # Another reader still sees the old shards; before it writes, it changes over.
        assert [hit.id for hit in other.search("unique7", 1)] == ["doc-7"]
        other.add([plait.Document(f"late-{number}", "zebra") for number in range(12)])
        assert other.manifest.generation == 2
        sharded.refresh()
        assert len(sharded.search("zebra", 20, mode="bm25")) == 12
        assert sum(shard.n_documents for shard in read_manifest(tmp_path / "c").shards) == 90
        with pytest.raises(ConfigError, match="there is no shard 7"):
            sharded.split(7)
    with open_cluster(tmp_path / "c", encoder=encoder) as again:
        assert len(again) == 102


KILLED = """
import os, signal
from pathlib import Path
from cluster.collections import config_for, make_documents, make_encoder
from plait.cluster import build

build.BLOCK_DOCUMENTS = 16
write = build._write_shard


def die(path, folder, config, keys, number, *more):
    write(path, folder, config, keys, number, *more)
    if number == 1:
        os.kill(os.getpid(), signal.SIGKILL)


build._write_shard = die
encoder = make_encoder()
build.build_locally(make_documents(60), encoder, Path({folder!r}), config_for(encoder, 3))
"""


def test_a_driver_that_is_killed_leaves_nothing_half_published(tmp_path: Path) -> None:
    folder = tmp_path / "c"
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    script = KILLED.format(folder=str(folder))
    killed = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, check=False)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert not (folder / MANIFEST).exists()
    documents, encoder = make_documents(60), make_encoder()
    report = build_locally(documents, encoder, folder, config_for(encoder, 3))
    assert (report.n_blocks_reused, report.n_shards_reused) == (4, 1)
    assert not list((folder / "shards").glob(".*"))
    with open_cluster(folder, encoder=encoder) as sharded:
        assert sharded.get([document.id for document in documents]) == documents


def test_a_full_disk_is_an_error_and_leaves_no_block(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    encoder = make_encoder()
    monkeypatch.setattr(np, "savez", fail)
    with pytest.raises(plait.StoreError, match="No space left"):
        encode_block(tmp_path, config_for(encoder, 2), encoder, make_documents(5))
    assert list((tmp_path / "build" / "spool").iterdir()) == []

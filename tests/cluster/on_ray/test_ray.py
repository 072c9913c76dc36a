"""On three simulated nodes: a node killed during the build and during serving loses no document and no answer."""

from __future__ import annotations

import json
import shutil
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import plait
from plait.cluster.build import WORK, BuildConfig, read_codec
from plait.cluster.manifest import read_manifest
from plait.cluster.ray_build import Workers, build_on_ray
from plait.cluster.ray_runtime import import_ray
from plait.cluster.ray_serving import Replicas, ServedShards
from plait.cluster.sharded_index import ShardedIndex, open_cluster
from plait.cluster.spool import Spool
from plait.encode.load import LazyEncoder
from plait.errors import SourceError
from plait.readers.sources import Sources
from plait.searcher import SearchRequest
from plait.storage.store import EXCLUDE_FROM_HYBRID, Store

N_DOCUMENTS, N_SHARDS = 240, 6
QUERIES = ["red wool from the north", "how is silk dyed", "weaver 17"]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """Three nodes. The first has the driver and the control of Ray; it is not killed."""
    ray = import_ray()
    from ray.cluster_utils import Cluster

    made = Cluster(
        initialize_head=True,
        head_node_args={"num_cpus": 2, "object_store_memory": 100_000_000, "include_dashboard": False},
    )
    made.workers = [made.add_node(num_cpus=2, object_store_memory=100_000_000) for _ in range(2)]
    ray.init(address=made.address, log_to_driver=False, logging_level="error")
    yield made
    from ray import serve

    serve.shutdown()
    ray.shutdown()
    made.shutdown()


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rng = np.random.default_rng(0)
    words = "red blue wool silk linen dyed woven from the north south weaver market how is cloth old new"
    path = tmp_path_factory.mktemp("corpus") / "corpus.jsonl"
    with path.open("w") as file:
        for number in range(N_DOCUMENTS):
            text = " ".join([*rng.choice(words.split(), int(rng.integers(10, 60))), f"weaver {number}"])
            file.write(json.dumps({"id": f"d{number}", "text": text, "year": 1990 + number % 30}) + "\n")
    return path


@pytest.fixture(scope="module")
def collection(cluster: Any, corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built while one node is killed without grace."""
    folder = tmp_path_factory.mktemp("built") / "collection"
    source = LazyEncoder(None, None, precision=None, n_threads=1)
    config = BuildConfig.of(source, n_shards=N_SHARDS, bits=4)
    report: list[Any] = []

    def run() -> None:
        workers = Workers(n_encoders=3, cpus=1.0)
        given = Sources([corpus])
        report.append(
            build_on_ray(given, folder, config, model=None, encoder=source.get(), workers=workers, part_bytes=4000)
        )

    building = threading.Thread(target=run)
    building.start()
    end = time.monotonic() + 240
    while len(list((folder / WORK / "spool").glob("[!.]*"))) < 3:
        assert time.monotonic() < end
        assert building.is_alive() or report
        time.sleep(0.1)
    was_running = building.is_alive()
    cluster.remove_node(cluster.workers.pop(), allow_graceful=False)
    print(f"a node was killed; the build was running: {was_running}")
    building.join(400)
    assert report
    assert was_running
    cluster.workers.append(cluster.add_node(num_cpus=2, object_store_memory=100_000_000))
    assert report[0].manifest.n_documents == N_DOCUMENTS
    return folder


def same_index(collection: Path, folder: Path) -> Path:
    """One index of the same embeddings with the same codec, in the order of the shards. The embeddings come from the
    spool: those of an int8 model depend a little on the batch that a text is encoded in."""
    manifest, spool = read_manifest(collection), Spool(collection / WORK / "spool", N_SHARDS)
    properties = {EXCLUDE_FROM_HYBRID: list(manifest.exclude_from_hybrid)}
    store = Store.create(folder / "one", fingerprint=manifest.fingerprint, spec=manifest.spec, properties=properties)
    keys = [path.name for path in (collection / WORK / "spool").glob("[!.]*")]
    (codec_file,) = (collection / WORK).glob("codec-*.npz")
    with store, store.writer() as writer:
        for shard in range(N_SHARDS):
            files = [key for key in keys if (collection / WORK / "spool" / key / f"{shard}.npz").exists()]
            blocks = [spool.read(key, shard) for key in files]
            for block in sorted(blocks, key=lambda block: int(block.documents[0].id[1:])):
                writer.write(block.documents, block.spans, block.embeddings)
        writer.compact(codec=read_codec(codec_file))
        writer.save_calibration(manifest.calibration)
    return folder / "one"


def test_a_build_that_lost_a_node_gives_the_hits_of_one_index(collection: Path, tmp_path: Path) -> None:
    with open_cluster(collection) as sharded, plait.open(same_index(collection, tmp_path)) as index:
        for mode in ("hybrid", "dense", "sparse", "multi", "bm25"):
            for query in QUERIES:
                for filter in (None, "year >= 2005"):
                    hits = sharded.search(query, 10, mode=mode, filter=filter)
                    wanted = index.search(query, 10, mode=mode, filter=filter)
                    assert [hit.score for hit in hits] == pytest.approx([hit.score for hit in wanted], rel=1e-5)


def test_a_second_build_repeats_nothing(cluster: Any, collection: Path, corpus: Path) -> None:
    del cluster
    source = LazyEncoder(None, None, precision=None, n_threads=1)
    config = BuildConfig.of(source, n_shards=N_SHARDS, bits=4)
    report = build_on_ray(
        Sources([corpus]), collection, config, model=None, encoder=source.get(), part_bytes=4000, workers=Workers()
    )
    assert report.n_blocks == report.n_blocks_reused > 3
    assert report.n_shards_reused == N_SHARDS
    assert report.manifest.generation == 1


def test_the_error_of_a_worker_is_that_of_the_source(cluster: Any, tmp_path: Path) -> None:
    del cluster
    (tmp_path / "bad.jsonl").write_text('{"id": "a", "text": "x"}\n{"id": 3\n')
    source = LazyEncoder(None, None, precision=None, n_threads=1)
    config = BuildConfig.of(source, n_shards=2)
    with pytest.raises(SourceError, match=r"bad\.jsonl"):
        build_on_ray(Sources([tmp_path / "bad.jsonl"]), tmp_path / "c", config, model=None, encoder=source.get())
    assert not (tmp_path / "c" / "cluster.json").exists()  # nothing is half-published


def test_a_node_killed_while_serving_loses_no_answer(cluster: Any, collection: Path) -> None:
    manifest = read_manifest(collection)
    replicas = Replicas(n_replicas=2, cpus=0.1, timeout=20.0)
    served = ServedShards(collection, manifest, "test", replicas)
    source = LazyEncoder(None, None, precision=None, n_threads=1)
    source.bind(collection, fingerprint=manifest.fingerprint, model=manifest.model)
    index = ShardedIndex(collection, manifest, source, served.fan_out, partial=True)
    with open_cluster(collection) as local:
        wanted = {query: [(hit.id, hit.score) for hit in local.search(query, 5)] for query in QUERIES}
    seconds, partial_at = list[float](), list[float]()
    partial, killed_at = 0, None
    begin = time.monotonic()
    while time.monotonic() - begin < 25:
        if killed_at is None and len(seconds) >= 20:
            cluster.remove_node(cluster.workers.pop(), allow_graceful=False)
            killed_at = time.monotonic()
        query = QUERIES[len(seconds) % len(QUERIES)]
        start = time.monotonic()
        answer = index.answer([query], SearchRequest(k=5))
        seconds.append(time.monotonic() - start)
        if answer.missing_shards:
            partial += 1
            partial_at.append(time.monotonic() - (killed_at or start))
        else:
            assert [hit.id for hit in answer.hits[0]] == [id for id, _ in wanted[query]]
            scores = [score for _, score in wanted[query]]
            assert [hit.score for hit in answer.hits[0]] == pytest.approx(scores, rel=1e-5)
    assert killed_at is not None
    print(
        f"{len(seconds)} searches, {partial} partial (until {max(partial_at, default=0.0):.1f} s after the kill), "
        f"slowest {max(seconds):.2f} s, median {np.median(seconds) * 1e3:.0f} ms, "
        f"{served.fan_out.n_hedged} hedged, {served.fan_out.n_lost} lost requests sent again"
    )
    assert len(seconds) > 30
    served.close()


def test_a_shard_split_while_serving_fails_no_request(cluster: Any, collection: Path, tmp_path: Path) -> None:
    """Through HTTP: a writer adds documents all the time, a shard is split, and the server changes over to the new
    generation. Every document that was acknowledged is found in the end."""
    from fastapi.testclient import TestClient

    from plait.cluster.runtime import ClusterRuntime
    from plait.serve.app import create_app
    from plait.serve.config import ServeConfig

    del cluster
    folder = tmp_path / "copy"
    shutil.copytree(collection, folder)
    config = ServeConfig(mcp=False, page=False)
    replicas = Replicas(n_replicas=1, cpus=0.05, timeout=20.0)
    runtime = ClusterRuntime(config, folder, "split", replicas=replicas, read_only=False)
    statuses, warnings, acknowledged, is_over = list[int](), list[str](), list[str](), threading.Event()
    with TestClient(create_app(config, runtime), base_url="http://127.0.0.1:8765") as client:

        def ask() -> None:
            while not is_over.is_set():
                answer = client.post("/v1/indexes/split/search", json={"query": QUERIES[0], "k": 3})
                statuses.append(answer.status_code)
                warnings.extend(answer.json().get("warnings", ()))

        def write() -> None:
            with open_cluster(folder, read_only=False) as other:
                while not is_over.is_set():
                    id = f"late{len(acknowledged)}"
                    acknowledged.extend([id] * other.add([{"id": id, "text": f"quagga {id}"}]).added)
                    time.sleep(0.5)

        asking, writing = threading.Thread(target=ask), threading.Thread(target=write)
        asking.start()
        added = client.post("/v1/indexes/split/documents", json={"documents": [{"id": "new", "text": "zebra stripes"}]})
        assert added.json()["added"] == 1
        writing.start()
        with open_cluster(folder, read_only=False) as writer:
            assert len(writer.split(2).shards) == N_SHARDS + 1
        end = time.monotonic() + 200
        while runtime.index.manifest.generation == 1:
            assert time.monotonic() < end
            time.sleep(0.5)
        hits = client.post("/v1/indexes/split/search", json={"query": "zebra", "k": 1}).json()["hits"]
        assert [hit["id"] for hit in hits] == ["new"]
        is_over.set()
        asking.join()
        writing.join()
        runtime.index.refresh()
        query = {"query": "quagga", "k": 900, "mode": "bm25"}
        hits = client.post("/v1/indexes/split/search", json=query).json()["hits"]
        assert sorted(hit["id"] for hit in hits) == sorted(acknowledged)
        assert len(acknowledged) > 2
    print(
        f"{len(acknowledged)} documents were added meanwhile; "
        f"{len(statuses)} requests while a shard was split, {statuses.count(200)} of them fine, {len(warnings)} partial"
    )
    assert set(statuses) == {200}
    assert warnings == []

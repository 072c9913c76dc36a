"""The disk of one node is full: the build stops with the error of that node, publishes nothing, and goes on without it.

The node sees a small file system where the others see the spool. This needs Linux and root.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from plait.cluster.build import BuildConfig
from plait.cluster.manifest import MANIFEST
from plait.cluster.ray_build import Workers, build_on_ray
from plait.cluster.ray_runtime import import_ray
from plait.cluster.sharded_index import open_cluster
from plait.encode.load import LazyEncoder
from plait.errors import StoreError
from plait.readers.sources import Sources

N_DOCUMENTS = 120
pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("unshare") is None, reason="a mount namespace needs root and unshare"
)


@pytest.fixture
def cluster() -> Iterator[Any]:
    ray = import_ray()
    from ray.cluster_utils import Cluster

    made = Cluster(
        initialize_head=True,
        head_node_args={"num_cpus": 2, "object_store_memory": 100_000_000, "include_dashboard": False},
    )
    ray.init(address=made.address, log_to_driver=False, logging_level="error")
    yield made
    ray.shutdown()
    made.shutdown()


def test_a_full_disk_of_one_node_stops_the_build_and_publishes_nothing(cluster: Any, tmp_path: Path) -> None:
    ray = import_ray()
    corpus, folder = tmp_path / "corpus.jsonl", tmp_path / "c"
    lines = [{"id": f"d{number}", "text": f"red wool of weaver {number} " * 20} for number in range(N_DOCUMENTS)]
    corpus.write_text("\n".join(json.dumps(line) for line in lines))
    spool = folder / "build" / "spool"
    spool.mkdir(parents=True)
    start = f"mount -t tmpfs -o size=64k none {spool} && exec {sys.executable} -m ray.scripts.scripts start --block"
    options = f"--address={cluster.address} --num-cpus=4 --object-store-memory=100000000 --disable-usage-stats"
    address = cluster.address.rpartition(":")[0]
    node = subprocess.Popen(
        ["unshare", "-m", "sh", "-c", f"{start} {options} --node-ip-address={address}"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    source = LazyEncoder(None, None, precision=None, n_threads=1)
    config = BuildConfig.of(source, n_shards=2)
    given: dict[str, Any] = {"model": None, "encoder": source.get(), "part_bytes": 5000}
    try:
        end = time.monotonic() + 180
        while sum(node["Alive"] for node in ray.nodes()) < 2:
            assert time.monotonic() < end
            time.sleep(0.5)
        with pytest.raises(StoreError, match="No space left on device") as error:
            build_on_ray(Sources([corpus]), folder, config, workers=Workers(n_encoders=4), **given)
        print(f"\nthe error: {error.value}")
    finally:
        os.killpg(node.pid, signal.SIGTERM)
        node.wait(60)
    assert not (folder / MANIFEST).exists()
    assert not (folder / "shards").exists()
    end = time.monotonic() + 180
    while sum(node["Alive"] for node in ray.nodes()) > 1:
        assert time.monotonic() < end
        time.sleep(0.5)
    report = build_on_ray(Sources([corpus]), folder, config, workers=Workers(n_encoders=1), **given)
    print(f"{report.n_blocks} blocks without the node, {report.n_blocks_reused} of them encoded before")
    with open_cluster(folder) as opened:
        assert len(opened) == N_DOCUMENTS

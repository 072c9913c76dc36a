"""Memory: an index may be larger than the memory, and searches do not leak."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import plait
from plait.embeddings import Embeddings, MultiVectors
from plait.encode.protocol import EmbeddingSpec
from storage.samples import run_python

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="memory is read from /proc")
DIM, N_VECTORS, N_ITEMS = 64, 500, 300  # 19 MB of float16
SEARCH = f"""
import resource, sys
from pathlib import Path
import numpy as np
import plait
from plait.embeddings import MultiVectors, Embeddings

with plait.open(Path(sys.argv[1]), n_threads=1) as index:
    query = Embeddings(multi=MultiVectors.from_items([np.eye(4, {DIM}, dtype=np.float32)]))
    index.search_embeddings(query, 3, mode="bm25", texts=["warm"])
    held = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmData"))
    allowed = int(held.split()[1]) * 1024 + (8 << 20)
    resource.setrlimit(resource.RLIMIT_DATA, (allowed, allowed))
    found = index.search_embeddings(query, 3, mode="multi")[0]
    print([hit.id for hit in found], index.info().resident_bytes)
    try:
        bytearray({DIM * N_VECTORS * N_ITEMS * 2})
    except MemoryError:
        print("no room for a copy")
"""


def test_an_index_larger_than_the_memory_allowed_is_searched(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    values = rng.standard_normal((N_ITEMS * N_VECTORS, DIM), dtype=np.float32) * np.float32(0.01)
    values[250 * N_VECTORS] = 1
    documents = [{"id": f"d{number}", "text": "text"} for number in range(N_ITEMS)]
    with plait.open(tmp_path / "index", create=True, spec=EmbeddingSpec(multi=DIM), n_threads=1) as index:
        index.add_embeddings(documents, Embeddings(multi=MultiVectors(values, np.arange(N_ITEMS + 1) * N_VECTORS)))
    done = run_python(SEARCH, tmp_path / "index")
    assert done.returncode == 0, done.stderr
    answer, message = done.stdout.splitlines()
    assert answer.startswith("['d250', ")
    assert int(answer.split()[-1]) > N_ITEMS * N_VECTORS * DIM  # it was mapped, and read where it lies
    assert message == "no room for a copy"


def test_five_thousand_searches_do_not_grow_the_process() -> None:
    command = [sys.executable, "-m", "faults.growth", "--searches", "5000"]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=600, check=False, cwd=Path(__file__).parents[1]
    )
    assert done.returncode == 0, done.stdout + done.stderr

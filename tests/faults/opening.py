"""Opens an index of several hundred megabytes in new processes, and prints the time and the memory that it takes.

python -m faults.opening --megabytes 700
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from plait.embeddings import Embeddings
from plait.encode.load import EXTERNAL
from plait.encode.protocol import EmbeddingSpec
from plait.records import Document, Span
from plait.storage.store import Store

DIM, BATCH_MEGABYTES = 384, 100
MEASURE = """
import json, os, sys, time
from pathlib import Path
import numpy as np
import plait
from plait.search.dense import ExactDense
from plait.search.plan import Plan
from plait.search.query import QueryBatch
from plait.storage.store import Store

def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6

batch = QueryBatch([""], plait.Embeddings(dense=np.ones((1, int(sys.argv[2])), np.float32)))
plan, times, memory = Plan((ExactDense(),), 10), [], [resident()]
for step in range(3):
    start = time.perf_counter()
    if step == 0:
        snapshot = Store.open(Path(sys.argv[1])).snapshot()
    else:
        plan.run(snapshot, batch)
    times.append(1000 * (time.perf_counter() - start))
    memory.append(resident())
print(json.dumps([times[0], memory[1] - memory[0], *times[1:]]))
"""


def make_index(path: Path, n_batches: int) -> None:
    rng, text = np.random.default_rng(0), "wool"
    n_rows = BATCH_MEGABYTES * 1_000_000 // (4 * DIM)
    store = Store.create(path, fingerprint=EXTERNAL, spec=EmbeddingSpec(dense=DIM), properties={})
    with store.writer() as writer:
        for number in range(n_batches):
            documents = [Document(f"d{number}-{row}", text) for row in range(n_rows // 50)]
            dense = rng.standard_normal((len(documents) * 50, DIM), dtype=np.float32)
            writer.write(documents, [[Span(0, len(text))] * 50] * len(documents), Embeddings(dense=dense))


def measure(path: Path) -> list[float]:
    """Milliseconds to open, megabytes in memory after that, milliseconds of the first and of the second search."""
    command = [sys.executable, "-c", MEASURE, str(path), str(DIM)]
    return list(json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout))


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--megabytes", type=int, default=700)
    asked.add_argument("--repeat", type=int, default=5)
    given = asked.parse_args()
    with tempfile.TemporaryDirectory(prefix="plait-") as folder:
        make_index(Path(folder) / "index", given.megabytes // BATCH_MEGABYTES)
        runs = [measure(Path(folder) / "index") for _ in range(given.repeat)]
    opened, memory, first, second = (sorted(column)[len(runs) // 2] for column in zip(*runs, strict=True))
    print(
        f"{given.megabytes} MB: opened in {opened:.0f} ms with {memory:.0f} MB in memory; first search {first:.0f} ms, "
        f"second {second:.0f} ms"
    )


if __name__ == "__main__":
    main()

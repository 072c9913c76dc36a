"""Loads many batches, and opens the index with few file descriptors.

    python -m faults.bulk_load --batches 1000

The batches have 100 kB and not 100 MB, and the smallest tier of the merge policy is a thousandth of its size too.
Afterwards a process with at most 256 descriptors opens the index, searches and compacts it; it does the same with an
index of 300 segments that were never merged.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from plait.embeddings import Embeddings
from plait.encode.load import EXTERNAL
from plait.encode.protocol import EmbeddingSpec
from plait.records import Document, Span
from plait.storage import merge_policy
from plait.storage.store import Store

SCALE = 1000
BATCH_BYTES = 100_000_000
DIM = 250
N_DESCRIPTORS, N_UNMERGED = 256, 300

OPENED = """
import json, resource, sys
from pathlib import Path
resource.setrlimit(resource.RLIMIT_NOFILE, (int(sys.argv[2]), int(sys.argv[2])))
import numpy as np
import plait
with plait.open(Path(sys.argv[1]), n_threads=1) as index:
    query = plait.Embeddings(dense=np.ones((1, int(sys.argv[3])), np.float32))
    n_hits = len(index.search_embeddings(query, 5, mode="dense")[0])
    before = index.info().segments
    index.compact()
    n_after = len(index.search_embeddings(query, 5, mode="dense")[0])
    print(json.dumps([n_hits, before, n_after, index.info().segments]))
"""


def fake_segment(number: int, nbytes: float, *, deleted_share: float = 0.0) -> Any:
    """The attributes of a segment that the policy reads."""
    files = {"dense.plait": SimpleNamespace(record=SimpleNamespace(nbytes=nbytes))}
    n_live = 1000 * (1 - deleted_share)
    return SimpleNamespace(
        number=number, n_rows=1000, n_live=n_live, files=files, span=(number, number + 1), residual_file=None
    )


def simulate(sizes: Iterable[float]) -> tuple[int, float]:
    """Writes batches of these bytes, each followed by a merge where the policy says so: the most segments at any time,
    and the bytes rewritten for each byte written."""
    segments: list[Any] = []
    most, rewritten, written = 0, 0.0, 0.0
    for number, nbytes in enumerate(sizes):
        segments.append(fake_segment(number, nbytes))
        written += nbytes
        run = merge_policy.choose_segments(segments)
        if run:
            merged = sum(segment.files["dense.plait"].record.nbytes for segment in run)
            rewritten += merged
            segments = [segment for segment in segments if segment not in run]
            segments.append(fake_segment(run[0].number, merged))
        most = max(most, len(segments))
    return most, rewritten / written


def batches_of_many_sizes(n_batches: int, seed: int) -> list[float]:
    """From a kilobyte to a gigabyte."""
    rng = random.Random(seed)
    return [math.exp(rng.uniform(math.log(1e3), math.log(1e9))) for _ in range(n_batches)]


def load(path: Path, n_batches: int, *, n_rows: int, merge: bool) -> int:
    """Writes an index; the most segments at any time."""
    rng, most = np.random.default_rng(0), 0
    store = Store.create(path, fingerprint=EXTERNAL, spec=EmbeddingSpec(dense=DIM), properties={})
    with store.writer() as writer:
        for number in range(n_batches):
            text = "wool"
            documents = [Document(f"d{number}-{row}", text) for row in range(n_rows)]
            dense = rng.standard_normal((n_rows, DIM), dtype=np.float32)
            writer.write(documents, [[Span(0, len(text))]] * n_rows, Embeddings(dense=dense))
            if merge:
                writer.merge()
            most = max(most, len(list((path / "segments").iterdir())))
    return most


def open_with_few_descriptors(path: Path, n_descriptors: int) -> list[int]:
    """Hits and segments before and after a compaction, in a process with few descriptors."""
    command = [sys.executable, "-c", OPENED, str(path), str(n_descriptors), str(DIM)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{path} does not open with {n_descriptors} descriptors: {done.stderr}")
    return list(json.loads(done.stdout))


def run(n_batches: int, n_unmerged: int, n_descriptors: int, folder: Path) -> list[str]:
    """The lines to print."""
    unit = merge_policy.MIN_TIER_BYTES
    merge_policy.MIN_TIER_BYTES = unit // SCALE
    try:
        n_rows = BATCH_BYTES // SCALE // (4 * DIM)
        most = load(folder / "merged", n_batches, n_rows=n_rows, merge=True)
    finally:
        merge_policy.MIN_TIER_BYTES = unit
    assert most == simulate([BATCH_BYTES] * n_batches)[0], "the scaled files do not behave as the policy alone"
    opened = open_with_few_descriptors(folder / "merged", n_descriptors)
    load(folder / "unmerged", n_unmerged, n_rows=1, merge=False)
    unmerged = open_with_few_descriptors(folder / "unmerged", n_descriptors)
    assert opened[::2] == unmerged[::2] == [5, 5]
    limit = f"ulimit -n {n_descriptors}"
    return [
        f"{n_batches:,} batches of 100 MB (simulated): at most {most} segments; opens with {limit}",
        f"{unmerged[1]:,} segments without a merge: opens, searches and compacts to {unmerged[3]} with {limit}",
    ]


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--batches", type=int, default=1000)
    given = asked.parse_args()
    for nbytes in (1e6, 1e7, 1e8, 1e9):
        most, share = simulate([nbytes] * given.batches)
        print(f"{nbytes / 1e6:5,.0f} MB a batch: at most {most} segments, each byte rewritten {share:.1f} times")
    most, share = simulate(batches_of_many_sizes(given.batches, 0))
    print(f"1 kB to 1 GB a batch: at most {most} segments, each byte rewritten {share:.1f} times")
    with tempfile.TemporaryDirectory(prefix="plait-") as folder:
        for line in run(given.batches, N_UNMERGED, N_DESCRIPTORS, Path(folder)):
            print(line)


if __name__ == "__main__":
    main()

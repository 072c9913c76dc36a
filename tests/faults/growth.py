"""Searches a small index again and again, in every mode and with changing filters, and watches the memory it takes.

    python -m faults.growth --searches 100000

Prints what the process held after a tenth of the searches and at the end. The first tenth is for what is kept on
purpose: imports, filters, room for a query of each thread.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

import plait
from plait.embeddings import Embeddings, MultiVectors
from plait.encode.protocol import EmbeddingSpec
from storage.grouped_tokens import DIM, batch, group_vectors

MODES = ("dense", "multi", "bm25")
ALLOWED = 8 << 20  # bytes that an allocator may gain by itself; a search that kept 1 kB would pass it within 8,192


def resident() -> int:
    """Bytes of this process that are in memory."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def growth(folder: Path, n_searches: int) -> tuple[int, int]:
    """What the process holds after a tenth of the searches, and after all."""
    with plait.open(folder / "index", create=True, spec=EmbeddingSpec(dense=4, multi=DIM), n_threads=1) as index:
        for first in (0, 60):
            documents, spans, embeddings = batch(first, 60)
            index.add_embeddings(documents, embeddings, spans=spans)
        index.compact()
        index.delete(["d3"])
        queries = [
            Embeddings(np.full((1, 4), 1 + group, np.float32), multi=MultiVectors.from_items([group_vectors(group)]))
            for group in range(12)
        ]
        early = 0
        for number in range(n_searches):
            filter = f"n >= {number % 97}" if number % 4 == 0 else None
            text = [f"word{number % 12} text{number % 120}"]
            mode = MODES[number % len(MODES)]
            index.search_embeddings(queries[number % len(queries)], 5, texts=text, mode=mode, filter=filter)
            if number == n_searches // 10:
                early = resident()
        return early, resident()


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--searches", type=int, default=100_000)
    given = asked.parse_args()
    start = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="plait-") as folder:
        early, late = growth(Path(folder), given.searches)
    summary = f"{early / 1e6:.1f} MB after a tenth, {late / 1e6:.1f} MB at the end"
    print(f"{given.searches} searches: {summary}, in {time.perf_counter() - start:.0f} s")
    if late - early > ALLOWED:
        sys.exit("the process grew")


if __name__ == "__main__":
    main()

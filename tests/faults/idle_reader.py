"""How large SQLite's log grows beside a reader that does nothing.

    python -m faults.idle_reader --commits 500

Opens an index, searches once, and lets another index object commit. The reader must give way once its snapshot is old
(here: two seconds) and the log is larger than its limit. For comparison, the same with a snapshot that is held.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

import numpy as np

import plait
from plait.embeddings import Embeddings
from plait.encode.protocol import EmbeddingSpec
from plait.index import Index
from plait.storage import log
from plait.storage.connection import CATALOGUE
from plait.storage.log import log_nbytes

TEXT = "text " * 10_000


def largest_log(reader: Index, writer: Index, n_commits: int) -> int:
    """The size of the log after each of the commits; the largest."""
    sizes: list[int] = []
    for _ in range(n_commits):
        vectors = Embeddings(np.ones((1, 2), np.float32))
        writer.add_embeddings([{"id": "one", "text": f"{TEXT} {len(sizes)}"}], vectors)
        sizes.append(log_nbytes(reader.path / CATALOGUE))
    return max(sizes)


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--commits", type=int, default=500)
    asked.add_argument("--age", type=float, default=2.0, help="seconds after which a snapshot is old")
    asked.add_argument("--limit", type=int, default=log.MAX_LOG_BYTES, help="bytes of the log that are too many")
    given = asked.parse_args()
    log.MAX_SNAPSHOT_SECONDS, log.CHECK_SECONDS, log.MAX_LOG_BYTES = given.age, given.age / 4, given.limit
    sizes: list[int] = []
    for is_held in (False, True):
        with tempfile.TemporaryDirectory(prefix="plait-") as folder:
            path = Path(folder) / "index"
            with plait.open(path, create=True, spec=EmbeddingSpec(dense=2)) as writer, plait.open(path) as reader:
                snapshot = reader.snapshot if is_held else None
                assert len(reader) == 0
                sizes.append(largest_log(reader, writer, given.commits))
                assert len(reader) == 1, "the reader did not move on"
                assert snapshot is None or snapshot.lookup(["one"]) == {}, "a snapshot that is held changed"
    idle, held = (f"{size / 1e6:.1f} MB" for size in sizes)
    what = f"{given.commits:,} commits of {len(TEXT) // 1000} kB"
    print(f"{what}: log at most {idle} beside an idle index, {held} beside a snapshot that is held")
    sys.exit(0 if sizes[0] < sizes[1] / 2 else 1)


if __name__ == "__main__":
    main()

"""Searches an index while another process overwrites its mapped files with random bytes. Answers may be wrong or
refused, but no search may crash or raise an error that is not plait's.

    python -m faults.changing --seconds 60

Files are changed in place and keep their length. Truncating a mapped file ends the process that reads it, by SIGBUS;
`--truncate` shows that.
"""

from __future__ import annotations

import argparse
import mmap
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from faults.bit_rot import make_index

N_BYTES = 64  # that are overwritten before the next file is chosen

SEARCHES = """
import sys, time
from collections import Counter
from pathlib import Path
import numpy as np
import plait
from faults.fuzz import search_large_files
from plait.embeddings import Embeddings, MultiVectors, SparseVectors
from plait.errors import PlaitError
from plait.storage.store import Store
from storage.grouped_tokens import group_vectors

path, seconds = Path(sys.argv[1]), float(sys.argv[2])
query = Embeddings(
    dense=np.ones((1, 4), np.float32),
    sparse=SparseVectors.from_items([{3: 1.0, 10: 0.5, 17: 0.2}]),
    multi=MultiVectors.from_items([group_vectors(3)]),
)
counts = Counter()
with plait.open(path, n_threads=1) as index, Store.open(path).snapshot() as snapshot:
    def search_all():
        probing = plait.ProbeParams(n_probe=4)
        for mode, params in (("dense", None), ("sparse", None), ("multi", probing), ("multi", None)):
            for filter in (None, "n >= 20"):
                yield lambda: index.search_embeddings(query, 5, mode=mode, params=params, filter=filter)
        yield lambda: index.search_embeddings(query, 5, mode="exhaustive")
        yield lambda: index.search_embeddings(query, 5, mode="bm25", texts=["word3 text15"])
        yield lambda: search_large_files(snapshot, query)
    for search in search_all():
        search()  # all files are verified and remembered
    print("warm", flush=True)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for search in search_all():
            try:
                search()
            except PlaitError as error:
                counts["refused"] += 1
            else:
                counts["answered"] += 1
print(counts["answered"], counts["refused"])
"""


def overwrite(files: list[Path], rng: random.Random, process: subprocess.Popen[str]) -> int:
    """Overwrites bytes of the files, and restores them, until the process ends; returns how many. A value that was
    checked may so be another one when it is used."""
    maps = []
    for file in files:
        with file.open("r+b") as opened:
            maps.append(mmap.mmap(opened.fileno(), 0))
    n_written = 0
    while process.poll() is None:
        chosen = rng.choice(maps)
        positions = [rng.randrange(len(chosen)) for _ in range(N_BYTES)]
        before = [chosen[position] for position in positions]
        for position in positions:
            chosen[position] = rng.randrange(256)
        for position, value in zip(reversed(positions), reversed(before), strict=True):
            chosen[position] = value
        n_written += N_BYTES
    return n_written


def change_while_searching(folder: Path, seconds: float, seed: int, *, truncate: bool = False) -> tuple[int, str, int]:
    """The exit status of the searching process, what it printed, and how many bytes were overwritten."""
    path = folder / "index"
    make_index(path)
    command = [sys.executable, "-W", "ignore", "-c", SEARCHES, str(path), str(seconds)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=Path(__file__).parents[1]
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        if process.stdout.readline() != "warm\n":
            raise SystemExit(process.stderr.read())
        files = sorted(path.glob("segments/*/*.plait"))
        n_written = 0
        if truncate:
            for file in files:
                os.truncate(file, 0)
            process.wait()
        else:
            n_written = overwrite(files, random.Random(seed), process)
        printed = process.stdout.read() + process.stderr.read()
    return process.returncode, printed, n_written


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--seconds", type=float, default=60)
    asked.add_argument("--seed", type=int, default=0)
    asked.add_argument("--truncate", action="store_true", help="cut the files off instead")
    given = asked.parse_args()
    start = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="plait-") as folder:
        status, printed, n_written = change_while_searching(
            Path(folder), given.seconds, given.seed, truncate=given.truncate
        )
    if status:
        sys.exit(f"the searching process ended with status {status}: {printed}")
    answered, refused = printed.split()
    print(
        f"{n_written:,} bytes changed under {int(answered) + int(refused):,} searches in "
        f"{time.monotonic() - start:.0f} s: {int(answered):,} answered, {int(refused):,} refused, 0 crashes"
    )


if __name__ == "__main__":
    main()

"""Flips a bit of a segment file after the index was opened and searched, as a disk does: inode, size and time stay the
same. Then rewrites or copies the index, which must refuse the damage and not give it valid checksums.

    python -m faults.bit_rot --flips 200
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import plait
from faults.fuzz import compact_as_large
from plait.embeddings import Embeddings, SparseVectors
from plait.encode.protocol import EmbeddingSpec
from plait.errors import CorruptIndexError
from plait.storage.backup import backup
from plait.storage.store import Snapshot, Store
from storage.grouped_tokens import DIM, batch

VOCABULARY = 60
N_SEGMENTS = 8  # beside the compacted one: enough for a merge
Rewrite = Callable[[Path], object]


def compact(path: Path) -> object:
    with Store.open(path).writer() as writer:
        return writer.compact()


def merge(path: Path) -> object:
    with Store.open(path).writer() as writer:
        return writer.merge()


def back_up(path: Path) -> object:
    return backup(path, path.with_name("backup"))


REWRITES: dict[str, Rewrite] = {"compact": compact, "merge": merge, "backup": back_up}


def make_index(path: Path) -> None:
    """An index with every kind of file: one compacted segment with optional files, and several new ones."""
    spec = EmbeddingSpec(dense=4, sparse=VOCABULARY, multi=DIM)
    with plait.open(path, create=True, spec=spec, n_threads=1) as index:
        for number in range(N_SEGMENTS + 1):
            n_documents = 60 if number == 0 else 4
            documents, spans, given = batch(100 * number, n_documents)
            terms = [{row % VOCABULARY: 1.0, (row + 7) % VOCABULARY: 0.5} for row in range(2 * n_documents)]
            embeddings = Embeddings(dense=given.dense, sparse=SparseVectors.from_items(terms), multi=given.multi)
            index.add_embeddings(documents, embeddings, spans=spans, merge=False)
            if number == 0:
                compact_as_large(index)


def read_all(snapshot: Snapshot) -> None:
    """Uses every file, so that this process has verified all of them."""
    for segment in snapshot.segments:
        _ = segment.docs, segment.dense, segment.multi, segment.coded, segment.sparse
        _ = segment.dense_ivf, segment.text_index, segment.centroid_ids_file


def flip(file: Path, rng: random.Random, position: int | None = None) -> None:
    """Flips one bit, of a random byte if no position is given, and leaves all that `stat` tells."""
    before = file.stat()
    position = rng.randrange(before.st_size) if position is None else position
    with file.open("r+b") as opened:
        opened.seek(position)
        value = opened.read(1)[0]
        opened.seek(position)
        opened.write(bytes([value ^ 1 << rng.randrange(8)]))
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))


def attempt(made: Path, path: Path, rng: random.Random, rewrite: Rewrite) -> str:
    """What became of one flip: refused, or laundered."""
    shutil.rmtree(path, ignore_errors=True)
    shutil.rmtree(path.with_name("backup"), ignore_errors=True)
    shutil.copytree(made, path)
    with Store.open(path).snapshot() as snapshot:
        read_all(snapshot)
        flip(rng.choice(sorted(path.glob("segments/*/*.plait"))), rng)
        try:
            rewrite(path)
        except CorruptIndexError:
            return "refused"
    return "laundered"


def bit_rot(n_flips: int, seed: int, folder: Path, rewrite: str = "compact") -> Counter[str]:
    made, rng = folder / "made", random.Random(seed)
    if not made.exists():
        make_index(made)
    return Counter(attempt(made, folder / "index", rng, REWRITES[rewrite]) for _ in range(n_flips))


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--flips", type=int, default=200)
    asked.add_argument("--seed", type=int, default=0)
    given = asked.parse_args()
    with tempfile.TemporaryDirectory(prefix="plait-") as folder:
        for name in REWRITES:
            counts = bit_rot(given.flips, given.seed, Path(folder), name)
            print(
                f"{given.flips} flips after a warm open: {counts['refused']} refused by {name}, "
                f"{counts['laundered']} laundered"
            )


if __name__ == "__main__":
    main()

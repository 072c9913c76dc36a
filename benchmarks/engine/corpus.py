"""Token vectors on disk, read one shard at a time. Needs only NumPy: the interpreters of other engines import it too.

`benchmarks.embed` or `benchmarks.engine.extend` writes the folder; the latter may store only the recipe of its shards.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.embed import SHARD, shard
from benchmarks.engine.extend import EXTENSION, Extension

DIM = 128


@dataclass(frozen=True, slots=True, eq=False)
class Shard:
    """Consecutive passages; passage i owns values[offsets[i]:offsets[i + 1]]."""

    values: NDArray[np.float16]
    offsets: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def passages(self) -> Iterator[NDArray[np.float16]]:
        for start, stop in zip(self.offsets[:-1], self.offsets[1:], strict=True):
            yield self.values[start:stop]


@dataclass(frozen=True, slots=True)
class Corpus:
    """The first passages of a folder, and its queries."""

    folder: Path
    n_passages: int

    @property
    def name(self) -> str:
        return f"{self.folder.name}-{self.n_passages}"

    def shards(self) -> Iterator[Shard]:
        """All passages in order, one shard in memory at a time."""
        extension = read_extension(self.folder)
        for number in range(-(-self.n_passages // SHARD)):
            most = self.n_passages - number * SHARD
            if extension is not None:
                values, lengths = extension.make(number)
            else:
                values, lengths = read_shard(self.folder, number)
            lengths = lengths[:most]
            offsets = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
            yield Shard(values[: offsets[-1]], offsets)

    def whole(self) -> Shard:
        """All passages in memory."""
        shards = list(self.shards())
        lengths = np.concatenate([np.diff(part.offsets) for part in shards])
        offsets = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
        return Shard(np.concatenate([part.values for part in shards]), offsets)

    def n_vectors(self) -> int:
        return sum(len(part.values) for part in self.shards())


@dataclass(frozen=True, slots=True, eq=False)
class Queries:
    """Query q owns values[offsets[q]:offsets[q + 1]]."""

    values: NDArray[np.float32]
    offsets: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, number: int) -> NDArray[np.float32]:
        return self.values[self.offsets[number] : self.offsets[number + 1]]

    def order(self) -> NDArray[np.int64]:
        """A fixed shuffle of all queries; a shorter list is a prefix of a longer one."""
        return np.random.default_rng(0).permutation(len(self))


def read_queries(folder: Path) -> Queries:
    extension = read_extension(folder)
    folder = folder if extension is None else extension.source
    offsets = np.concatenate([[0], np.cumsum(np.load(folder / "query-lengths.npy"), dtype=np.int64)])
    return Queries(np.load(folder / "query-values.npy").astype(np.float32), offsets)


def read_shard(folder: Path, number: int) -> tuple[NDArray[np.float16], NDArray[np.int64]]:
    lengths = shard(folder, "lengths", number)
    if not lengths.exists():
        raise SystemExit(f"{folder} has {number * SHARD:,} passages; make more with benchmarks.embed")
    return np.load(shard(folder, "values", number), mmap_mode="r"), np.load(lengths)


def read_extension(folder: Path) -> Extension | None:
    path = folder / EXTENSION
    if not path.exists():
        return None
    return Extension.of(json.loads(path.read_text()))

"""A corpus of any size, generated from real token vectors.

    python -m benchmarks.engine.extend --vectors vectors --from-passages 50000 --to million

Without --write the folder stores only the recipe, and every reader generates the passages again: a million passages of
125 vectors are 32 GB as float16. With --write they are generated once, shard by shard.

The first passages are the real ones. Every further passage joins pieces of two to four real passages, so its length,
its mix of frequent and rare tokens and the similarity of neighbouring vectors are realistic. A small rotation per shard
then moves all of its vectors, and noise moves each one, so that no vector is a copy. Generated vectors are as far from
the real ones as held-out real vectors are: the inner product with the nearest of 100,000 has quartiles 0.862, 0.896 and
0.924, against 0.857, 0.893 and 0.921 (random vectors: 0.204, 0.245, 0.289).

Use it for sizes and times: those match a real corpus of that size. Recall is closer to that of the source corpus,
because a generated passage has no subject and no query asks for it. A shard depends only on the seed and its number.
"""

from __future__ import annotations

import argparse
import json
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.embed import SHARD, shard

EXTENSION = "extension.json"


@dataclass(frozen=True, slots=True)
class Extension:
    """How the shards of a generated corpus are made from a real one."""

    source: Path
    n_source: int  # passages
    seed: int = 0
    angle: float = 0.3  # radians; how far the rotation moves a vector, about
    noise: float = 0.24  # mean norm of the noise added to a unit vector
    longest: int | None = None  # vectors per passage; the rest is cut off

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> Extension:
        return cls(**{**record, "source": Path(record["source"])})

    def record(self) -> dict[str, Any]:
        return asdict(self) | {"source": str(self.source)}

    def make(self, number: int) -> tuple[NDArray[np.float16], NDArray[np.int64]]:
        """The vectors and lengths of one shard."""
        values, offsets = _source(self.source, self.n_source)
        if (number + 1) * SHARD <= self.n_source:
            shard_offsets = offsets[number * SHARD : (number + 1) * SHARD + 1]
            row_lists = [np.arange(start, stop)[: self.longest] for start, stop in pairwise(shard_offsets)]
            return values[np.concatenate(row_lists)], np.array([len(rows) for rows in row_lists], np.int64)
        rng = np.random.default_rng([self.seed, number])
        rows = [_composed(offsets, rng, self.longest) for _ in range(SHARD)]
        moved = values[np.concatenate(rows)].astype(np.float32) @ _rotation(values.shape[1], self.angle, rng)
        amounts = rng.uniform(0, 2 * self.noise / moved.shape[1] ** 0.5, (len(moved), 1)).astype(np.float32)
        moved += rng.standard_normal(moved.shape, np.float32) * amounts
        moved /= np.linalg.norm(moved, axis=1, keepdims=True)
        return moved.astype(np.float16), np.array([len(row) for row in rows], np.int64)


def _composed(offsets: NDArray[np.int64], rng: np.random.Generator, longest: int | None) -> NDArray[np.int64]:
    """The rows of one generated passage: as long as a random real passage, with a piece of each of two to four."""
    length = int(np.diff(offsets)[rng.integers(len(offsets) - 1)])
    length = length if longest is None else min(length, longest)
    n_parts = min(int(rng.integers(2, 5)), length)
    cuts = np.sort(rng.choice(np.arange(1, max(length, 2)), n_parts - 1, replace=False))
    rows = []
    for size in np.diff(np.concatenate([[0], cuts, [length]])):
        part = int(rng.integers(len(offsets) - 1))
        n_rows = int(offsets[part + 1] - offsets[part])
        start = int(rng.integers(max(n_rows - size, 0) + 1))
        rows.append(offsets[part] + np.arange(start, start + size) % n_rows)
    return np.concatenate(rows)


def _rotation(dim: int, angle: float, rng: np.random.Generator) -> NDArray[np.float32]:
    """A random rotation by about this angle: the exponential of a small skew-symmetric matrix."""
    skew = rng.standard_normal((dim, dim)) * (angle / (2 * dim) ** 0.5)
    skew = skew - skew.T
    # The Cayley transform is an exact rotation and agrees with the exponential to second order.
    return np.asarray(np.linalg.solve(np.eye(dim) + skew / 2, np.eye(dim) - skew / 2), np.float32)


@lru_cache(maxsize=1)
def _source(folder: Path, n_passages: int) -> tuple[NDArray[np.float16], NDArray[np.int64]]:
    """The real passages; loaded once, because every shard draws from all of them."""
    numbers = range(n_passages // SHARD)
    lengths = np.concatenate([np.load(shard(folder, "lengths", number)) for number in numbers])
    values = np.concatenate([np.load(shard(folder, "values", number)) for number in numbers])
    return values, np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vectors", type=Path, required=True, help="a folder of embeddings.py")
    parser.add_argument("--from-passages", type=int, required=True, help=f"a multiple of {SHARD:,}")
    parser.add_argument("--to", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--longest", type=int, help="vectors of a passage; the rest is cut off")
    parser.add_argument("--write", type=int, metavar="PASSAGES", help="make the first of them now")
    arguments = parser.parse_args()
    if arguments.from_passages < SHARD or arguments.from_passages % SHARD:
        parser.error(f"--from-passages is {arguments.from_passages}; it must be a multiple of {SHARD}")
    extension = Extension(
        arguments.vectors.absolute(), arguments.from_passages, seed=arguments.seed, longest=arguments.longest
    )
    arguments.to.mkdir(parents=True, exist_ok=True)
    if arguments.write is None:
        (arguments.to / EXTENSION).write_text(json.dumps(extension.record(), indent=2) + "\n")
    else:
        write(extension, arguments.to, arguments.write)


def write(extension: Extension, to: Path, n_passages: int) -> None:
    """Writes shards in the format of `benchmarks.embed`, lengths last: a shard that has its lengths is complete."""
    for name in ("query-values.npy", "query-lengths.npy"):
        shutil.copyfile(extension.source / name, to / name)
    (to / "about.json").write_text(json.dumps({"made": extension.record()}) + "\n")
    for number in range(-(-n_passages // SHARD)):
        if not shard(to, "lengths", number).exists():
            values, lengths = extension.make(number)
            np.save(shard(to, "values", number), values)
            np.save(shard(to, "lengths", number), lengths)


if __name__ == "__main__":
    main()

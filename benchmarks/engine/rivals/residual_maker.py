"""What fast-plaid and xtr-warp-rs keep of a corpus, worked out the quick way: centroids, codes and packed residuals.

Both build with one recipe: k-means of a sample, the nearest centroid of every vector, and what remains of it in a few
bits a number. Their builders multiply in float16, which most processors cannot: hours for 50,000 passages.
Here the recipe is the same, and so are the files that come of it; `check_makers.py` holds them against those of the
builders themselves. What differs:

- Products are in float32. Theirs are rounded to half, so that where two centroids are equally near in half they take
  the first and this takes the nearer: one to three vectors in a thousand.
- K-means has at most 2^21 points. That is all of the builders' own sample at 15,000 passages, and half of it, 64
  points a centroid, at 50,000.
- Random draws are others: some of theirs cannot be repeated outside Rust.
- Both engines share the centroids and the codes, kept beside their indexes: they ask for the same ones.

What is measured of such an index is searching. The time it took is not the engine's time to build.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from benchmarks.engine.corpus import Corpus, Shard

NOTE = (
    "its index was made by the benchmark in its own format (float32 products; see rivals/quick.py), not by its builder"
)
MOST_POINTS = 2**21  # of k-means
N_ITERATIONS = 4
TILE = 2048  # vectors that meet all centroids at once
SEED = 42


@dataclass(frozen=True, slots=True, eq=False)
class Clusters:
    """Centroids of length 1, and the nearest of them for every vector of the corpus."""

    centroids: Tensor  # (centroids, dim), half
    codes: NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Codec:
    """How what remains of a vector beside its centroid becomes bits."""

    nbits: int
    cutoffs: Tensor  # (2 ** nbits - 1,), between buckets
    weights: Tensor  # (2 ** nbits,), the middle of each bucket
    average: Tensor  # (dim,), of the absolute remainders
    threshold: Tensor  # the length that three remainders in four do not exceed


def clusters(corpus: Corpus, whole: Shard, folder: Path) -> Clusters:
    """Those of the corpus; made once and then read from the folder."""
    file = folder / f"clusters-{corpus.name}.npz"
    if not file.exists():
        centroids = cluster(whole)
        codes = nearest(torch.from_numpy(whole.values), centroids.float())
        np.savez(file, centroids=centroids.numpy(), codes=codes.astype(np.int32))
    kept = np.load(file)
    return Clusters(torch.from_numpy(kept["centroids"]), kept["codes"].astype(np.int64))


def cluster(whole: Shard) -> Tensor:
    """As many centroids as the builders would make, from as many passages; of length 1, in half."""
    generator = torch.Generator().manual_seed(SEED)
    n_sampled = min(1 + int(16 * math.sqrt(120 * len(whole))), len(whole))
    chosen = torch.randperm(len(whole), generator=generator)[:n_sampled].numpy()
    rows = rows_of(whole, np.sort(chosen))
    kept = torch.randperm(len(rows), generator=generator)[:MOST_POINTS].numpy()
    points = torch.from_numpy(whole.values[rows[kept]]).float()
    centroids = lloyd(points, min(n_centroids(len(whole.values)), len(points)), generator)
    return torch.nn.functional.normalize(centroids, dim=1).half()


def n_centroids(n_vectors: int) -> int:
    return int(2 ** math.floor(math.log2(16 * math.sqrt(n_vectors))))


def lloyd(points: Tensor, k: int, generator: torch.Generator) -> Tensor:
    """(k, dim) means after a few rounds from random points; an empty cluster gets a random point."""
    centroids = points[torch.randperm(len(points), generator=generator)[:k]]
    for _ in range(N_ITERATIONS):
        # The nearest has the highest x.c - |c|^2 / 2.
        codes = torch.from_numpy(nearest(points, centroids, bias=-(centroids**2).sum(dim=1) / 2))
        sums = torch.zeros_like(centroids).index_add_(0, codes, points)
        counts = torch.bincount(codes, minlength=k)
        centroids = sums / counts.clamp(min=1)[:, None]
        empty = (counts == 0).nonzero()[:, 0]
        centroids[empty] = points[torch.randint(len(points), (len(empty),), generator=generator)]
    return centroids


def nearest(rows: Tensor, centroids: Tensor, bias: Tensor | None = None) -> NDArray[np.int64]:
    """(rows,) the centroid of the highest inner product, with a bias of each centroid added; the first of equals."""
    codes = np.empty(len(rows), np.int64)
    products = torch.empty(TILE, len(centroids))
    added = torch.zeros(len(centroids)) if bias is None else bias
    for start in range(0, len(rows), TILE):
        tile = rows[start : start + TILE].float()
        torch.addmm(added, tile, centroids.T, out=products[: len(tile)])
        codes[start : start + len(tile)] = products[: len(tile)].numpy().argmax(axis=1)
    return codes


def train(rows: NDArray[np.float16], codes: NDArray[np.int64], centroids: Tensor, nbits: int) -> Codec:
    """Cutoffs and weights are quantiles of the remainders of vectors that were held out for it."""
    remainders = (torch.from_numpy(rows) - centroids[torch.from_numpy(codes)]).float()
    lengths = remainders.norm(dim=1)
    buckets = torch.arange(2**nbits) / 2**nbits
    return Codec(
        nbits,
        cutoffs=torch.quantile(remainders, buckets[1:]),
        weights=torch.quantile(remainders, buckets + 0.5 / 2**nbits),
        average=remainders.abs().mean(dim=0),
        threshold=lengths.kthvalue(max(math.ceil(0.75 * len(lengths)), 1)).values,
    )


def pack(rows: NDArray[np.float16], codes: NDArray[np.int64], centroids: Tensor, codec: Codec) -> NDArray[np.uint8]:
    """(rows, dim * nbits / 8): the bucket of each number, its lowest bit first, from the highest bit of a byte down."""
    packed = np.empty((len(rows), rows.shape[1] * codec.nbits // 8), np.uint8)
    bits = np.arange(2**codec.nbits)[:, None] >> np.arange(codec.nbits) & 1
    reversed_bucket = (bits << np.arange(codec.nbits)[::-1]).sum(axis=1).astype(np.uint8)
    a_byte = 8 // codec.nbits
    shifts = (codec.nbits * np.arange(a_byte)[::-1]).astype(np.uint8)
    for start in range(0, len(rows), TILE):
        own = slice(start, start + TILE)
        remainders = torch.from_numpy(rows[own]) - centroids[torch.from_numpy(codes[own])]
        buckets = torch.bucketize(remainders.float(), codec.cutoffs, out_int32=True).numpy()
        parts = reversed_bucket[buckets].reshape(len(buckets), -1, a_byte)
        packed[own] = np.bitwise_or.reduce(parts << shifts, axis=2)
    return packed


def rows_of(whole: Shard, passages: NDArray[np.int64]) -> NDArray[np.int64]:
    """The rows of some passages, in the passages' order."""
    return np.concatenate([np.arange(whole.offsets[one], whole.offsets[one + 1]) for one in passages])


def n_held_out(n_sampled: int) -> int:
    """How many vectors of a sample the codec is trained on; they are its last."""
    return round(min(0.05 * n_sampled, 50_000))

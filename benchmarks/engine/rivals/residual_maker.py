"""Centroids, codes and packed residuals for the indexes of fast-plaid and xtr-warp-rs, computed faster than they do.

Both build with one recipe: k-means of a sample, the nearest centroid of every vector, and the residual in a few bits
per dimension. Their builders multiply in float16, which most processors emulate: hours for 50,000 passages. Here the
recipe and the files are the same; `check_makers.py` compares them with those of the builders. What differs:

- Products are float32. Theirs are rounded to half precision: where two centroids are equally near in half precision,
  they take the first and this takes the nearer one; one to three vectors in a thousand.
- K-means uses at most 2^21 points: all of the builders' sample at 15,000 passages, and half of it, 64 points per
  centroid, at 50,000.
- Random draws differ: some of theirs cannot be repeated outside Rust.
- Both engines share centroids and codes, which are saved beside their indexes.

Use such an index to measure searching. Its build time is not that of the engine.
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
MAX_POINTS = 2**21  # of k-means
N_ITERATIONS = 4
TILE = 2048  # vectors multiplied with all centroids at once
SEED = 42


@dataclass(frozen=True, slots=True, eq=False)
class Clusters:
    """Unit centroids, and the nearest one of every vector of the corpus."""

    centroids: Tensor  # (centroids, dim), half
    codes: NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Codec:
    """How the residual of a vector becomes bits."""

    nbits: int
    cutoffs: Tensor  # (2 ** nbits - 1,), between buckets
    weights: Tensor  # (2 ** nbits,), the centre of each bucket
    average: Tensor  # (dim,), mean absolute residual
    threshold: Tensor  # third quartile of the residual norms


def clusters(corpus: Corpus, whole: Shard, folder: Path) -> Clusters:
    """The clusters of the corpus, computed once and then read from the folder."""
    file = folder / f"clusters-{corpus.name}.npz"
    if not file.exists():
        centroids = cluster(whole)
        codes = nearest(torch.from_numpy(whole.values), centroids.float())
        np.savez(file, centroids=centroids.numpy(), codes=codes.astype(np.int32))
    saved = np.load(file)
    return Clusters(torch.from_numpy(saved["centroids"]), saved["codes"].astype(np.int64))


def cluster(whole: Shard) -> Tensor:
    """As many centroids as the builders make, from as many passages; unit length, half precision."""
    generator = torch.Generator().manual_seed(SEED)
    n_sampled = min(1 + int(16 * math.sqrt(120 * len(whole))), len(whole))
    chosen = torch.randperm(len(whole), generator=generator)[:n_sampled].numpy()
    rows = rows_of(whole, np.sort(chosen))
    sample = torch.randperm(len(rows), generator=generator)[:MAX_POINTS].numpy()
    points = torch.from_numpy(whole.values[rows[sample]]).float()
    centroids = lloyd(points, min(n_centroids(len(whole.values)), len(points)), generator)
    return torch.nn.functional.normalize(centroids, dim=1).half()


def n_centroids(n_vectors: int) -> int:
    return int(2 ** math.floor(math.log2(16 * math.sqrt(n_vectors))))


def lloyd(points: Tensor, k: int, generator: torch.Generator) -> Tensor:
    """(k, dim) means after a few iterations from random points; an empty cluster gets a random point."""
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
    """(rows,) the centroid with the highest inner product plus bias; the first of equals."""
    codes = np.empty(len(rows), np.int64)
    products = torch.empty(TILE, len(centroids))
    added = torch.zeros(len(centroids)) if bias is None else bias
    for start in range(0, len(rows), TILE):
        tile = rows[start : start + TILE].float()
        torch.addmm(added, tile, centroids.T, out=products[: len(tile)])
        codes[start : start + len(tile)] = products[: len(tile)].numpy().argmax(axis=1)
    return codes


def train(rows: NDArray[np.float16], codes: NDArray[np.int64], centroids: Tensor, nbits: int) -> Codec:
    """Cutoffs and weights: quantiles of the residuals of held-out vectors."""
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
    """(rows, dim * nbits / 8): the bucket of each number, lowest bit first, from the highest bit of a byte down."""
    packed = np.empty((len(rows), rows.shape[1] * codec.nbits // 8), np.uint8)
    bits = np.arange(2**codec.nbits)[:, None] >> np.arange(codec.nbits) & 1
    reversed_bucket = (bits << np.arange(codec.nbits)[::-1]).sum(axis=1).astype(np.uint8)
    a_byte = 8 // codec.nbits
    shifts = (codec.nbits * np.arange(a_byte)[::-1]).astype(np.uint8)
    for start in range(0, len(rows), TILE):
        tile = slice(start, start + TILE)
        remainders = torch.from_numpy(rows[tile]) - centroids[torch.from_numpy(codes[tile])]
        buckets = torch.bucketize(remainders.float(), codec.cutoffs, out_int32=True).numpy()
        parts = reversed_bucket[buckets].reshape(len(buckets), -1, a_byte)
        packed[tile] = np.bitwise_or.reduce(parts << shifts, axis=2)
    return packed


def rows_of(whole: Shard, passages: NDArray[np.int64]) -> NDArray[np.int64]:
    """The rows of these passages, in their order."""
    return np.concatenate([np.arange(whole.offsets[one], whole.offsets[one + 1]) for one in passages])


def n_held_out(n_sampled: int) -> int:
    """How many vectors at the end of a sample train the codec."""
    return round(min(0.05 * n_sampled, 50_000))

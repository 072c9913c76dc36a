"""Fitting a codec to a corpus: the number of cells, the sample to train on, and how much the codes lose.

The number of cells grows with the square root of the corpus: a query scores every centroid and then reads postings, and
this keeps the two costs in proportion. A centroid is the mean of its cell and hardly moves beyond some sixty rows, so a
sample is enough and the corpus is never held in memory as floats. Steps and factors are fitted on held-out rows: the
residuals of rows that the centroids were trained on are too short.

Where there are no queries, the loss is measured with synthetic queries made from stored rows. A plain run of rows is
far too easy a query: it finds its passage by a wide margin, in few cells. Real queries have a few informative tokens
among markers and function words that repeat them. So a synthetic query is a few neighbouring rows, each repeated with
noise. The constants were chosen by comparing its ranks with those of real queries.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from plait.codec import kmeans
from plait.codec.assign import NearestCentroids, Rows
from plait.codec.codebook import Codebook
from plait.codec.residual import ResidualCodec
from plait.errors import InputError

MIN_ROWS = 256  # with fewer, a codebook takes more bytes than it saves
MIN_CELLS = 16
ROWS_PER_CELL = 64  # that k-means is given
MAX_SAMPLE = 1 << 21  # rows: half a gigabyte of 128 dimensions in float16
HELD_OUT, MIN_HELD_OUT, MAX_HELD_OUT = 0.05, 1024, 50_000
MIN_QUERY_ROWS, MAX_QUERY_ROWS = 2, 5  # neighbouring rows of a synthetic query
COPIES = 5  # of each row of a synthetic query
NOISE = 1.0  # its expected norm, relative to that of the row


@dataclass(frozen=True, slots=True, eq=False)
class FittedCodec:
    """A codec, and the error of its codes."""

    codec: ResidualCodec
    codec_8bit: ResidualCodec | None  # 8-bit codes around the same centroids
    error: float  # mean squared distance between a held-out row and its decoded codes


def cells_for(n_rows: int) -> int:
    """The number of cells for a corpus: a power of two near 8 * sqrt(rows), with at least 8 rows a cell."""
    near = 1 << round(math.log2(8 * math.sqrt(max(n_rows, 1))))
    most = 1 << max((n_rows // 8).bit_length() - 1, 0)
    return min(max(near, MIN_CELLS), most)


def sample_size(n_rows: int, n_cells: int) -> int:
    """The number of rows of a corpus that `fit` needs."""
    return min(n_rows, MAX_SAMPLE, math.ceil(ROWS_PER_CELL * n_cells / (1 - HELD_OUT)))


def sample_rows(n_rows: int, n_sample: int, *, seed: int) -> NDArray[np.int64]:
    """Row numbers of a stratified sample, ascending: one at random from each of `n_sample` equal parts of the
    corpus."""
    drawn = (np.arange(n_sample) + np.random.default_rng(seed).random(n_sample)) * (n_rows / max(n_sample, 1))
    return np.unique(np.minimum(drawn.astype(np.int64), n_rows - 1))


def fit(
    sample: Rows,
    *,
    bits: int,
    n_cells: int,
    keep_8bit: bool = False,
    n_threads: int = 1,
    seed: int = 0,
    centroids: NDArray[np.float32] | None = None,
    cells: NDArray[np.integer] | None = None,
) -> FittedCodec:
    """A codec for the corpus that `sample` (rows, dim) was drawn from; the same for any number of threads. With
    `centroids` (cells, dim), which another codec of the corpus has, none are trained. `cells` (rows,) are the cells
    that this codec gave the sample; by default a row is in the cell of its nearest centroid."""
    if len(sample) < 2:
        raise InputError(f"a codec needs at least 2 rows to be fitted; got {len(sample)}")
    order = np.random.default_rng(seed).permutation(len(sample))
    n_held_out = min(max(int(HELD_OUT * len(sample)), MIN_HELD_OUT), MAX_HELD_OUT, max(len(sample) // 4, 1))
    held_out = sample[order[:n_held_out]].astype(np.float32)
    held_out_cells = None if cells is None else cells[order[:n_held_out]]
    rest = sample[np.sort(order[n_held_out:])]
    del sample, order  # it may be half a gigabyte, and the caller need not keep it either
    if centroids is None:
        centroids = kmeans.train(rest, n_cells, seed=seed, n_threads=n_threads)
    codebook = Codebook.rounded(centroids)
    if held_out_cells is None:
        held_out_cells = NearestCentroids.from_codebook(codebook).assign(held_out, n_threads=n_threads)
    codec = ResidualCodec.fit(codebook, bits, held_out, held_out_cells)
    codec_8bit = ResidualCodec.fit(codebook, 8, held_out, held_out_cells) if keep_8bit else None
    error = squared_error(held_out, codec.decode(codec.encode(held_out, held_out_cells))) / n_held_out
    return FittedCodec(codec, codec_8bit, error)


def squared_error(rows: NDArray[np.float32], decoded: NDArray[np.float32]) -> float:
    """The sum over rows of the squared distance between a row and its decoded codes."""
    return float(np.square(rows - decoded, dtype=np.float64).sum())


def draw_neighbouring_rows(n_rows: int, rng: np.random.Generator) -> slice:
    """The neighbouring rows of a passage of `n_rows` (at least 1) that make a synthetic query."""
    n_drawn = min(int(rng.integers(MIN_QUERY_ROWS, MAX_QUERY_ROWS + 1)), n_rows)
    start = int(rng.integers(0, n_rows - n_drawn + 1))
    return slice(start, start + n_drawn)


def add_noise(rows: NDArray[np.float32], rng: np.random.Generator) -> NDArray[np.float32]:
    """Each row `COPIES` times, each copy with different noise and the norm of the row: (rows * COPIES, dim)."""
    repeated = np.repeat(rows, COPIES, axis=0)
    lengths = np.linalg.norm(repeated, axis=1, keepdims=True)
    noise = rng.standard_normal(repeated.shape) * (NOISE / np.sqrt(rows.shape[1]))
    moved = repeated + lengths * noise
    return np.asarray(moved * (lengths / np.maximum(np.linalg.norm(moved, axis=1, keepdims=True), 1e-9)), np.float32)

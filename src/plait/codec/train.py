"""Fitting a codec to a corpus: how many cells, from how many rows, and what the codes lose.

Cells grow with the square root of the corpus: a query scores every centroid and then reads some postings, and the two
stay in proportion that way. A centroid is the mean of the rows in its cell, and beyond some sixty of them it hardly
moves; so a sample is enough, and the corpus is never held as floats. Steps and factors come from rows that the
centroids were not trained on, because residuals of those that they were trained on are too short.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from plait.codec import kmeans
from plait.codec.assign import Nearest, Rows
from plait.codec.codebook import Codebook
from plait.codec.residual import ResidualCodec
from plait.errors import InputError

FEWEST_ROWS = 256  # with fewer, cells say nothing: a codebook would weigh more than what it saves
FEWEST_CELLS = 16
ROWS_A_CELL = 64  # that k-means sees
LARGEST_SAMPLE = 1 << 21  # rows: half a gigabyte of 128 dimensions in float16
HELD_OUT, FEWEST_HELD_OUT, MOST_HELD_OUT = 0.05, 1024, 50_000
FINE_BITS = 8


@dataclass(frozen=True, slots=True, eq=False)
class Fitted:
    """A codec with what it loses."""

    codec: ResidualCodec
    fine: ResidualCodec | None  # codes of 8 bits around the same centroids
    error: float  # squared distance of a row to its code, the mean over rows that were held out


def cells_for(n_rows: int) -> int:
    """How many cells suit a corpus: a power of two near 8 * sqrt(rows), and at least 8 rows for each."""
    near = 1 << round(math.log2(8 * math.sqrt(max(n_rows, 1))))
    most = 1 << max((n_rows // 8).bit_length() - 1, 0)
    return min(max(near, FEWEST_CELLS), most)


def sample_size(n_rows: int, n_cells: int) -> int:
    """How many rows of a corpus `fit` wants to see."""
    return min(n_rows, LARGEST_SAMPLE, math.ceil(ROWS_A_CELL * n_cells / (1 - HELD_OUT)))


def sample_places(n_rows: int, n_sample: int, *, seed: int) -> NDArray[np.int64]:
    """Numbers of rows, ascending and spread evenly: one at random from each of `n_sample` stretches of the corpus."""
    drawn = (np.arange(n_sample) + np.random.default_rng(seed).random(n_sample)) * (n_rows / max(n_sample, 1))
    return np.unique(np.minimum(drawn.astype(np.int64), n_rows - 1))


def fit(sample: Rows, *, bits: int, n_cells: int, fine: bool = False, n_threads: int = 1, seed: int = 0) -> Fitted:
    """A codec for the corpus that the rows are a sample of; the same for any number of threads."""
    if len(sample) < 2:
        raise InputError(f"a codec cannot be fitted to {len(sample)} rows; at least 2 are needed")
    order = np.random.default_rng(seed).permutation(len(sample))
    n_held_out = min(max(int(HELD_OUT * len(sample)), FEWEST_HELD_OUT), MOST_HELD_OUT, max(len(sample) // 4, 1))
    held_out = sample[order[:n_held_out]].astype(np.float32)
    rest = sample[np.sort(order[n_held_out:])]
    del sample, order  # it may be half a gigabyte, and the caller need not keep it either
    means = kmeans.train(rest, n_cells, seed=seed, n_threads=n_threads)
    codebook = Codebook.rounded(means)
    cells = nearest(codebook).cells(held_out, n_threads=n_threads)
    codec = ResidualCodec.fit(codebook, bits, held_out, cells)
    error = squared_error(held_out, codec.decode(codec.encode(held_out, cells))) / n_held_out
    return Fitted(codec, ResidualCodec.fit(codebook, FINE_BITS, held_out, cells) if fine else None, error)


def nearest(codebook: Codebook) -> Nearest:
    """What assigns rows to cells. Made from the codebook as it is stored, so that rows which come later find the same
    cells as those it was trained on."""
    return Nearest(codebook.floats())


def squared_error(rows: NDArray[np.float32], decoded: NDArray[np.float32]) -> float:
    """The sum over rows of the squared distance between a row and what its code stands for."""
    return float(np.square(rows - decoded, dtype=np.float64).sum())

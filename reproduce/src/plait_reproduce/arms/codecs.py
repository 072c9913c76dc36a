"""A set's multi vectors under plait's codec, encoded once for each number of bits; and ColBERTv2's codec as the paper
has it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from plait.codec.assign import NearestCentroids
from plait.codec.codebook import Codebook
from plait.codec.coded_items import CodedItems, Postings
from plait.codec.residual import ResidualCodec
from plait.codec.train import cells_for, fit, sample_rows, sample_size
from plait.embeddings import MultiVectors
from plait.scoring.residual import CodedRows
from plait_reproduce.workbench import Arrays, Workbench


@dataclass(frozen=True, slots=True, eq=False)
class Coded:
    """Coded items for the search methods, and their size."""

    items: CodedItems
    bytes_of_codes: int  # codes, cells, lengths and factors of all rows
    bytes_of_centroids: int
    bytes_of_postings: int

    @property
    def n_bytes(self) -> int:
        return self.bytes_of_codes + self.bytes_of_centroids + self.bytes_of_postings


def coded_rows(workbench: Workbench, rows: MultiVectors, key: str, *, bits: int, n_cells: int | None = None) -> Coded:
    """The rows under a codec of `bits`; `key` identifies the rows."""
    cells = n_cells or cells_for(len(rows.values))

    def make() -> Arrays:
        return _made(rows, bits, cells, workbench.n_threads or 1)

    saved = workbench.arrays.get("codes", {"rows": key, "bits": bits, "cells": cells}, make)
    codebook = Codebook(saved["centroids"], float(saved["numbers"][0]), float(saved["numbers"][1]))
    codec = ResidualCodec(codebook, bits, saved["steps"], saved["length_table"], saved["factor_table"])
    coded = CodedRows(
        bits, saved["codes"], saved["cells"], saved["lengths"], codec.lengths, saved["factors"], codec.factors
    )
    postings = Postings.of(saved["cells"], rows.offsets, len(codebook))
    items = CodedItems(codec, coded, rows.offsets, postings)
    return Coded(
        items,
        sum(int(saved[name].nbytes) for name in ("codes", "cells", "lengths", "factors")),
        int(saved["centroids"].nbytes),
        int(postings.items.nbytes + postings.offsets.nbytes),
    )


def _made(rows: MultiVectors, bits: int, n_cells: int, n_threads: int) -> Arrays:
    sampled_rows = sample_rows(len(rows.values), sample_size(len(rows.values), n_cells), seed=0)
    sample: NDArray[Any] = rows.values[sampled_rows]
    codec = fit(sample, bits=bits, n_cells=n_cells, n_threads=n_threads).codec
    floats = np.asarray(rows.values, np.float32)
    coded = codec.encode(floats, NearestCentroids.from_codebook(codec.codebook).assign(floats, n_threads=n_threads))
    assert coded.cells is not None
    return {
        "centroids": codec.codebook.centroids,
        "numbers": np.array([codec.codebook.scale, codec.codebook.longest]),
        "steps": codec.steps,
        "length_table": codec.lengths,
        "factor_table": codec.factors,
        "codes": coded.codes,
        "cells": coded.cells,
        "lengths": coded.lengths,
        "factors": coded.factors,
    }


HELD_OUT = 20  # one row in HELD_OUT sets the buckets


def decoded_as_in_paper(
    rows: NDArray[np.float32], centroids: NDArray[np.float32], cells: NDArray[np.integer], bits: int
) -> NDArray[np.float32]:
    """The rows (n, dim) after coding and decoding: their centroid plus the weight of the bucket of each dimension. One
    table of buckets, from quantiles of all residuals, serves all dimensions; rows are normalised again."""
    nearest = (centroids / np.maximum(np.linalg.norm(centroids, axis=1, keepdims=True), 1e-9))[cells]
    residuals = rows - nearest
    n_buckets = 1 << bits
    sample = residuals[::HELD_OUT].ravel()
    cutoffs = np.quantile(sample, np.arange(1, n_buckets) / n_buckets)
    weights = np.quantile(sample, (np.arange(n_buckets) + 0.5) / n_buckets).astype(np.float32)
    return _unit(nearest + weights[np.searchsorted(cutoffs, residuals)])


def binarised(rows: NDArray[np.float32]) -> NDArray[np.float32]:
    """Only the signs of the rows, normalised: one bit per dimension and no centroid."""
    return _unit(np.where(rows > 0, np.float32(1), np.float32(-1)))


def _unit(rows: NDArray[np.float32]) -> NDArray[np.float32]:
    return np.ascontiguousarray(rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-9), np.float32)

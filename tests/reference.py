"""The slow twins of the kernels: what correct means, in plain NumPy, written for reading."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from plait.strands import MultiVectors, Rows


def maxsim(query: Rows, documents: MultiVectors) -> NDArray[np.float32]:
    """The sum over query rows of the best dot product with a row of the document; 0 for a document without rows."""
    scores = np.zeros(len(documents))
    for item in range(len(documents)):
        rows = documents[item].astype(np.float64)
        if len(rows):
            scores[item] = (query.astype(np.float64) @ rows.T).max(axis=1).sum()
    return scores.astype(np.float32)


def align(query: NDArray[np.float32], rows: Rows) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """For each query row, the document row with the best dot product, and the product; -1 and 0 without rows."""
    if len(rows) == 0:
        return np.full(len(query), -1, np.int64), np.zeros(len(query), np.float32)
    products = query.astype(np.float64) @ rows.astype(np.float64).T
    return products.argmax(axis=1).astype(np.int64), products.max(axis=1).astype(np.float32)


def top_k(scores: NDArray[np.float32], k: int) -> NDArray[np.int64]:
    """Positions of the k largest, largest first; equal scores by position."""
    return np.lexsort((np.arange(len(scores)), -scores))[:k].astype(np.int64)


def crc32c(data: bytes, seed: int = 0) -> int:
    """Bit by bit, with the Castagnoli polynomial in reflected order."""
    crc = seed ^ 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def held(values: NDArray[Any], dtype: type[np.integer[Any]]) -> NDArray[Any]:
    """Whole numbers, each moved to the nearest that the type can hold."""
    limits = np.iinfo(dtype)
    return np.asarray(np.clip(values, limits.min, limits.max), dtype)


def score_cells(
    query: NDArray[np.int8], centroids: NDArray[np.uint8], bias: NDArray[np.int32], shift: int
) -> NDArray[np.int16]:
    """(cells, n_query): the dot products less the bias, shifted."""
    return held((centroids.astype(np.int64) @ query.astype(np.int64).T - bias) >> shift, np.int16)


def nearest_rows(query: NDArray[np.int8], centroids: NDArray[np.uint8]) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """For each query row the largest dot product with a centroid, and the first that has it."""
    products = query.astype(np.int64) @ centroids.astype(np.int64).T
    return products.max(axis=1).astype(np.int32), products.argmax(axis=1).astype(np.int32)


def narrow_table(table: NDArray[np.int16], floor: NDArray[np.int16], shift: int) -> NDArray[np.uint8]:
    """(cells, lanes rounded up to 32)."""
    above = held(table.astype(np.int64) - floor, np.int16) >> shift
    return np.pad(held(above, np.uint8), ((0, 0), (0, -table.shape[1] % 32)))


def select_cells(table: NDArray[np.int16], n_query: int, n_probe: int) -> tuple[NDArray[np.int32], NDArray[np.int16]]:
    """For each query row the best cells, best first, equal ones by number."""
    scores = table.T[:n_query]
    cells = np.argsort(-scores.astype(np.int64), axis=1, kind="stable")[:, :n_probe]
    return cells.astype(np.int32), np.take_along_axis(scores, cells, axis=1)


def gather(
    cells: NDArray[np.int32],
    scores: NDArray[np.int16],
    floor: NDArray[np.int16],
    lists: list[list[int]],
    n_keep: int,
    allowed: NDArray[np.bool_] | None = None,
) -> tuple[list[int], list[int], int]:
    """For each document in the probed cells, the sum of its best scores less the floor; the n_keep best by number."""
    sums: dict[int, int] = {}
    for row in range(len(cells)):
        best: dict[int, int] = {}
        for cell, score in zip(cells[row].tolist(), scores[row].tolist(), strict=True):
            for doc in lists[cell]:
                if allowed is None or allowed[doc]:
                    best.setdefault(doc, score - int(floor[row]))
        for doc, gain in best.items():
            sums[doc] = sums.get(doc, 0) + gain
    kept = sorted(sorted(sums, key=lambda doc: (-sums[doc], doc))[:n_keep])
    return kept, [sums[doc] for doc in kept], len(sums)


def flood(
    narrow: NDArray[np.uint8], cells: NDArray[Any], begins: NDArray[np.int64], ends: NDArray[np.int64]
) -> NDArray[np.uint32]:
    """For each document the sum over lanes of the largest value among its cells; 0 without rows."""
    scores = [narrow[cells[begin:end]].max(axis=0, initial=0).sum() for begin, end in zip(begins, ends, strict=True)]
    return np.array(scores, np.uint32)


def pack_codes(codes: NDArray[np.uint8], bits: int) -> NDArray[np.uint8]:
    """(rows, dim) codes to (rows, dim * bits / 8): byte j holds at position bits * i the code of i * row bytes + j."""
    parts = np.split(codes, 8 // bits, axis=1)
    return np.asarray(np.bitwise_or.reduce([part << (bits * i) for i, part in enumerate(parts)]), np.uint8)


def residual_scores(query: NDArray[Any], codes: NDArray[np.uint8], rows: ResidualTerms) -> NDArray[np.float32]:
    """(rows, n_query) of float32, each operation rounded by itself. `codes` is (rows, dim), one code a value."""
    products = codes.astype(np.int64) @ query.astype(np.int64).T
    scores = products.astype(np.float32) * np.float32(rows.residual_scale)
    if rows.cell_scores is not None:
        scores = scores + rows.cell_scores.astype(np.float32) * np.float32(rows.cell_scale)
    return (scores + rows.offset) * rows.factors[:, None]


@dataclass(frozen=True)
class ResidualTerms:
    """What a score has besides the codes: for each row its cell's scores (rows, n_query) and its factor (rows,)."""

    residual_scale: float
    cell_scores: NDArray[np.int16] | None
    cell_scale: float
    offset: NDArray[np.float32]
    factors: NDArray[np.float32]


def residual_maxsim(
    scores: NDArray[np.float32], begins: NDArray[np.int64], ends: NDArray[np.int64]
) -> NDArray[np.float32]:
    """The sum, one query row after the other, of the best score of each document's rows; 0 without rows."""
    totals = np.zeros(len(begins), np.float32)
    for item, (begin, end) in enumerate(zip(begins, ends, strict=True)):
        if begin < end:
            for best in scores[begin:end].max(axis=0):
                totals[item] += best
    return totals


def ward_labels(rows: NDArray[Any], n_clusters: int) -> NDArray[np.int64]:
    """The cluster of each row: the two whose merging costs least become one, the first of equals, until enough are
    left. Two clusters cost what Ward's measure says, from their sizes and their means: for rows of length one that is
    the cosine distance of two single rows."""
    unit = rows.astype(np.float64) / np.maximum(np.linalg.norm(rows.astype(np.float64), axis=1, keepdims=True), 1e-300)
    clusters = [[row] for row in range(len(rows))]
    while len(clusters) > n_clusters:
        pairs = [
            (_ward_cost(unit, a, b), i, j) for i, a in enumerate(clusters) for j, b in enumerate(clusters) if i < j
        ]
        _, into, gone = min(pairs)
        clusters[into] += clusters.pop(gone)
    labels = np.zeros(len(rows), np.int64)
    for number, cluster in enumerate(clusters):
        labels[cluster] = number
    return labels


def _ward_cost(unit: NDArray[np.float64], a: list[int], b: list[int]) -> float:
    apart = unit[a].mean(axis=0) - unit[b].mean(axis=0)
    return float(len(a) * len(b) / (len(a) + len(b)) * (apart @ apart))


def pooled(rows: NDArray[Any], n_pooled: int, method: str) -> NDArray[np.float32]:
    """Means of clusters, brought to the mean length of their rows; rows repeated where there are too few."""
    if len(rows) <= n_pooled:
        return rows[np.arange(n_pooled) * len(rows) // n_pooled].astype(np.float32)
    by_place = np.arange(len(rows)) * n_pooled // len(rows)
    labels = by_place if method == "sequential" else ward_labels(rows, n_pooled)
    means = []
    for cluster in range(n_pooled):
        own = rows[labels == cluster].astype(np.float64)
        mean, length = own.mean(axis=0), np.linalg.norm(own, axis=1).mean()
        means.append(mean * length / np.linalg.norm(mean) if np.linalg.norm(mean) > 1e-6 * length else own[0])
    return np.asarray(means, np.float32)

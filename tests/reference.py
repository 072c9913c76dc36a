"""Reference implementations of the kernels, in plain NumPy: the definition of correct."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from plait.embeddings import MultiVectors, Rows
from plait.scoring.dense import ByteQuery, ByteRows
from plait.scoring.sparse import Impacts


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


def saturate(values: NDArray[Any], dtype: type[np.integer[Any]]) -> NDArray[Any]:
    """Integers clipped to the range of a type."""
    limits = np.iinfo(dtype)
    return np.asarray(np.clip(values, limits.min, limits.max), dtype)


def score_centroids(
    query: NDArray[np.int8], centroids: NDArray[np.uint8], bias: NDArray[np.int32], shift: int
) -> NDArray[np.int16]:
    """(cells, n_query): the dot products minus the bias, shifted."""
    return saturate((centroids.astype(np.int64) @ query.astype(np.int64).T - bias) >> shift, np.int16)


def nearest_centroids(
    query: NDArray[np.int8], centroids: NDArray[np.uint8]
) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """For each query row the largest dot product with a centroid, and the first centroid that has it."""
    products = query.astype(np.int64) @ centroids.astype(np.int64).T
    return products.max(axis=1).astype(np.int32), products.argmax(axis=1).astype(np.int32)


def narrow_table(table: NDArray[np.int16], floor: NDArray[np.int16], shift: int) -> NDArray[np.uint8]:
    """(cells, lanes rounded up to 32)."""
    above = saturate(table.astype(np.int64) - floor, np.int16) >> shift
    return np.pad(saturate(above, np.uint8), ((0, 0), (0, -table.shape[1] % 32)))


def select_cells(table: NDArray[np.int16], n_query: int, n_probe: int) -> tuple[NDArray[np.int32], NDArray[np.int16]]:
    """For each query row the best cells, best first, equal scores by number."""
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
    """For each document in the probed cells, the sum of its best scores minus the floor; the n_keep best, ascending."""
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


def centroid_maxsim(
    narrow: NDArray[np.uint8], cells: NDArray[Any], begins: NDArray[np.int64], ends: NDArray[np.int64]
) -> NDArray[np.uint32]:
    """For each document the sum over lanes of the largest value among its cells; 0 without rows."""
    scores = [narrow[cells[begin:end]].max(axis=0, initial=0).sum() for begin, end in zip(begins, ends, strict=True)]
    return np.array(scores, np.uint32)


def prune_rows(
    narrow: NDArray[np.uint8],
    cells: NDArray[Any],
    begins: NDArray[np.int64],
    ends: NDArray[np.int64],
    prune_margin: int,
) -> tuple[list[int], list[int]]:
    """Rows within the margin of the maximum of their document in some lane where it is not 0, or the first row; and the
    end of each document."""
    chosen: list[int] = []
    stops: list[int] = []
    for begin, end in zip(begins, ends, strict=True):
        values = narrow[cells[begin:end]].astype(int)
        near = (values > 0) & (values >= values.max(axis=0, initial=0) - prune_margin)
        kept = np.flatnonzero(near.any(axis=1)).tolist() or ([0] if begin < end else [])
        chosen += [int(begin) + row for row in kept]
        stops.append(len(chosen))
    return chosen, stops


def pack_codes(codes: NDArray[np.uint8], bits: int) -> NDArray[np.uint8]:
    """(rows, dim) codes to (rows, dim * bits / 8): byte j holds at position bits * i the code of i * row bytes + j."""
    parts = np.split(codes, 8 // bits, axis=1)
    return np.asarray(np.bitwise_or.reduce([part << (bits * i) for i, part in enumerate(parts)]), np.uint8)


def residual_scores(query: NDArray[Any], codes: NDArray[np.uint8], rows: ResidualTerms) -> NDArray[np.float32]:
    """(rows, n_query) of float32, each operation rounded separately. `codes` is (rows, dim), unpacked."""
    products = codes.astype(np.int64) @ query.astype(np.int64).T
    scores = products.astype(np.float32) * np.float32(rows.residual_scale)
    scores = (scores + rows.offset) * rows.lengths[:, None]
    if rows.cell_scores is not None:
        scores = scores + rows.cell_scores.astype(np.float32) * np.float32(rows.cell_scale)
    return scores * rows.factors[:, None]


@dataclass(frozen=True)
class ResidualTerms:
    """The parts of a score besides the codes: for each row the scores of its cell (rows, n_query), its length and
    factor."""

    residual_scale: float
    cell_scores: NDArray[np.int16] | None
    cell_scale: float
    offset: NDArray[np.float32]
    lengths: NDArray[np.float32]
    factors: NDArray[np.float32]


def residual_maxsim(
    scores: NDArray[np.float32], begins: NDArray[np.int64], ends: NDArray[np.int64]
) -> NDArray[np.float32]:
    """The sum over query rows, in order, of the best score of the rows of each document; 0 without rows."""
    totals = np.zeros(len(begins), np.float32)
    for item, (begin, end) in enumerate(zip(begins, ends, strict=True)):
        if begin < end:
            for best in scores[begin:end].max(axis=0):
                totals[item] += best
    return totals


def ward_labels(rows: NDArray[Any], n_clusters: int) -> NDArray[np.int64]:
    """The cluster of each row: the cheapest pair of clusters is merged, the first of equal pairs, until n_clusters are
    left. The cost is Ward's measure, from sizes and means; for two single rows of norm 1 it is the cosine distance."""
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
    difference = unit[a].mean(axis=0) - unit[b].mean(axis=0)
    return float(len(a) * len(b) / (len(a) + len(b)) * (difference @ difference))


def pooled(rows: NDArray[Any], n_pooled: int, method: str) -> NDArray[np.float32]:
    """Means of clusters, scaled to the mean norm of their rows; rows are repeated if there are too few."""
    if len(rows) <= n_pooled:
        return rows[np.arange(n_pooled) * len(rows) // n_pooled].astype(np.float32)
    runs = np.arange(len(rows)) * n_pooled // len(rows)
    labels = runs if method == "sequential" else ward_labels(rows, n_pooled)
    means = []
    for cluster in range(n_pooled):
        members = rows[labels == cluster].astype(np.float64)
        mean, length = members.mean(axis=0), np.linalg.norm(members, axis=1).mean()
        means.append(mean * length / np.linalg.norm(mean) if np.linalg.norm(mean) > 1e-6 * length else members[0])
    return np.asarray(means, np.float32)


def projected(rows: NDArray[Any], sample: NDArray[Any], dims: int, *, centred: bool = True) -> NDArray[np.float32]:
    """The rows by the mean and the principal directions of a sample, by its singular vectors, and scaled to length 1.
    The sign of a direction is open."""
    mean = sample.astype(np.float64).mean(axis=0) if centred else np.zeros(sample.shape[1])
    directions = np.linalg.svd(sample.astype(np.float64) - mean, full_matrices=False)[2][:dims]
    narrow = np.zeros((len(rows), dims))
    for number, row in enumerate(rows.astype(np.float64)):
        values = [float(np.dot(row - mean, direction)) for direction in directions]
        length = float(np.linalg.norm(values))
        narrow[number] = np.asarray(values) / (length if length > 0 else 1.0)
    return narrow.astype(np.float32)


def warp_score(query: NDArray[np.float32], codes: NDArray[np.uint8], bits: int) -> NDArray[np.float32]:
    """(rows,): the sum over dimensions of (code - middle) times query. `codes` is (rows, dim), unpacked."""
    return np.asarray((codes - (2**bits - 1) / 2) @ query.astype(np.float64), np.float32)


def xtr_scores(
    items: NDArray[np.uint32], scores: NDArray[np.float32], starts: NDArray[np.int64], missing: NDArray[np.float32]
) -> dict[int, float]:
    """For every retrieved item, the sum over query rows of its best score, or of `missing` if it was not retrieved."""
    best: list[dict[int, float]] = []
    for start, stop in pairwise(starts):
        row_best: dict[int, float] = {}
        for item, score in zip(items[start:stop].tolist(), scores[start:stop].tolist(), strict=True):
            row_best[item] = max(score, row_best.get(item, score))
        best.append(row_best)
    retrieved = {item for row_best in best for item in row_best}
    return {
        item: sum(row_best.get(item, float(imputed)) for row_best, imputed in zip(best, missing, strict=True))
        for item in retrieved
    }


@dataclass(frozen=True)
class DecodedItems:
    """Decoded items, for the methods below. Centroid scores are given, so that a method and its reference select among
    the same numbers."""

    centroid_scores: NDArray[np.float32]  # (cells, n_query)
    cells: NDArray[Any]  # (rows,)
    rows: NDArray[np.float32]  # (rows, dim)
    owners: NDArray[np.uint32]  # (rows,)
    n_items: int

    def best_cells(self, n_probe: int) -> NDArray[np.int64]:
        """(n_query, n_probe), best first."""
        return np.argsort(-self.centroid_scores.T, axis=1, kind="stable")[:, :n_probe]

    def maxsim(self, scores: NDArray[np.float32]) -> NDArray[np.float64]:
        """From row scores (rows, n_query) to the sum of maxima of each item; -inf without rows."""
        best = np.full((self.n_items, scores.shape[1]), -np.inf)
        np.maximum.at(best, self.owners, scores)
        return np.asarray(best.sum(axis=1))


def plaid(query: Rows, documents: DecodedItems, *, n_probe: int, t_cs: float, n_docs: int, k: int) -> dict[int, float]:
    """PLAID: candidates of the best cells, pruned twice by centroids, scored by their rows."""
    near = np.isin(documents.cells, documents.best_cells(n_probe)[:32])
    found = np.unique(documents.owners[near])
    surviving = documents.centroid_scores.max(axis=1) >= t_cs
    pruned = np.where(surviving[:, None], documents.centroid_scores, -9999.0)
    for table, n_keep in ((pruned, n_docs), (documents.centroid_scores, n_docs // 4)):
        approximate = documents.maxsim(table[documents.cells])[found]
        found = found[np.argsort(-approximate, kind="stable")[:n_keep]]
    exact = documents.maxsim(documents.rows @ query.T)
    best = sorted(found.tolist(), key=lambda item: (-exact[item], item))[:k]
    return {item: float(exact[item]) for item in best}


def best_tokens(
    scores: NDArray[np.float32], owners: NDArray[np.uint32], n_tokens: int
) -> tuple[dict[int, float], NDArray[np.float32]]:
    """From scores (rows, n_query): every query row retrieves its n_tokens best rows and imputes the score of the last.
    The sums of all retrieved items, and the imputed scores."""
    n_kept = min(n_tokens, len(scores))
    cut = np.sort(scores, axis=0)[len(scores) - n_kept]
    kept = [np.flatnonzero(scores[:, row] >= cut[row]) for row in range(scores.shape[1])]
    starts = np.cumsum([0, *map(len, kept)])
    values = np.concatenate([scores[rows, row] for row, rows in enumerate(kept)])
    return xtr_scores(owners[np.concatenate(kept)], values, starts, cut), cut


def xtr(query: Rows, documents: DecodedItems, *, n_tokens: int) -> dict[int, float]:
    """XTR: the best of all rows for each query row, then the mean over query rows."""
    sums, _ = best_tokens(documents.rows @ query.T, documents.owners, n_tokens)
    return {item: total / len(query) for item, total in sums.items()}


def colxtr(query: Rows, documents: DecodedItems, *, n_cells: int, n_tokens: int) -> dict[int, float]:
    """ColXTR: the same among the rows of the best cells of any query row, then the sum."""
    inside = np.isin(documents.cells, documents.best_cells(n_cells))
    return best_tokens(documents.rows[inside] @ query.T, documents.owners[inside], n_tokens)[0]


def warp(query: Rows, documents: DecodedItems, *, n_probe: int, t_prime: int, bound: int) -> dict[int, float]:
    """WARP: each query row scores the rows of its best cells, and imputes the score of the centroid whose cell
    completes t_prime rows. Rows are decoded without factors."""
    sizes = np.bincount(documents.cells, minlength=len(documents.centroid_scores))
    items, scores, starts, missing = [], [], [0], []
    for row, order in enumerate(documents.best_cells(max(n_probe, bound))):
        inside = np.flatnonzero(np.isin(documents.cells, order[:n_probe]))
        items.append(documents.owners[inside])
        scores.append(documents.rows[inside] @ query[row])
        starts.append(starts[-1] + len(inside))
        reached = np.flatnonzero(np.cumsum(sizes[order]) >= t_prime)
        missing.append(documents.centroid_scores[order[reached[0] if len(reached) else -1], row])
    return xtr_scores(
        np.concatenate(items), np.concatenate(scores), np.asarray(starts, np.int64), np.asarray(missing, np.float32)
    )


def sparse_scores(index: Impacts, terms: NDArray[np.int32], weights: NDArray[np.float32]) -> NDArray[np.float32]:
    """For every row, the sum over shared terms of impact times quantized query weight, in integers, times the scale of
    the row and the step of the query."""
    n_terms = max(len(terms), 1)
    levels = min(65535, (2**32 - 1) // (255 * n_terms))
    step = np.float32(weights.max() / levels) if len(weights) else np.float32(1)
    integers = np.clip(np.rint(weights / np.float64(step)), 1, levels).astype(np.int64)
    sums = np.zeros(len(index), np.int64)
    for term, weight in zip(terms.tolist(), integers.tolist(), strict=True):
        for position in np.flatnonzero(index.terms == term):
            entries = slice(index.offsets[position], index.offsets[position + 1])
            sums[index.rows[entries]] += weight * index.impacts[entries].astype(np.int64)
    return (sums * index.scales.astype(np.float64) * np.float64(step)).astype(np.float32)


def best_sparse(scores: NDArray[np.float32], k: int, allowed: NDArray[np.bool_] | None = None) -> NDArray[np.int64]:
    """The k rows with the largest scores above 0, equal scores by number."""
    kept = np.flatnonzero((scores > 0) if allowed is None else (scores > 0) & allowed)
    return kept[np.lexsort((kept, -scores[kept]))][:k]


def dot_rows(query: NDArray[np.float32], rows: NDArray[np.float32]) -> NDArray[np.float32]:
    return np.asarray(rows.astype(np.float64) @ query.astype(np.float64), np.float32)


def dot_bytes(
    query: ByteQuery, rows: ByteRows, begins: NDArray[np.int64], ends: NDArray[np.int64]
) -> NDArray[np.float32]:
    """The integer sum, then the scales in this order: (scale of the query * scale of the row) * sum."""
    chosen = np.concatenate([np.arange(begin, end) for begin, end in zip(begins, ends, strict=True)])
    sums = rows.codes[chosen].astype(np.int64) @ query.numbers.astype(np.int64)
    return np.asarray(np.float32(query.scale) * rows.scales[chosen] * sums.astype(np.float32))

"""The tasks of `benchmarks.kernels.run`: each kernel on data of a given size, and other libraries' ways to the same
answer.

Documents and cells are random, which is harder on caches than real data. NumPy multiplies in float32, which is exact
for these sizes; its integer products are far slower.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from plait.embeddings import MultiVectors
from plait.scoring import residual as integer
from plait.scoring.maxsim import maxsim

Way = Callable[[], object]


@dataclass(frozen=True)
class Task:
    """One kernel, the number of units that it handles, and the alternatives to time beside it."""

    name: str
    unit: str
    n_units: int
    n_bytes: int  # stored data and results per unit; the cost of random access is not counted
    kernel: Way
    with_numpy: Way | None
    with_numkong: Way | None = None


@dataclass(frozen=True)
class Sizes:
    n_query: int
    dim: int
    n_cells: int
    n_docs: int
    rows_per_doc: int
    n_candidates: int
    n_probe: int
    n_keep: int


def whole_numbers(rng: np.random.Generator, n_rows: int, dim: int) -> NDArray[np.int8]:
    """Rounded as the codec rounds a query: the largest absolute value becomes 127."""
    values = rng.standard_normal((n_rows, dim))
    rounded: NDArray[np.int8] = np.rint(values / np.abs(values).max() * 127).astype(np.int8)
    return rounded


def centroid_tasks(sizes: Sizes, rng: np.random.Generator) -> Iterator[Task]:
    query = whole_numbers(rng, sizes.n_query, sizes.dim)
    packed: Any = integer.pack_query(query)
    lanes = packed.shape[1]
    centroids = rng.integers(0, 128, (sizes.n_cells, sizes.dim), np.uint8)
    bias, floor = np.zeros(lanes, np.int32), np.zeros(lanes, np.int16)
    as_floats, query_floats = centroids.astype(np.float32), query.astype(np.float32)
    table = integer.score_centroids(packed, centroids, bias, 7)

    yield Task(
        "score_centroids",
        "centroid",
        sizes.n_cells,
        sizes.dim + 2 * lanes,
        lambda: integer.score_centroids(packed, centroids, bias, 7),
        lambda: np.clip(as_floats @ query_floats.T / 128, -32768, 32767).astype(np.int16),
    )
    tokens = whole_numbers(rng, 1536, sizes.dim)
    packed_tokens: Any = integer.pack_query(tokens)
    sample, token_floats = centroids[:4096], tokens.astype(np.float32)
    best, which = np.full(1536, integer.NO_SCORE, np.int32), np.full(1536, -1, np.int32)
    yield Task(
        "nearest_centroids, 1536 tokens",
        "centroid",
        len(sample),
        sizes.dim,
        lambda: integer.nearest_centroids(packed_tokens, sample, best, which),
        lambda: (as_floats[:4096] @ token_floats.T).argmax(axis=0),
    )
    yield Task(
        "narrow_table",
        "centroid",
        sizes.n_cells,
        2 * lanes + lanes + -lanes % 32,
        lambda: integer.narrow_table(table, floor, 2),
        lambda: np.clip((table - floor) >> 2, 0, 255).astype(np.uint8),
    )
    yield Task(
        f"select_cells, {sizes.n_probe}",
        "centroid",
        sizes.n_cells,
        2 * lanes,
        lambda: integer.select_cells(table, sizes.n_query, sizes.n_probe),
        lambda: np.argpartition(-table, sizes.n_probe, axis=0)[: sizes.n_probe],
    )


def posting_tasks(sizes: Sizes, rng: np.random.Generator) -> Iterator[Task]:
    cells = np.sort(rng.integers(0, sizes.n_cells, (sizes.n_docs, sizes.rows_per_doc)), axis=1)
    first = np.ones(cells.shape, bool)
    first[:, 1:] = cells[:, 1:] != cells[:, :-1]
    docs, used = np.nonzero(first)[0].astype(np.uint32), cells[first]
    order = np.argsort(used, kind="stable")
    postings = docs[order]
    offsets = np.concatenate(([0], np.cumsum(np.bincount(used, minlength=sizes.n_cells))))
    probed = np.array([rng.choice(sizes.n_cells, sizes.n_probe, replace=False) for _ in range(sizes.n_query)], np.int32)
    scores = -np.sort(-rng.integers(0, 2000, probed.shape, np.int16), axis=1)
    floor = np.zeros(sizes.n_query, np.int16)
    tally = integer.Tally(sizes.n_docs)

    def with_numpy() -> object:
        sums = np.zeros(sizes.n_docs, np.int32)
        best = np.zeros(sizes.n_docs, np.int32)
        for row in range(sizes.n_query):
            best[:] = 0
            for cell, score in zip(probed[row, ::-1], scores[row, ::-1], strict=True):
                best[postings[offsets[cell] : offsets[cell + 1]]] = score
            sums += best
        return np.sort(np.argpartition(-sums, sizes.n_keep)[: sizes.n_keep])

    n_postings = int((offsets[probed + 1] - offsets[probed]).sum())
    allowed = np.full(-(-sizes.n_docs // 8), 255, np.uint8)
    arguments = (probed, scores, floor, offsets, postings, sizes.n_keep)
    name = f"gather, best {sizes.n_keep}"
    yield Task(name, "posting", n_postings, 4, lambda: tally.gather(*arguments), with_numpy)
    yield Task(f"{name}, filtered", "posting", n_postings, 4, lambda: tally.gather(*arguments, allowed=allowed), None)


def document_tasks(sizes: Sizes, rng: np.random.Generator) -> Iterator[Task]:
    lanes, n_rows = integer.lanes_for(sizes.n_query), sizes.n_docs * sizes.rows_per_doc
    cells: NDArray[Any] = rng.integers(0, sizes.n_cells, n_rows).astype(
        np.uint16 if sizes.n_cells <= 1 << 16 else np.uint32
    )
    offsets = np.arange(sizes.n_docs + 1) * sizes.rows_per_doc
    begins, ends = offsets[:-1].copy(), offsets[1:].copy()
    narrow = np.pad(rng.integers(0, 256, (sizes.n_cells, lanes), np.uint8), ((0, 0), (0, -lanes % 32)))
    sample = slice(0, 2000)
    yield Task(
        "flood", "row", n_rows, cells.itemsize, lambda: integer.centroid_maxsim(narrow, cells, begins, ends), None
    )

    def numpy_centroid_maxsim() -> object:
        rows = narrow[cells[: ends[sample][-1]]]
        return np.maximum.reduceat(rows, begins[sample], axis=0).sum(axis=1)

    yield Task(
        "flood, 2000 documents",
        "row",
        len(begins[sample]) * sizes.rows_per_doc,
        cells.itemsize,
        lambda: integer.centroid_maxsim(narrow, cells, begins[sample].copy(), ends[sample].copy()),
        numpy_centroid_maxsim,
    )

    chosen = np.sort(rng.choice(sizes.n_docs, sizes.n_candidates, replace=False))
    table = rng.integers(-9999, 9999, (sizes.n_cells, lanes), np.int16)
    factors, offset = rng.integers(0, 256, n_rows).astype(np.uint8), np.zeros(lanes, np.float32)
    factor_table = np.linspace(0.9, 1.1, 256, dtype=np.float32)
    for bits in integer.BITS:
        values: NDArray[Any] = rng.integers(-127, 128, (sizes.n_query, sizes.dim)).astype(
            np.int16 if bits == 8 else np.int8
        )
        codes = rng.integers(0, 256, (n_rows, sizes.dim * bits // 8), np.uint8)
        query = integer.ResidualQuery(integer.pack_query(values), sizes.n_query, 1e-4, offset, table, 1e-4)
        rows = integer.CodedRows(bits, codes, cells, factors, factor_table, factors, factor_table)
        yield residual_task(sizes, query, rows, values, begins[chosen], ends[chosen])
        if bits == 2:
            yield from fixed_tasks(sizes, query, rng)


def fixed_tasks(sizes: Sizes, query: integer.ResidualQuery, rng: np.random.Generator) -> Iterator[Task]:
    """Random documents of 32 rows each: once by offsets, once by document numbers."""
    stride, n_docs = 32, 4 * sizes.n_docs
    n_rows = stride * n_docs
    codes = rng.integers(0, 256, (n_rows, sizes.dim // 4), np.uint8)
    cells: NDArray[Any] = rng.integers(0, sizes.n_cells, n_rows).astype(
        np.uint16 if sizes.n_cells <= 1 << 16 else np.uint32
    )
    factors = rng.integers(0, 256, n_rows).astype(np.uint8)
    factor_table = np.linspace(0.9, 1.1, 256, dtype=np.float32)
    rows = integer.CodedRows(2, codes, cells, factors, factor_table, factors, factor_table)
    chosen = rng.choice(n_docs, sizes.n_candidates, replace=False)
    begins = chosen * stride
    row_bytes = codes.shape[1] + cells.itemsize + 2
    n_scored = sizes.n_candidates * stride
    yield Task(
        "ragged, 32 rows, 2 bits",
        "row",
        n_scored,
        row_bytes,
        lambda: integer.residual_maxsim(query, rows, begins, begins + stride),
        None,
    )
    yield Task(
        "fixed, 32 rows, 2 bits",
        "row",
        n_scored,
        row_bytes,
        lambda: integer.residual_maxsim_strided(query, rows, stride, chosen),
        None,
    )


def residual_task(
    sizes: Sizes,
    query: integer.ResidualQuery,
    rows: integer.CodedRows,
    values: NDArray[Any],
    begins: NDArray[np.int64],
    ends: NDArray[np.int64],
) -> Task:
    sample_rows = np.concatenate([np.arange(begin, end) for begin, end in zip(begins[:200], ends[:200], strict=True)])
    table, cells = query.table, rows.cells
    assert table is not None
    assert cells is not None

    def with_numpy() -> object:
        spread = [(rows.codes[sample_rows] >> shift) & ((1 << rows.bits) - 1) for shift in range(0, 8, rows.bits)]
        products = np.concatenate(spread, axis=1).astype(np.float32) @ values.astype(np.float32).T
        scores = products * query.residual_scale * rows.length_table[rows.lengths[sample_rows], None]
        scores += table[cells[sample_rows], : sizes.n_query] * query.cell_scale
        scores = scores * rows.factor_table[rows.factors[sample_rows], None]
        return np.maximum.reduceat(scores, np.arange(0, len(sample_rows), sizes.rows_per_doc), axis=0).sum(axis=1)

    n_rows = len(begins) * sizes.rows_per_doc
    share = len(sample_rows) / n_rows  # NumPy is timed on fewer rows, and its time scaled up
    return Task(
        f"residual_maxsim, {rows.bits} bits",
        "row",
        n_rows,
        rows.codes.shape[1] + cells.itemsize + 2,
        lambda: integer.residual_maxsim(query, rows, begins, ends),
        lambda: [with_numpy() for _ in range(round(1 / share))],
    )


def float_tasks(sizes: Sizes, rng: np.random.Generator) -> Iterator[Task]:
    """Exact MaxSim. NumKong scores one document per call, from rows packed beforehand, and rounds."""
    query = rng.standard_normal((sizes.n_query, sizes.dim), np.float32)
    values = rng.standard_normal((sizes.n_candidates * sizes.rows_per_doc, sizes.dim), np.float32)
    offsets = np.arange(sizes.n_candidates + 1) * sizes.rows_per_doc
    for stored, name in ((values, "f32"), (values.astype(np.float16), "f16")):
        documents = MultiVectors(stored, offsets)
        yield Task(
            f"maxsim, {name}",
            "row",
            len(values),
            documents.values.itemsize * sizes.dim,
            partial(maxsim, query, documents),
            lambda: np.maximum.reduceat(values @ query.T, offsets[:-1], axis=0).sum(axis=1),
            with_numkong(query.astype(stored.dtype), documents),
        )


def with_numkong(query: NDArray[Any], documents: MultiVectors) -> Way | None:
    try:
        numkong = import_module("numkong")
    except ImportError:
        return None
    bounds = pairwise(documents.offsets.tolist())
    packed = [numkong.maxsim_pack(documents.values[begin:end]) for begin, end in bounds]
    packed_query = numkong.maxsim_pack(query)
    return lambda: [numkong.maxsim_packed(packed_query, each) for each in packed]

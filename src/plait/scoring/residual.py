"""Compressed late interaction, in integers: centroids against a query, and the coded rows around them.

Every instruction set gives the same bits. Arrays are never converted or copied.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from plait import _core
from plait.errors import ConfigError, InputError, PlaitError


class _NativeErrors:
    """Turns errors of the native module, which name types and shapes, into InputError. A class, not a generator: a
    search enters it a dozen times, and a generator would take as long as the smaller kernels."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, TypeError | ValueError | OverflowError) and not isinstance(error, PlaitError):
            raise InputError(f"the arrays do not fit each other: {error}") from error


_NATIVE_ERRORS = _NativeErrors()

Cells = NDArray[np.uint16] | NDArray[np.uint32]
NO_SCORE = np.iinfo(np.int32).min  # the initial value of `best` in `nearest_centroids`
BITS = (1, 2, 4, 8)


@dataclass(frozen=True, slots=True, eq=False)
class ResidualQuery:
    """A query for coded rows. The score of a stored row with a query row is ((R * residual_scale + offset) * length +
    table[cell] * cell_scale) * factor, where R is the sum over dimensions of code times packed value. Without a table
    its term is left out."""

    packed: NDArray[np.int8] | NDArray[np.int16]  # from pack_query; int16 for 8-bit codes, else int8
    n_query: int
    residual_scale: float
    offset: NDArray[np.float32]  # (lanes,)
    table: NDArray[np.int16] | None  # (cells, lanes), from score_centroids
    cell_scale: float


@dataclass(frozen=True, slots=True, eq=False)
class CodedRows:
    """Stored rows. With n bytes of codes a row, byte j holds, at bit position bits * i, the code of dimension i * n +
    j. `lengths` and `factors` are indices into their tables."""

    bits: int
    codes: NDArray[np.uint8]  # (rows, dim * bits / 8)
    cells: Cells | None  # (rows,)
    lengths: NDArray[np.uint8]  # (rows,)
    length_table: NDArray[np.float32]  # (256,)
    factors: NDArray[np.uint8]  # (rows,)
    factor_table: NDArray[np.float32]  # (256,)


def lanes_for(n_query: int) -> int:
    """n_query rounded up to a multiple of 8."""
    return -(-n_query // 8) * 8


def pack_query(values: NDArray[np.int8] | NDArray[np.int16]) -> NDArray[np.int8] | NDArray[np.int16]:
    """Query rows (n_query, dim) in the order that the kernels read: int8 as (dim / 4, lanes, 4), int16 as (dim / 2,
    lanes, 2). Lanes after the last query row are zeros."""
    if values.ndim != 2 or values.dtype not in (np.int8, np.int16):
        raise InputError(
            f"the query has shape {values.shape} and type {values.dtype}; it must be (n_query, dim) of int8 or int16"
        )
    n_query, dim = values.shape
    if n_query == 0 or dim == 0 or dim % 8:
        raise InputError(
            f"the query has shape {values.shape}; it needs at least one row, and a dim that is a multiple of 8"
        )
    step = 4 // values.dtype.itemsize
    padded = np.zeros((lanes_for(n_query), dim), values.dtype)
    padded[:n_query] = values
    return np.ascontiguousarray(padded.reshape(-1, dim // step, step).transpose(1, 0, 2))


def score_centroids(
    packed: NDArray[np.int8], centroids: NDArray[np.uint8], bias: NDArray[np.int32], shift: int
) -> NDArray[np.int16]:
    """(dot product - bias) >> shift of each centroid (cells, dim) with each query row, saturated to int16: (cells,
    lanes). Centroid values must be at most 127; larger values give wrong scores."""
    table = np.empty((len(centroids), packed.shape[1] if packed.ndim == 3 else 0), np.int16)
    with _NATIVE_ERRORS:
        _core.score_centroids(packed, centroids, bias, shift, table)
    return table


def nearest_centroids(
    packed: NDArray[np.int8],
    centroids: NDArray[np.uint8],
    best: NDArray[np.int32],
    which: NDArray[np.int32],
    *,
    first_row: int = 0,
) -> None:
    """Updates, for each query row, `best` (the largest dot product) and `which` (the number of its centroid, counted
    from `first_row`), both (n_query,), if a centroid here has a larger product. Start with NO_SCORE; centroids may be
    given in several blocks. Of equal products the first centroid stays."""
    with _NATIVE_ERRORS:
        _core.nearest_centroids(packed, centroids, first_row, best, which)


def assign_rows(
    numbers: NDArray[np.int8],
    rows: NDArray[np.int32],
    centroids: NDArray[np.uint8],
    best: NDArray[np.int32],
    which: NDArray[np.int32],
    *,
    first_row: int = 0,
) -> None:
    """`nearest_centroids` for the rows `rows`, each once, of `numbers` (all rows, dim). `best` and `which` have one
    value for each of all rows; only those of `rows` change."""
    with _NATIVE_ERRORS:
        _core.assign_rows(numbers, rows, centroids, first_row, best, which)


def narrow_table(table: NDArray[np.int16], floor: NDArray[np.int16], shift: int) -> NDArray[np.uint8]:
    """(table - floor) >> shift, saturated to uint8, with lanes rounded up to a multiple of 32: the table that
    `centroid_maxsim` and `prune_rows` read."""
    lanes = table.shape[1] if table.ndim == 2 else 0
    narrow = np.empty((len(table), -(-lanes // 32) * 32), np.uint8)
    with _NATIVE_ERRORS:
        _core.narrow_table(table, floor, shift, narrow)
    return narrow


def select_cells(table: NDArray[np.int16], n_query: int, n_probe: int) -> tuple[NDArray[np.int32], NDArray[np.int16]]:
    """The n_probe best cells of each query row, best first, equal scores by number, and their scores: both (n_query,
    n_probe)."""
    if not 1 <= n_probe <= len(table):
        raise ConfigError(f"n_probe is {n_probe}; it must be from 1 to the number of cells, {len(table)}")
    cells, scores = np.empty((n_query, n_probe), np.int32), np.empty((n_query, n_probe), np.int16)
    with _NATIVE_ERRORS:
        _core.select_cells(table, cells, scores)
    return cells, scores


class Tally:
    """The workspace of `gather` for a set of documents. Reusable, but for one query at a time."""

    def __init__(self, n_docs: int) -> None:
        self.n_docs = n_docs
        self._entries = np.zeros(n_docs, np.uint64)
        self._touched = np.empty(n_docs + 1, np.uint32)

    def gather(
        self,
        cells: NDArray[np.int32],
        scores: NDArray[np.int16],
        floor: NDArray[np.int16],
        offsets: NDArray[np.int64],
        postings: NDArray[np.uint32],
        n_keep: int,
        *,
        allowed: NDArray[np.uint8] | None = None,
    ) -> tuple[NDArray[np.uint32], NDArray[np.int32], int]:
        """The n_keep best documents of the probed cells in ascending order, their sums, and the number of documents
        met.

        The sum of a document adds up, over query rows, the score of its best probed cell minus `floor` (n_query,); a
        query row with no probed cell that has the document adds 0. `cells` and `scores` are from `select_cells`; the
        documents of cell c are postings[offsets[c] : offsets[c + 1]]. `allowed` has one bit for each document, the
        lowest bit of a byte first (numpy.packbits with bitorder="little"); other documents are skipped. Of equal sums
        the smaller document is kept.
        """
        if n_keep < 0:
            raise ConfigError(f"n_keep is {n_keep}; it must be 0 or more")
        n_most = min(n_keep, self.n_docs)
        docs, sums = np.empty(n_most, np.uint32), np.empty(n_most, np.int32)
        with _NATIVE_ERRORS:
            n_found, n_met = _core.gather(
                cells, scores, floor, offsets, postings, allowed, self._entries, self._touched, docs, sums
            )
        return docs[:n_found], sums[:n_found], n_met


def centroid_maxsim(
    narrow: NDArray[np.uint8], cells: Cells, begins: NDArray[np.int64], ends: NDArray[np.int64]
) -> NDArray[np.uint32]:
    """MaxSim as if each row were its centroid. Document i has the rows [begins[i], ends[i]) of `cells`; its score is
    the sum over lanes of its largest narrow[cell], 0 without rows."""
    scores = np.empty(len(begins), np.uint32)
    with _NATIVE_ERRORS:
        _core.centroid_maxsim(narrow, cells, begins, ends, scores)
    return scores


def prune_rows(
    narrow: NDArray[np.uint8], cells: Cells, begins: NDArray[np.int64], ends: NDArray[np.int64], prune_margin: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The rows of each document that may be the best for some query row, judged by their centroids: those whose
    narrow[cell] is, in some lane, above 0 and at most `prune_margin` below the maximum of the document; the first row
    if there is none. Returns their row numbers, one document after the other, and the end of each document in them."""
    if not 0 <= prune_margin <= 255:
        raise ConfigError(f"prune_margin is {prune_margin}; it must be from 0 to 255")
    n_rows = int((ends - begins).sum())
    if not 0 <= n_rows <= len(begins) * len(cells):
        raise InputError(f"{len(begins)} documents have {n_rows} rows, of {len(cells)} rows")
    with _NATIVE_ERRORS:
        chosen, stops = np.empty(n_rows + 1, np.int64), np.empty(len(begins), np.int64)
        n_chosen = _core.prune_rows(narrow, cells, begins, ends, prune_margin, chosen, stops)
    return chosen[:n_chosen], stops


def residual_maxsim(
    query: ResidualQuery, rows: CodedRows, begins: NDArray[np.int64], ends: NDArray[np.int64]
) -> NDArray[np.float32]:
    """The MaxSim of each document with rows [begins[i], ends[i]): the sum over query rows, in order, of the best score
    of one of its rows; 0 without rows."""
    scores = np.empty(len(begins), np.float32)
    with _NATIVE_ERRORS:
        _core.residual_maxsim(**_arguments(query, rows), begins=begins, ends=ends, scores=scores)
    return scores


def residual_maxsim_strided(
    query: ResidualQuery, rows: CodedRows, stride: int, items: NDArray[np.int64]
) -> NDArray[np.float32]:
    """`residual_maxsim` of the documents `items`, where every document has `stride` rows: the same bits."""
    scores = np.empty(len(items), np.float32)
    with _NATIVE_ERRORS:
        _core.residual_maxsim_strided(**_arguments(query, rows), stride=stride, items=items, scores=scores)
    return scores


def residual_maxsim_listed(
    query: ResidualQuery, rows: CodedRows, numbers: NDArray[np.int64], stops: NDArray[np.int64]
) -> NDArray[np.float32]:
    """`residual_maxsim` of documents given as row numbers: document i has rows numbers[stops[i - 1] : stops[i]]."""
    scores = np.empty(len(stops), np.float32)
    with _NATIVE_ERRORS:
        _core.residual_maxsim_listed(**_arguments(query, rows), numbers=numbers, stops=stops, scores=scores)
    return scores


def residual_scores(query: ResidualQuery, rows: CodedRows, numbers: NDArray[np.int64]) -> NDArray[np.float32]:
    """The score of each row in `numbers` with each query row: (numbers, lanes)."""
    scores = np.empty((len(numbers), len(query.offset)), np.float32)
    with _NATIVE_ERRORS:
        _core.residual_scores(**_arguments(query, rows), numbers=numbers, scores=scores)
    return scores


def encode_rows(
    rows: NDArray[np.float32],
    cells: NDArray[np.int32],
    centroids: NDArray[np.uint8],
    scale: float,
    steps: NDArray[np.float32],
    bits: int,
    length_table: NDArray[np.float32] | None = None,
) -> tuple[NDArray[np.uint8], NDArray[np.float32], NDArray[np.float32]]:
    """Codes (rows, dim * bits / 8), lengths (rows,) and factors (rows,) of rows around the centroids `cells`. A
    centroid value is (byte - 64) * scale. With a table, lengths are rounded to its nearest entry."""
    codes = np.empty((len(rows), rows.shape[1] * bits // 8 if rows.ndim == 2 else 0), np.uint8)
    lengths, factors = np.empty(len(rows), np.float32), np.empty(len(rows), np.float32)
    with _NATIVE_ERRORS:
        _core.encode_rows(rows, cells, centroids, scale, steps, bits, length_table, codes, lengths, factors)
    return codes, lengths, factors


def top_k(scores: NDArray[np.uint32] | NDArray[np.int32], k: int) -> NDArray[np.int64]:
    """The positions of the k largest scores (all, if there are fewer), largest first; equal scores by position."""
    if k < 0:
        raise ConfigError(f"k is {k}; it must be 0 or more")
    best = np.empty(min(k, len(scores)), np.int64)
    with _NATIVE_ERRORS:
        _core.top_k(scores, best)
    return best


def check_postings(offsets: NDArray[np.int64], postings: NDArray[np.uint32], n_docs: int) -> None:
    """Raises InputError unless offsets ascend from 0 to len(postings) and every posting is below n_docs. Reads all."""
    with _NATIVE_ERRORS:
        cell = _core.first_bad_offset(offsets, len(postings))
        if cell >= 0:
            raise InputError(f"the offsets of cell {cell} descend or leave the {len(postings)} postings")
        position = _core.first_not_below(postings, n_docs)
        if position >= 0:
            raise InputError(f"posting {position} is document {postings[position]}; there are {n_docs} documents")


def check_cells(cells: Cells, n_cells: int) -> None:
    """Raises InputError unless every cell is below n_cells. Reads all."""
    with _NATIVE_ERRORS:
        row = _core.first_not_below(cells, n_cells)
        if row >= 0:
            raise InputError(f"row {row} is in cell {cells[row]}; there are {n_cells} cells")


_QUERY_FIELDS, _ROW_FIELDS = (tuple(field.name for field in fields(kind)) for kind in (ResidualQuery, CodedRows))


def _arguments(query: ResidualQuery, rows: CodedRows) -> dict[str, Any]:
    arguments = {name: getattr(query, name) for name in _QUERY_FIELDS}
    for name in _ROW_FIELDS:
        arguments[name] = getattr(rows, name)
    return arguments

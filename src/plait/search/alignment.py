"""Which vector of a passage matches each vector of a query: MaxSim taken apart, for float16 and for compressed rows."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from plait.codec.codebook import CentroidQuery
from plait.codec.coded_items import CodedItems
from plait.codec.residual import residual_query
from plait.embeddings import Rows
from plait.errors import InputError
from plait.scoring.maxsim import align
from plait.scoring.residual import residual_scores, score_centroids

NO_ROW = -1


@dataclass(frozen=True, slots=True, eq=False)
class Alignment:
    """For each row of a query: the row of the passage that matched, counted within it, and what that added."""

    rows: NDArray[np.int64]  # (n_query,); NO_ROW where none did
    scores: NDArray[np.float32]  # (n_query,)
    imputed: NDArray[np.bool_]  # (n_query,)


@dataclass(frozen=True, slots=True, eq=False)
class CodedPassage:
    """One item of compressed rows."""

    items: CodedItems
    item: int


def explain_multi(
    query: NDArray[np.float32], passage: Rows | CodedPassage, *, floor: NDArray[np.float32] | None = None
) -> Alignment:
    """The best row of a passage for each row of `query` (n_query, dim), the first of equals.

    `floor` (n_query,) is what a plan that imputes puts in the place of scores it did not retrieve: a row whose best
    score is below it is marked as imputed, matches nothing and counts as its floor. Without rows, nothing matches.
    """
    if isinstance(passage, CodedPassage):
        rows, scores = _align_coded(query, passage)
    else:
        rows, scores = align(query, passage)
    imputed = np.zeros(len(query), np.bool_)
    if floor is not None:
        if floor.shape != (len(query),):
            raise InputError(f"the floor has shape {floor.shape}; it needs one value for each of {len(query)} rows")
        imputed = (scores < floor) | (rows == NO_ROW)
        rows, scores = np.where(imputed, NO_ROW, rows), np.where(imputed, floor, scores).astype(np.float32)
    return Alignment(rows, scores, imputed)


def _align_coded(query: NDArray[np.float32], passage: CodedPassage) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    items, begin, end = passage.items, *(int(passage.items.offsets[passage.item + add]) for add in (0, 1))
    if begin == end:
        return np.full(len(query), NO_ROW, np.int64), np.zeros(len(query), np.float32)
    codec, rows = items.codes_8bit or (items.codec, items.rows)  # the finest have the last word in a search too
    assert rows.cells is not None
    # Only the cells that the passage names are scored: a table of all of them costs as much as a search.
    named, centroids = rows.cells[begin:end], items.codec.codebook.centroids
    if named.max() >= len(centroids):
        raise InputError(f"item {passage.item} names cell {named.max()}, of {len(centroids)}")
    cells = CentroidQuery.of(query, items.codec.codebook)
    table = score_centroids(cells.packed, centroids[named], cells.bias, cells.shift)
    places = np.arange(end - begin)
    within = slice(begin, end)
    own = replace(
        rows,
        codes=rows.codes[within],
        cells=places.astype(np.uint32),
        lengths=rows.lengths[within],
        factors=rows.factors[within],
    )
    coded = residual_query(query, codec, table, cells.scale)
    scores = residual_scores(coded, own, places)[:, : len(query)]
    best = np.argmax(scores, axis=0)
    return best.astype(np.int64), np.ascontiguousarray(scores[best, np.arange(len(query))])

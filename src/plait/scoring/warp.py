"""WARP: scores the rows of probed cells without decompression. Each byte of codes indexes a table of partial scores.
The same bits on every machine."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from plait import _core
from plait.errors import InputError
from plait.scoring.residual import CodedRows


def score_probed_rows(
    query: NDArray[np.float32],
    coded: CodedRows,
    cells: NDArray[np.int32],
    cell_scores: NDArray[np.float32],
    offsets: NDArray[np.int64],
    rows: NDArray[np.int64],
    owners: NDArray[np.uint32],
) -> tuple[NDArray[np.uint32], NDArray[np.float32], NDArray[np.int64]]:
    """The rows in the cells (n_query, n_probe) of each query row (n_query, dim): their owners, their scores, and the
    start of each query row in both (n_query + 1,).

    The score of a row is cell_scores[query row, cell] + length * (sum over dimensions of (code - middle) * query), so
    the steps of the codes must be folded into the query; factors are ignored. The rows of cell c are
    rows[offsets[c]:offsets[c + 1]].
    """
    try:
        sizes = (offsets[cells + 1] - offsets[cells]).sum(axis=1, dtype=np.int64)
        starts = np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)])
        items, scores = np.empty(int(starts[-1]), np.uint32), np.empty(int(starts[-1]), np.float32)
        _core.score_probed_rows(
            query,
            coded.bits,
            coded.codes,
            coded.lengths,
            coded.length_table,
            cells,
            cell_scores,
            offsets,
            rows,
            owners,
            starts,
            items,
            scores,
        )
    except (TypeError, ValueError, IndexError) as error:
        raise InputError(f"the arrays do not fit each other: {error}") from error
    return items, scores, starts

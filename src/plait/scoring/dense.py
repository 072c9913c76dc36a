"""Dot products of one query with many dense vectors: in float32, and in integers, which give the same bits on every
instruction set. Row arrays are never converted or copied."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from plait import _core
from plait.errors import InputError

MAX_ROW_VALUE = 127
MAX_QUERY_VALUE = 2047  # much finer than int8, and the products still fit in 32 bits for thousands of dimensions
NO_FILTER = np.zeros(0, np.uint8)


@dataclass(frozen=True, slots=True, eq=False)
class ByteRows:
    """Rows of int8: a value is the code times the scale of its row."""

    codes: NDArray[np.int8]  # (rows, dim)
    scales: NDArray[np.float32]  # (rows,)

    def __len__(self) -> int:
        return len(self.codes)

    @classmethod
    def rounded(cls, rows: NDArray[np.float32]) -> ByteRows:
        """Quantizes rows of float32 (rows, dim); the largest magnitude of a row becomes 127."""
        scales = np.abs(rows).max(axis=1, initial=0.0).astype(np.float32) / np.float32(MAX_ROW_VALUE)
        codes = np.rint(rows / np.where(scales > 0, scales, 1)[:, None])
        return cls(codes.astype(np.int8), scales)


def dot_rows(
    query: NDArray[np.float32], rows: NDArray[np.float32], numbers: NDArray[np.int64] | None = None
) -> NDArray[np.float32]:
    """The dot product of a query (dim,) with every row (rows, dim), or with the rows `numbers`."""
    scores = np.empty(len(rows) if numbers is None else len(numbers), np.float32)
    query = np.ascontiguousarray(query, np.float32)
    try:
        if numbers is None:
            _core.dense_dot_f32(query, rows, scores)
        else:
            _core.dense_dot_f32_at(query, rows, np.ascontiguousarray(numbers, np.int64), scores)
    except (TypeError, ValueError) as error:
        raise InputError(f"the query and the rows do not fit each other: {error}") from error
    return scores


@dataclass(frozen=True, slots=True, eq=False)
class ByteQuery:
    """A query of int16, times a scale."""

    numbers: NDArray[np.int16]  # (dim,)
    scale: float

    @classmethod
    def of(cls, query: NDArray[np.float32]) -> ByteQuery:
        largest = min(MAX_QUERY_VALUE, (2**31 - 2) // (128 * max(len(query), 1)))
        scale = float(np.abs(query).max(initial=0.0)) / largest or 1.0
        return cls(np.rint(query / scale).astype(np.int16), scale)

    def scores(
        self,
        rows: ByteRows,
        begins: NDArray[np.int64],
        ends: NDArray[np.int64],
        *,
        owners: NDArray[np.uint32] | None = None,
        allowed: NDArray[np.uint8] | None = None,
    ) -> NDArray[np.float32]:
        """The dot products with the rows [begins[i], ends[i]) of all ranges, one range after another. `allowed` has
        one bit for each owner, the lowest bit of a byte first; rows of other owners are not read and score minus
        infinity."""
        if allowed is not None and owners is None:
            raise InputError("`allowed` needs `owners`, the owner of each row")
        scores = np.empty(int((ends - begins).sum()), np.float32)
        try:
            _core.dense_dot_int8(
                self.numbers,
                self.scale,
                rows.codes,
                rows.scales,
                np.zeros(0, np.uint32) if owners is None else owners,
                begins,
                ends,
                NO_FILTER if allowed is None else allowed,
                scores,
            )
        except (TypeError, ValueError) as error:
            raise InputError(f"the query and the rows do not fit each other: {error}") from error
        return scores

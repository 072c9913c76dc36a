"""Dot products of one query with many rows, over arrays: in floats, and in whole numbers that every instruction set
adds up alike. Arrays are used as they are, never converted."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from plait import _core
from plait.errors import InputError

LARGEST_ROW = 127
LARGEST_QUERY = 2047  # finer than a row's bytes by far; their products still fit in 32 bits for thousands of dimensions
NO_BITS = np.zeros(0, np.uint8)


@dataclass(frozen=True, slots=True, eq=False)
class ByteRows:
    """Rows as bytes: a value is the byte times the scale of its row."""

    codes: NDArray[np.int8]  # (rows, dim)
    scales: NDArray[np.float32]  # (rows,)

    def __len__(self) -> int:
        return len(self.codes)

    @classmethod
    def rounded(cls, rows: NDArray[np.float32]) -> ByteRows:
        """The nearest to rows of floats; the largest magnitude of a row becomes 127."""
        scales = np.abs(rows).max(axis=1, initial=0.0).astype(np.float32) / np.float32(LARGEST_ROW)
        codes = np.rint(rows / np.where(scales > 0, scales, 1)[:, None])
        return cls(codes.astype(np.int8), scales)


def dot_rows(
    query: NDArray[np.float32], rows: NDArray[np.float32], numbers: NDArray[np.int64] | None = None
) -> NDArray[np.float32]:
    """The product of a query (dim,) with every row (rows, dim), or with those that are numbered."""
    scores = np.empty(len(rows) if numbers is None else len(numbers), np.float32)
    asked = np.ascontiguousarray(query, np.float32)
    try:
        if numbers is None:
            _core.dense_dot_f32(asked, rows, scores)
        else:
            _core.dense_dot_f32_at(asked, rows, np.ascontiguousarray(numbers, np.int64), scores)
    except (TypeError, ValueError) as error:
        raise InputError(f"the query and the rows do not fit each other: {error}") from error
    return scores


@dataclass(frozen=True, slots=True, eq=False)
class ByteQuery:
    """A query as whole numbers, times a scale."""

    numbers: NDArray[np.int16]  # (dim,)
    scale: float

    @classmethod
    def of(cls, query: NDArray[np.float32]) -> ByteQuery:
        largest = min(LARGEST_QUERY, (2**31 - 2) // (128 * max(len(query), 1)))
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
        """The products with the rows of all ranges, one range after another. `allowed` has a bit for each owner, the
        lowest of a byte first; rows whose owner's is not set are not read, and score minus infinity."""
        if allowed is not None and owners is None:
            raise InputError("rows were to be allowed by their owners, and no owners were given")
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
                NO_BITS if allowed is None else allowed,
                scores,
            )
        except (TypeError, ValueError) as error:
            raise InputError(f"the query and the rows do not fit each other: {error}") from error
        return scores

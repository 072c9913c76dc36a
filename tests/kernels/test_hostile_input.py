"""The native module with arguments that plait.scoring would refuse: it raises, and never reads out of bounds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from plait import _core

QUERY = np.ones((3, 4), np.float32)
ROWS = np.ones((10, 4), np.float32)
HUGE = np.iinfo(np.int64).max
HOSTILE = [[-1, 5], [0, 11], [0, HUGE], [HUGE, HUGE], [-HUGE - 1, 0], [5, 3], [0, 10, 3, 10], []]


def refuses(call: Any, *arrays: Any, error: type[Exception] = ValueError) -> None:
    with pytest.raises(error):
        call(*arrays)


@pytest.mark.parametrize("rows", [ROWS, ROWS.astype(np.float16), ROWS.astype(np.float16).view(np.uint16)])
@pytest.mark.parametrize("offsets", HOSTILE, ids=str)
def test_invalid_offsets_are_refused(offsets: list[int], rows: Any) -> None:
    bounds = np.array(offsets, np.int64)
    n_docs = max(len(bounds) - 1, 0)
    refuses(_core.maxsim, QUERY, rows, bounds, np.empty(n_docs, np.float32))
    refuses(_core.maxsim_items, QUERY, rows, bounds, np.arange(max(n_docs, 1)), np.empty(max(n_docs, 1), np.float32))


@pytest.mark.parametrize("item", [-1, 2, HUGE, -HUGE - 1])
def test_items_out_of_range_are_refused(item: int) -> None:
    refuses(_core.maxsim_items, QUERY, ROWS, np.array([0, 4, 10]), np.array([0, item]), np.empty(2, np.float32))


def test_float16_values_may_come_as_raw_words() -> None:
    halves, scores = np.linspace(-2, 2, 40, dtype=np.float16).reshape(10, 4), np.empty((2, 1), np.float32)
    _core.maxsim(QUERY, halves, np.array([0, 10]), scores[0])
    _core.maxsim(QUERY, halves.view(np.uint16), np.array([0, 10]), scores[1])
    assert scores[0] == scores[1]


def test_an_output_of_the_wrong_size_is_refused() -> None:
    scores, best = np.empty(2, np.float32), np.empty(11, np.int64)
    refuses(_core.maxsim, QUERY, ROWS, np.array([0, 10]), scores)
    refuses(_core.maxsim_items, QUERY, ROWS, np.array([0, 10]), np.array([0]), scores)
    refuses(_core.align, QUERY, ROWS, best, np.empty(3, np.float32))
    refuses(_core.top_k, np.ones(10, np.float32), best)
    refuses(_core.crc32c_blocks, b"12345", 2, np.empty(2, np.uint32))
    refuses(_core.crc32c_blocks, b"12345", 0, np.empty(0, np.uint32))


def test_wrong_shapes_are_refused() -> None:
    one, scores = np.array([0, 10]), np.empty(1, np.float32)
    refuses(_core.maxsim, np.ones((3, 5), np.float32), ROWS, one, scores)
    refuses(_core.maxsim, np.ones((0, 4), np.float32), ROWS, one, scores)
    refuses(_core.maxsim, np.ones((3, 0), np.float32), np.ones((10, 0), np.float32), one, scores)


def test_nothing_is_converted() -> None:
    one, scores = np.array([0, 10]), np.empty(1, np.float32)
    read_only = scores.copy()
    read_only.flags.writeable = False
    refuses(_core.maxsim, QUERY.astype(np.float64), ROWS, one, scores, error=TypeError)
    refuses(_core.maxsim, QUERY, ROWS.astype(np.float64), one, scores, error=TypeError)
    refuses(_core.maxsim, QUERY, np.asfortranarray(ROWS), one, scores, error=TypeError)
    refuses(_core.maxsim, QUERY, ROWS, one.astype(np.int32), scores, error=TypeError)
    refuses(_core.maxsim, QUERY, ROWS, one, read_only, error=TypeError)
    refuses(_core.maxsim, QUERY, ROWS.tolist(), one, scores, error=TypeError)

"""Arguments that plait.scoring refuses, with a message that names the wrong value."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from plait.embeddings import MultiVectors
from plait.errors import ConfigError, InputError
from plait.scoring.crc32c import crc32c, crc32c_blocks
from plait.scoring.maxsim import align, maxsim, top_k

QUERY = np.ones((3, 4), np.float32)


def documents(dim: int = 4) -> MultiVectors:
    return MultiVectors(np.ones((10, dim), np.float32), np.array([0, 4, 10]))


@pytest.mark.parametrize(
    ("query", "message"),
    [
        (np.ones((3, 5), np.float32), "5 dimensions and the documents have 4"),
        (np.ones((3, 4)), "type float64"),
        (np.ones(4, np.float32), r"shape \(4,\)"),
        (np.ones((0, 4), np.float32), "at least one row"),
        (np.full((3, 4), np.nan, np.float32), "NaN"),
    ],
)
def test_an_invalid_query_is_refused(query: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        maxsim(query, documents())
    with pytest.raises(InputError, match=message):
        align(query, documents().values)


def test_a_query_that_is_not_contiguous_is_scored() -> None:
    wide = np.random.default_rng(0).standard_normal((6, 8), np.float32)
    np.testing.assert_array_equal(
        maxsim(wide[::2, ::2], documents()), maxsim(np.ascontiguousarray(wide[::2, ::2]), documents())
    )


@pytest.mark.parametrize("values", [np.ones((10, 4)), np.ones((4, 10), np.float32).T])
def test_rows_are_never_converted(values: Any) -> None:
    with pytest.raises(InputError, match=r"float32 or float16|contiguous"):
        maxsim(QUERY, MultiVectors(values, np.array([0, 10])))


@pytest.mark.parametrize("n_threads", [1, 2])
@pytest.mark.parametrize("changed", [-1, 11, 3], ids=["negative", "beyond the end", "decreasing"])
def test_offsets_changed_after_their_check_are_refused(changed: int, n_threads: int) -> None:
    batch = MultiVectors(np.ones((10, 4), np.float32), np.array([0, 4, 6, 10]))
    batch.offsets[2] = changed
    for items in (None, np.arange(3)):
        with pytest.raises(InputError, match="offsets"):
            maxsim(QUERY, batch, items=items, n_threads=n_threads)


@pytest.mark.parametrize("n_threads", [1, 2])
@pytest.mark.parametrize("items", [np.array([0, 2]), np.array([-1, 0])])
def test_items_out_of_range_are_refused(items: Any, n_threads: int) -> None:
    with pytest.raises(InputError, match="of 2"):
        maxsim(QUERY, documents(), items=items, n_threads=n_threads)


def test_items_of_another_type_are_refused() -> None:
    with pytest.raises(InputError, match="int32"):
        maxsim(QUERY, documents(), items=np.array([0], np.int32))


def test_zero_threads_are_refused() -> None:
    with pytest.raises(ConfigError, match="n_threads is 0"):
        maxsim(QUERY, documents(), n_threads=0)


def test_top_k_refuses_nan_and_negative_k() -> None:
    with pytest.raises(InputError, match="score 1 is NaN"):
        top_k(np.array([1, np.nan], np.float32), 1)
    with pytest.raises(ConfigError, match="k is -1"):
        top_k(np.ones(3, np.float32), -1)
    with pytest.raises(InputError, match="float64"):
        top_k(np.ones(3), 1)  # type: ignore[arg-type]


def test_invalid_arguments_of_a_checksum_are_refused() -> None:
    with pytest.raises(InputError, match="not str"):
        crc32c("text")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="not contiguous"):
        crc32c(np.ones((4, 4))[:, ::2])
    with pytest.raises(ConfigError, match="seed"):
        crc32c(b"", -1)
    with pytest.raises(ConfigError, match="block_size is 0"):
        crc32c_blocks(b"", 0)

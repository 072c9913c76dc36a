"""WARP scores from tables of bytes equal the sum over dimensions, for all numbers of bits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import reference
from plait import _core
from plait.codec.coded_items import RowPostings
from plait.errors import InputError
from plait.scoring.residual import CodedRows
from plait.scoring.warp import score_probed_rows

N_ROWS, N_CELLS, N_ITEMS = 300, 9, 40


def random_case(dim: int, bits: int, seed: int = 0) -> tuple[CodedRows, NDArray[np.uint8], RowPostings]:
    rng = np.random.default_rng(seed)
    codes = rng.integers(0, 2**bits, (N_ROWS, dim), np.uint8)
    cells = rng.integers(0, N_CELLS - 1, N_ROWS).astype(np.uint16)  # the last cell is empty
    owners = np.sort(rng.integers(0, N_ITEMS, N_ROWS)).astype(np.uint32)
    lengths, table = rng.integers(0, 256, N_ROWS).astype(np.uint8), rng.random(256, np.float32)
    rows = CodedRows(
        bits,
        reference.pack_codes(codes, bits),
        cells,
        lengths,
        table,
        np.zeros(N_ROWS, np.uint8),
        np.ones(256, np.float32),
    )
    return rows, codes, RowPostings.of(cells, owners, N_CELLS)


@pytest.mark.parametrize("bits", [1, 2, 4, 8])
@pytest.mark.parametrize("dim", [8, 24, 32, 128])
def test_scores_equal_their_reference(bits: int, dim: int) -> None:
    coded, codes, postings = random_case(dim, bits)
    rng = np.random.default_rng(1)
    query = rng.standard_normal((5, dim), np.float32) / np.float32(2**bits)
    cells = np.array([rng.permutation(N_CELLS)[:4] for _ in query], np.int32)
    bases = rng.standard_normal(cells.shape, np.float32)
    items, scores, starts = score_probed_rows(
        query, coded, cells, bases, postings.offsets, postings.rows, postings.items
    )
    for row in range(len(query)):
        entries = slice(starts[row], starts[row + 1])
        numbers, owners, lengths = postings.of_cells(cells[row])
        scaled = coded.length_table[coded.lengths[numbers]] * reference.warp_score(query[row], codes[numbers], bits)
        wanted = np.repeat(bases[row], lengths) + scaled
        np.testing.assert_array_equal(items[entries], owners)
        np.testing.assert_allclose(scores[entries], wanted, rtol=1e-5, atol=1e-5)


def test_filtered_postings_keep_the_order() -> None:
    _, _, postings = random_case(8, 2)
    keep = np.arange(N_ITEMS) % 3 == 0
    kept = postings.only(keep)
    for cell in range(N_CELLS):
        rows, owners, _ = postings.of_cells(np.array([cell]))
        np.testing.assert_array_equal(kept.of_cells(np.array([cell]))[0], rows[keep[owners]])
        np.testing.assert_array_equal(kept.of_cells(np.array([cell]))[1], owners[keep[owners]])


def valid_arguments() -> list[Any]:
    coded, _, postings = random_case(16, 2)
    cells = np.array([[0, 1], [2, 3]], np.int32)
    sizes = postings.sizes[cells].sum(axis=1)
    starts = np.concatenate([[0], np.cumsum(sizes)])
    query, bases = np.ones((2, 16), np.float32), np.zeros((2, 2), np.float32)
    return [
        *(query, 2, coded.codes, coded.lengths, coded.length_table, cells, bases),
        *(postings.offsets, postings.rows, postings.items, starts),
        *(np.empty(starts[-1], np.uint32), np.empty(starts[-1], np.float32)),
    ]


@pytest.mark.parametrize(
    ("place", "change"),
    [
        (0, lambda query: query[:1]),
        (0, lambda query: query[:, :8].copy()),
        (1, lambda bits: bits + 1),
        (1, lambda bits: bits * 2),
        (3, lambda lengths: lengths[:5]),
        (4, lambda table: table[:255]),
        (5, lambda cells: cells + N_CELLS),
        (5, lambda cells: cells - 1),
        (5, lambda cells: cells[:, :1].copy()),
        (6, lambda bases: bases[:1]),
        (7, lambda offsets: offsets + 1000),
        (7, lambda offsets: -offsets),
        (7, lambda offsets: offsets[:0]),
        (7, lambda offsets: offsets[::-1].copy()),
        (8, lambda rows: rows + N_ROWS),
        (8, lambda rows: rows - N_ROWS - 1),
        (8, lambda rows: rows[:5]),
        (9, lambda owners: owners[:5]),
        (10, lambda starts: starts - 1),
        (10, lambda starts: np.array([0, 0, starts[-1]])),
        (10, lambda starts: np.array([0, starts[-1], starts[-1]])),
        (10, lambda starts: np.array([0, 2**62, starts[-1]])),
        (11, lambda items: items[:3]),
        (12, lambda scores: scores[:3]),
    ],
)
def test_invalid_arguments_are_refused_by_the_core(place: int, change: Any) -> None:
    arguments = valid_arguments()
    _core.score_probed_rows(*arguments)
    arguments[place] = change(arguments[place])
    with pytest.raises(ValueError, match=r"\w"):
        _core.score_probed_rows(*arguments)


def test_wrong_arrays_are_input_errors() -> None:
    coded, _, postings = random_case(16, 2)
    query, bases = np.ones((1, 16), np.float32), np.zeros((1, 1), np.float32)
    for cell in (N_CELLS, -N_CELLS - 5):
        with pytest.raises(InputError):
            score_probed_rows(
                query, coded, np.array([[cell]], np.int32), bases, postings.offsets, postings.rows, postings.items
            )

"""MaxSim over coded rows: the same bits as the reference and as every other instruction set."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import reference
from kernels.grids import DIMS, N_QUERY, grid
from plait.errors import InputError
from plait.scoring import residual
from plait.scoring.residual import CodedRows, ResidualQuery

LENGTHS = [3, 0, 1, 24, 25, 0, 60, 2]
N_CELLS = 40


class Case:
    """A random query and random rows, in the types of the kernels and of the reference."""

    def __init__(self, bits: int, dim: int, n_query: int, *, table: bool = True, cells: type = np.uint16) -> None:
        rng = np.random.default_rng(dim + n_query + bits)
        self.offsets = np.cumsum([0, *LENGTHS])
        n_rows, lanes = int(self.offsets[-1]), residual.lanes_for(n_query)
        largest = 127 if bits < 8 else min(32767, (2**31 - 1) // (255 * dim))
        dtype = np.int8 if bits < 8 else np.int16
        self.values: NDArray[Any] = rng.integers(-largest, largest + 1, (n_query, dim)).astype(dtype)
        self.codes = rng.integers(0, 1 << bits, (n_rows, dim)).astype(np.uint8)
        self.scores_of_cells = rng.integers(-32768, 32768, (N_CELLS, lanes), np.int16)
        self.offset = rng.standard_normal(lanes, np.float32)
        self.length_table, self.factor_table = rng.random(256, np.float32), rng.random(256, np.float32)
        self.cells: NDArray[Any] = rng.integers(0, N_CELLS, n_rows).astype(cells)
        self.lengths, self.factors = (rng.integers(0, 256, n_rows).astype(np.uint8) for _ in range(2))
        self.has_table = table
        self.bits = bits

    def query(self) -> ResidualQuery:
        table = self.scores_of_cells if self.has_table else None
        return ResidualQuery(residual.pack_query(self.values), len(self.values), 1.7e-4, self.offset, table, 3.1e-5)

    def rows(self) -> CodedRows:
        codes = self.codes if self.bits == 8 else reference.pack_codes(self.codes, self.bits)
        cells = self.cells if self.has_table else None
        return CodedRows(self.bits, codes, cells, self.lengths, self.length_table, self.factors, self.factor_table)

    def expected(self) -> NDArray[np.float32]:
        n_query = len(self.values)
        cell_scores = self.scores_of_cells[self.cells, :n_query] if self.has_table else None
        terms = reference.ResidualTerms(
            1.7e-4,
            cell_scores,
            3.1e-5,
            self.offset[:n_query],
            self.length_table[self.lengths],
            self.factor_table[self.factors],
        )
        return reference.residual_scores(self.values, self.codes, terms)

    def check(self) -> None:
        begins, ends = self.offsets[:-1].copy(), self.offsets[1:].copy()
        scores = residual.residual_maxsim(self.query(), self.rows(), begins, ends)
        same_bits(scores, reference.residual_maxsim(self.expected(), begins, ends))
        numbers = np.random.default_rng(0).integers(0, len(self.codes), 30)
        each = residual.residual_scores(self.query(), self.rows(), numbers)
        same_bits(each[:, : len(self.values)].copy(), self.expected()[numbers])


def same_bits(found: NDArray[np.float32], expected: NDArray[np.float32]) -> None:
    np.testing.assert_array_equal(found.view(np.uint32), expected.view(np.uint32))


@pytest.mark.parametrize("bits", residual.BITS)
@pytest.mark.parametrize("n_query", N_QUERY)
@pytest.mark.parametrize("dim", DIMS)
def test_scores_equal_their_reference_to_the_bit(dim: int, n_query: int, bits: int) -> None:
    Case(bits, dim, n_query).check()


@pytest.mark.parametrize("bits", residual.BITS)
@pytest.mark.parametrize("dim", [40, 56, 72, 200, 512])
def test_rows_of_any_number_of_bytes_are_decoded(dim: int, bits: int) -> None:
    Case(bits, dim, 22).check()


@pytest.mark.parametrize("bits", residual.BITS)
@pytest.mark.parametrize("n_query", [1, 9, 33])
def test_without_a_table_its_term_is_left_out(n_query: int, bits: int) -> None:
    Case(bits, 24, n_query, table=False).check()


@pytest.mark.parametrize("bits", residual.BITS)
def test_cells_may_be_four_bytes_wide(bits: int) -> None:
    Case(bits, 24, 9, cells=np.uint32).check()


@pytest.mark.parametrize("value", [-128, -127, 127])
@pytest.mark.parametrize("dim", [128, 512])
@pytest.mark.parametrize("bits", [1, 2, 4])
def test_the_largest_values_do_not_overflow(bits: int, dim: int, value: int) -> None:
    case = Case(bits, dim, 9)
    case.values[:], case.codes[:] = value, (1 << bits) - 1
    case.check()


@pytest.mark.parametrize("sign", [-1, 1])
def test_the_largest_sums_of_eight_bits_do_not_overflow(sign: int) -> None:
    case = Case(8, 128, 9)
    case.values[:], case.codes[:] = sign * 32767, 255
    case.check()


@pytest.mark.parametrize("bits", residual.BITS)
def test_a_document_scores_the_same_alone_as_among_others(bits: int) -> None:
    case = Case(bits, 96, 22)
    begins, ends = case.offsets[:-1].copy(), case.offsets[1:].copy()
    together = residual.residual_maxsim(case.query(), case.rows(), begins, ends)
    order = np.random.default_rng(1).permutation(len(begins))
    same_bits(residual.residual_maxsim(case.query(), case.rows(), begins[order], ends[order]), together[order])
    alone = [residual.residual_maxsim(case.query(), case.rows(), begins[i : i + 1], ends[i : i + 1])[0] for i in order]
    same_bits(np.array(alone, np.float32), together[order])


@pytest.mark.parametrize("bits", residual.BITS)
def test_nothing_to_score_gives_nothing(bits: int) -> None:
    case, none = Case(bits, 24, 9), np.zeros(0, np.int64)
    assert residual.residual_maxsim(case.query(), case.rows(), none, none).shape == (0,)
    assert residual.residual_scores(case.query(), case.rows(), none).shape == (0, 16)


@pytest.mark.parametrize("shift", [1, 2, 3])
def test_unaligned_and_read_only_rows_are_scored_in_place(shift: int) -> None:
    case = Case(2, 24, 9)

    def moved(array: NDArray[Any]) -> NDArray[Any]:
        raw = np.zeros(array.nbytes + shift, np.uint8)
        raw[shift:] = np.frombuffer(array.tobytes(), np.uint8)
        raw.flags.writeable = False
        return raw[shift:].view(array.dtype).reshape(array.shape)

    rows = case.rows()
    assert rows.cells is not None
    unaligned = replace(
        rows, codes=moved(rows.codes), cells=moved(rows.cells), lengths=moved(rows.lengths), factors=moved(rows.factors)
    )
    begins, ends = case.offsets[:-1].copy(), case.offsets[1:].copy()
    expected = residual.residual_maxsim(case.query(), rows, begins, ends)
    same_bits(residual.residual_maxsim(case.query(), unaligned, begins, ends), expected)


def numbered(n_docs: int) -> NDArray[np.int64]:
    """All documents in random order, one of them twice."""
    order = np.random.default_rng(n_docs).permutation(n_docs)
    return np.append(order, order[0])


@pytest.mark.parametrize("bits", residual.BITS)
@pytest.mark.parametrize("stride", grid([1, 23], rest=[5, 115]))
@pytest.mark.parametrize(("dim", "n_query"), [(8, 1), (24, 9), (128, 24), (128, 33)])
def test_strided_documents_score_the_same_as_ranges(dim: int, n_query: int, stride: int, bits: int) -> None:
    case = Case(bits, dim, n_query)  # of 115 rows
    items = numbered(len(case.codes) // stride)
    found = residual.residual_maxsim_strided(case.query(), case.rows(), stride, items)
    same_bits(found, residual.residual_maxsim(case.query(), case.rows(), items * stride, (items + 1) * stride))
    same_bits(found, reference.residual_maxsim(case.expected(), items * stride, (items + 1) * stride))


@pytest.mark.parametrize("cells", [np.uint16, np.uint32])
def test_many_strided_documents_are_checked_in_stretches(cells: type) -> None:
    case = Case(2, 24, 9, cells=cells)
    items = np.random.default_rng(0).integers(0, 23, 5000)
    found = residual.residual_maxsim_strided(case.query(), case.rows(), 5, items)
    same_bits(found, reference.residual_maxsim(case.expected(), np.arange(23) * 5, np.arange(1, 24) * 5)[items])
    case.cells[112] = N_CELLS
    with pytest.raises(InputError, match="row 112 names a cell"):
        residual.residual_maxsim_strided(case.query(), case.rows(), 5, items)
    residual.residual_maxsim_strided(case.query(), case.rows(), 5, items[items != 22])
    without = Case(2, 24, 9, table=False)
    assert len(residual.residual_maxsim_strided(without.query(), without.rows(), 5, items)) == 5000


@pytest.mark.parametrize(
    ("stride", "items"), [(0, [0]), (-1, [0]), (4, [0]), (116, [0]), (5, [23]), (5, [-1]), (5, [2**62])]
)
def test_documents_out_of_range_are_refused(stride: int, items: list[int]) -> None:
    case = Case(2, 24, 9)
    with pytest.raises(InputError):
        residual.residual_maxsim_strided(case.query(), case.rows(), stride, np.array(items))


def test_cells_beyond_the_table_are_refused() -> None:
    case = Case(2, 24, 9)
    case.cells[30] = N_CELLS
    begins, ends = case.offsets[:-1].copy(), case.offsets[1:].copy()
    with pytest.raises(InputError, match="row 30 names a cell"):
        residual.residual_maxsim(case.query(), case.rows(), begins, ends)
    with pytest.raises(InputError, match="row 30 names a cell"):
        residual.residual_scores(case.query(), case.rows(), np.array([2, 30]))
    residual.residual_scores(case.query(), case.rows(), np.array([2, 31]))


@pytest.mark.parametrize(("begin", "end"), [(-1, 3), (0, 2**40), (4, 3), (2**62, 2**63 - 1)])
def test_rows_out_of_range_are_refused(begin: int, end: int) -> None:
    case = Case(2, 24, 9)
    with pytest.raises(InputError):
        residual.residual_maxsim(case.query(), case.rows(), np.array([begin]), np.array([end]))
    with pytest.raises(InputError):
        residual.residual_scores(case.query(), case.rows(), np.array([-1]))
    with pytest.raises(InputError):
        residual.residual_scores(case.query(), case.rows(), np.array([len(case.codes)]))


def test_arrays_of_different_sizes_are_refused() -> None:
    case = Case(2, 24, 9)
    query, rows = case.query(), case.rows()
    assert query.table is not None
    assert rows.cells is not None
    wrong: list[tuple[ResidualQuery, CodedRows]] = [
        (replace(query, packed=query.packed.astype(np.int16)), rows),
        (replace(query, packed=query.packed[:, :8].copy()), rows),
        (replace(query, n_query=17), rows),
        (replace(query, n_query=0), rows),
        (replace(query, n_query=-1), rows),
        (replace(query, offset=query.offset[:9]), rows),
        (replace(query, table=query.table[:, :8].copy()), rows),
        (query, replace(rows, bits=3)),
        (query, replace(rows, bits=4)),
        (query, replace(rows, bits=8)),
        (query, replace(rows, codes=rows.codes[:, :5].copy())),
        (query, replace(rows, cells=None)),
        (query, replace(rows, cells=rows.cells[:-1])),
        (query, replace(rows, cells=rows.cells.astype(np.int32))),  # type: ignore[arg-type]
        (query, replace(rows, lengths=rows.lengths[:-1])),
        (query, replace(rows, length_table=rows.length_table[:255])),
        (query, replace(rows, factors=rows.factors[:-1])),
        (query, replace(rows, factor_table=rows.factor_table[:255])),
    ]
    for bad_query, bad_rows in wrong:
        with pytest.raises(InputError):
            residual.residual_maxsim(bad_query, bad_rows, np.array([0]), np.array([1]))
        with pytest.raises(InputError):
            residual.residual_scores(bad_query, bad_rows, np.array([0]))


@pytest.mark.parametrize("bits", [1, 2, 4, 8])
@pytest.mark.parametrize("n_query", [1, 9, 40])
def test_listed_rows_score_as_documents_of_those_rows(bits: int, n_query: int) -> None:
    case = Case(bits, 40, n_query)
    rng = np.random.default_rng(3)
    numbers = rng.integers(0, int(case.offsets[-1]), 90)
    stops = np.array([0, 1, 30, 30, 89, 90], np.int64)
    found = residual.residual_maxsim_listed(case.query(), case.rows(), numbers, stops)
    begins = np.concatenate([[0], stops[:-1]])
    expected = reference.residual_maxsim(case.expected()[numbers], begins, stops)
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(
    ("numbers", "stops"), [([0, 10**6], [2]), ([0, -1], [2]), ([0, 1], [3]), ([0, 1], [2, 1]), ([0, 1], [-1, 2])]
)
def test_lists_out_of_range_are_refused(numbers: list[int], stops: list[int]) -> None:
    case = Case(2, 16, 3)
    with pytest.raises(InputError):
        residual.residual_maxsim_listed(case.query(), case.rows(), np.array(numbers), np.array(stops))

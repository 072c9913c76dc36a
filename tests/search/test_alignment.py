"""Alignments equal a NumPy reference, and their parts add up to the score of a search."""

from __future__ import annotations

import numpy as np
import pytest

import reference
from plait.embeddings import MultiVectors
from plait.errors import InputError
from plait.scoring.maxsim import maxsim
from plait.search.alignment import NO_ROW, CodedPassage, explain_multi
from plait.search.multivector.query import MultiVectorQuery
from search.multivector.test_plait import coded, corpus, queries


def test_an_alignment_equals_its_reference() -> None:
    documents = corpus(n_items=20)
    for query in queries(documents, 5):
        for item in range(len(documents)):
            rows = documents[item].astype(np.float16)
            found = explain_multi(query, rows)
            if not len(rows):
                assert (found.rows == NO_ROW).all()
                assert not found.scores.any()
                continue
            table = query @ rows.astype(np.float32).T
            np.testing.assert_allclose(found.scores, table.max(axis=1), atol=1e-5)
            np.testing.assert_allclose(table[np.arange(len(query)), found.rows], table.max(axis=1), atol=1e-5)
            assert not found.imputed.any()


def test_the_parts_of_float_rows_add_up_to_maxsim() -> None:
    documents = corpus(n_items=30)
    stored = MultiVectors(documents.values.astype(np.float16), documents.offsets)
    for query in queries(documents, 5):
        sums = [explain_multi(query, stored[item]).scores.sum() for item in range(len(stored))]
        np.testing.assert_allclose(sums, maxsim(query, stored), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("keep_8bit", [False, True])
@pytest.mark.parametrize("bits", [1, 2, 4, 8])
def test_the_parts_of_compressed_rows_add_up_to_what_a_search_scores(bits: int, keep_8bit: bool) -> None:
    documents = corpus(n_items=60)
    items = coded(documents, bits=bits, keep_8bit=keep_8bit)
    for query in queries(documents, 4):
        sums = [explain_multi(query, CodedPassage(items, item)).scores.sum() for item in range(len(items))]
        np.testing.assert_allclose(sums, MultiVectorQuery(query, items).scores(), rtol=1e-5, atol=1e-5)


def test_compressed_rows_are_aligned_as_their_decoded_twins() -> None:
    documents = corpus(n_items=40)
    items = coded(documents, bits=4)
    decoded = MultiVectors(items.codec.decode(items.rows), documents.offsets)
    for query in queries(documents, 4):
        for item in range(len(items)):
            found = explain_multi(query, CodedPassage(items, item))
            if len(decoded[item]):
                table = query @ decoded[item].T
                np.testing.assert_allclose(found.scores, table.max(axis=1), atol=0.02)
                np.testing.assert_allclose(table[np.arange(len(query)), found.rows], table.max(axis=1), atol=0.04)
            else:
                assert (found.rows == NO_ROW).all()


def test_scores_below_the_floor_are_imputed_with_the_floor() -> None:
    rows = np.eye(3, dtype=np.float32)[:2]
    query = np.eye(3, dtype=np.float32)
    found = explain_multi(query, rows, floor=np.array([0.5, 1.0, 0.25], np.float32))
    assert found.imputed.tolist() == [False, False, True]
    assert found.rows.tolist() == [0, 1, NO_ROW]
    assert found.scores.tolist() == [1.0, 1.0, 0.25]
    nothing = explain_multi(query, rows[:0], floor=np.zeros(3, np.float32))
    assert nothing.imputed.all()


def test_a_floor_of_another_length_is_refused() -> None:
    rows = np.eye(3, dtype=np.float32)
    with pytest.raises(InputError, match=r"shape \(2,\).*each of 3 rows"):
        explain_multi(rows, rows, floor=np.zeros(2, np.float32))


def test_a_cell_that_does_not_exist_is_refused() -> None:
    documents = corpus(n_items=5)
    items = coded(documents, n_cells=8)
    assert items.rows.cells is not None
    items.rows.cells[:] = 60_000
    item = int(np.argmax(np.diff(items.offsets)))
    with pytest.raises(InputError, match="has a row in cell 60000; there are 8 cells"):
        explain_multi(queries(documents, 1)[0], CodedPassage(items, item))


def test_the_reference_of_maxsim_is_the_sum_of_an_alignment() -> None:
    documents = corpus(n_items=10)
    query = queries(documents, 1)[0]
    sums = [explain_multi(query, documents[item]).scores.sum() for item in range(len(documents))]
    np.testing.assert_allclose(sums, reference.maxsim(query, documents), rtol=1e-5, atol=1e-5)

"""Token weights to sparse vectors: equal to a plain reference for any tokens and weights."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from plait.embeddings import SparseVectors
from plait.encode.sparse_terms import concatenate_terms, divide_by_length, max_pool_terms
from plait.errors import ModelError

Texts = st.lists(st.lists(st.tuples(st.integers(0, 6), st.sampled_from([0.0, 0.5, 1.0, 2.5])), max_size=9), max_size=6)


def twin(pairs: list[tuple[int, float]], query_tf: float = 0.0) -> dict[int, float]:
    result: dict[int, list[float]] = {}
    for term, weight in pairs:
        if weight > 0:
            result.setdefault(term, []).append(weight)
    return {term: (1 - query_tf) * max(values) + query_tf * sum(values) for term, values in sorted(result.items())}


def items_of(rows: SparseVectors) -> list[dict[int, float]]:
    result = []
    for start, end in zip(rows.offsets[:-1], rows.offsets[1:], strict=True):
        terms, weights = rows.terms[start:end], rows.weights[start:end]
        assert np.all(np.diff(terms) > 0)
        result.append(dict(zip(terms.tolist(), weights.tolist(), strict=True)))
    return result


@given(texts=Texts, n_more=st.integers(0, 3), query_tf=st.sampled_from([0.0, 0.5, 1.0]))
def test_terms_equal_the_reference(texts: list[list[tuple[int, float]]], n_more: int, query_tf: float) -> None:
    longest = max((len(text) for text in texts), default=0) + n_more
    weights = np.full((len(texts), longest), 9, np.float32)  # weights beyond the end of a text must not count
    for row, text in enumerate(texts):
        weights[row, : len(text)] = [weight for _, weight in text]
    rows = max_pool_terms(
        [np.array([term for term, _ in text], np.int64) for text in texts], weights, query_tf=query_tf
    )
    assert [str(array.dtype) for array in (rows.terms, rows.weights, rows.offsets)] == ["int32", "float32", "int64"]
    assert items_of(rows) == [twin(text, query_tf) for text in texts]


@given(texts=Texts, power=st.sampled_from([0.2, 0.5, 1.0]))
def test_weights_are_divided_by_a_power_of_their_sum(texts: list[list[tuple[int, float]]], power: float) -> None:
    items = [twin(text) for text in texts]
    rows = concatenate_terms([(np.array([*item], np.int32), np.array([*item.values()], np.float32)) for item in items])
    expected_items = [{term: weight / sum(item.values()) ** power for term, weight in item.items()} for item in items]
    for item, expected in zip(items_of(divide_by_length(rows, power)), expected_items, strict=True):
        assert item == pytest.approx(expected)
    assert divide_by_length(rows, 0.0) is rows


def test_a_graph_that_gives_too_few_weights_is_refused() -> None:
    with pytest.raises(ModelError, match=r"token weights of shape \(1, 2\) for 1 texts of up to 3 tokens"):
        max_pool_terms([np.array([5, 6, 7])], np.zeros((1, 2), np.float32))


def test_terms_are_concatenated_in_the_order_of_the_texts() -> None:
    one = (np.array([3, 9], np.int32), np.array([1, 2], np.float32))
    none = (np.zeros(0, np.int32), np.zeros(0, np.float32))
    assert items_of(concatenate_terms([none, one, none, one])) == [{}, {3: 1, 9: 2}, {}, {3: 1, 9: 2}]
    assert len(concatenate_terms([])) == 0

"""Scores worked out by hand, and what must not change them."""

from __future__ import annotations

import pytest
import torch

from plait.errors import InputError
from plait.train.scores import dense_scores, maxsim_scores, sparse_scores, token_similarities
from plait.train.tensors import Encoded
from train.tiny import multi_of


def sparse_of(ids: list[list[int]], weights: list[list[float]]) -> Encoded:
    return Encoded(sparse=torch.tensor(weights), sparse_ids=torch.tensor(ids))


def test_dense_scores_are_inner_products() -> None:
    queries = Encoded(dense=torch.tensor([[1.0, 0.0], [0.6, 0.8]]))
    documents = Encoded(dense=torch.tensor([[0.0, 1.0], [0.8, 0.6], [1.0, 0.0]]))
    torch.testing.assert_close(dense_scores(queries, documents), torch.tensor([[0, 0.8, 1], [0.8, 0.96, 0.6]]))


def test_a_repeated_id_counts_with_its_highest_weight() -> None:
    query = sparse_of([[5, 6, 5]], [[1.0, 2.0, 3.0]])
    documents = sparse_of([[5, 9, 9], [6, 6, 5], [8, 8, 8]], [[2.0, 7.0, 7.0], [1.0, 4.0, 0.5], [1.0, 1.0, 1.0]])
    # 5: 3 * 2; then 6: 2 * 4 and 5: 3 * 0.5; then nothing shared
    assert sparse_scores(query, documents).tolist() == [[6.0, 9.5, 0.0]]


def test_sparse_scores_are_symmetric_and_padding_adds_nothing() -> None:
    generator = torch.Generator().manual_seed(0)
    ids, weights = torch.randint(0, 9, (2, 3, 5), generator=generator), torch.rand((2, 3, 5), generator=generator)
    one, other = (Encoded(sparse=weights[side], sparse_ids=ids[side]) for side in (0, 1))
    padded = Encoded(
        sparse=torch.cat([weights[1], torch.zeros(3, 2)], 1), sparse_ids=torch.nn.functional.pad(ids[1], (0, 2))
    )
    torch.testing.assert_close(sparse_scores(one, other), sparse_scores(other, one).T)
    torch.testing.assert_close(sparse_scores(one, other), sparse_scores(one, padded))


def test_only_the_highest_weight_of_a_repeated_id_learns() -> None:
    weights = torch.tensor([[1.0, 2.0, 3.0]], requires_grad=True)
    query = Encoded(sparse=weights, sparse_ids=torch.tensor([[5, 6, 5]]))
    sparse_scores(query, sparse_of([[5]], [[4.0]])).sum().backward()
    assert weights.grad is not None
    assert weights.grad.tolist() == [[0.0, 0.0, 4.0]]


def test_maxsim_by_hand() -> None:
    queries = multi_of([[1.0, 0.0], [0.0, 1.0]], [[-1.0, 0.0]])
    documents = multi_of([[0.6, 0.8], [0.8, 0.6]], [[1.0, 0.0]])
    # 0.8 + 0.8, 1 + 0; all-negative rows: -0.6, and -1, where a padded row must not win with 0
    wanted = torch.tensor([[1.6, 1.0], [-0.6, -1.0]])
    torch.testing.assert_close(maxsim_scores(queries, documents), wanted)
    torch.testing.assert_close(maxsim_scores(queries, documents, reduce="mean"), wanted / torch.tensor([[2.0], [1.0]]))


def test_maxsim_in_small_blocks_equals_maxsim_at_once() -> None:
    torch.manual_seed(0)
    mask = torch.rand(7, 5) < 0.6
    values = (torch.randn(7, 5, 4) * mask.unsqueeze(-1)).requires_grad_()
    encoded = Encoded(multi=values, multi_mask=mask)
    whole, blocked = (maxsim_scores(encoded, encoded, block=block) for block in (10**6, 1))
    torch.testing.assert_close(whole, blocked)
    gradients = [torch.autograd.grad(scores.square().sum(), values)[0] for scores in (whole, blocked)]
    torch.testing.assert_close(*gradients)


def test_the_order_of_document_rows_does_not_matter_and_a_new_row_never_lowers_a_score() -> None:
    torch.manual_seed(0)
    query = Encoded(multi=torch.randn(1, 3, 4), multi_mask=torch.ones(1, 3, dtype=torch.bool))
    rows = torch.randn(1, 6, 4)
    every = torch.ones(1, 6, dtype=torch.bool)
    score = maxsim_scores(query, Encoded(multi=rows, multi_mask=every))
    turned = maxsim_scores(query, Encoded(multi=rows[:, torch.randperm(6)], multi_mask=every))
    fewer = maxsim_scores(query, Encoded(multi=rows[:, :5], multi_mask=every[:, :5]))
    torch.testing.assert_close(score, turned)
    assert score >= fewer


def test_a_document_without_rows_scores_zero_without_gradient() -> None:
    values = torch.randn(1, 2, 4, requires_grad=True)
    document = Encoded(multi=values, multi_mask=torch.zeros(1, 2, dtype=torch.bool))
    score = maxsim_scores(multi_of([[1.0, 0, 0, 0]]), document)
    score.sum().backward()
    assert score.tolist() == [[0.0]]
    assert values.grad is not None
    assert values.grad.abs().sum() == 0


def test_token_similarities_have_all_four_axes() -> None:
    result = token_similarities(multi_of([[1.0, 0.0], [0.0, 1.0]]), multi_of([[0.6, 0.8]], [[1.0, 0.0]]))
    torch.testing.assert_close(result, torch.tensor([[[[0.6], [1.0]], [[0.8], [0.0]]]]))


def test_a_missing_head_is_named() -> None:
    with pytest.raises(InputError, match="no sparse head"):
        sparse_scores(Encoded(), Encoded())

"""Contrastive loss, MarginMSE and distillation, with numbers worked out by hand."""

from __future__ import annotations

import math

import pytest
import torch

from plait.errors import InputError
from plait.train.losses.contrastive import contrastive, same_passage
from plait.train.losses.distillation import distillation, in_batch, other_passages_of_list, query_lists
from plait.train.losses.margin_mse import margin_mse


def test_contrastive_by_hand() -> None:
    # exp: 1, 2, 1 -> 1/4 for the positive; then 3, 1, 1 -> 3/5
    scores = torch.tensor([[1.0, 2.0, 1.0], [3.0, 1.0, 1.0]]).log()
    loss = contrastive(scores, torch.tensor([0, 0]))
    assert loss.item() == pytest.approx(-(math.log(1 / 4) + math.log(3 / 5)) / 2)


def test_a_temperature_of_a_half_squares_the_odds() -> None:
    loss = contrastive(torch.tensor([[3.0, 1.0]]).log(), torch.tensor([0]), temperature=0.5)
    assert loss.item() == pytest.approx(-math.log(9 / 10))


def test_a_copy_of_the_positive_is_no_negative() -> None:
    passages, positive = torch.tensor([7, 8, 7, 9]), torch.tensor([0, 1, 2])
    excluded = same_passage(passages, positive)
    assert excluded.tolist() == [[False, False, True, False], [False] * 4, [True, False, False, False]]
    scores = torch.tensor([[1.0, 2.0, 50.0, 1.0]] * 3).log().requires_grad_()
    loss = contrastive(scores[:1], positive[:1], excluded=excluded[:1])
    assert loss.item() == pytest.approx(-math.log(1 / 4))
    loss.backward()
    assert scores.grad is not None
    assert scores.grad[0, 2] == 0


def test_a_positive_is_never_left_out() -> None:
    loss = contrastive(torch.zeros(1, 2), torch.tensor([1]), excluded=torch.tensor([[False, True]]))
    assert loss.item() == pytest.approx(math.log(2))


def test_contrastive_does_not_depend_on_the_order_of_documents() -> None:
    torch.manual_seed(0)
    scores, positive, order = torch.randn(3, 6), torch.tensor([4, 0, 2]), torch.randperm(6)
    moved = torch.argsort(order)[positive]
    torch.testing.assert_close(contrastive(scores, positive), contrastive(scores[:, order], moved))


def test_no_queries_give_no_loss() -> None:
    empty = torch.zeros(0, 3)
    assert contrastive(empty, torch.zeros(0, dtype=torch.int64)).item() == 0
    assert distillation(empty, empty).item() == 0
    assert margin_mse(empty, empty).item() == 0


def test_distillation_by_hand() -> None:
    # The teacher says 3/4 and 1/4, the student 1/2 and 1/2.
    loss = distillation(torch.zeros(1, 2), torch.tensor([[3.0, 1.0]]).log())
    assert loss.item() == pytest.approx(0.75 * math.log(1.5) + 0.25 * math.log(0.5))


def test_distillation_is_zero_if_the_student_agrees_up_to_a_shift() -> None:
    teacher = torch.tensor([[2.0, -1.0, 0.5]])
    assert distillation(teacher + 3, teacher).item() == pytest.approx(0, abs=1e-6)


def test_temperature_and_teacher_scale_act_on_one_side_each() -> None:
    student, teacher = torch.tensor([[1.0, 0.0]]), torch.tensor([[4.0, 0.0]])
    assert distillation(student, teacher, temperature=0.5, teacher_scale=0.5).item() == pytest.approx(0, abs=1e-6)


def test_padding_of_lists_changes_nothing() -> None:
    torch.manual_seed(0)
    scores, teacher = torch.randn(2, 3, requires_grad=True), torch.randn(2, 3)
    wider = torch.nn.functional.pad(scores, (0, 2), value=9.0), torch.nn.functional.pad(teacher, (0, 2), value=9.0)
    known = torch.tensor([[True, True, True, False, False]] * 2)
    for plain, padded in (
        (distillation(scores, teacher), distillation(*wider, known=known)),
        (margin_mse(scores, teacher), margin_mse(*wider, known=known)),
    ):
        torch.testing.assert_close(plain, padded)
        torch.testing.assert_close(torch.autograd.grad(plain, scores), torch.autograd.grad(padded, scores))


def test_the_teacher_gets_no_gradient() -> None:
    scores, teacher = torch.randn(2, 3, requires_grad=True), torch.randn(2, 3, requires_grad=True)
    for loss in (distillation(scores, teacher), margin_mse(scores, teacher)):
        result = torch.autograd.grad(loss, (scores, teacher), allow_unused=True)
        assert result[0] is not None
        assert result[1] is None


def test_lists_of_other_shapes_are_refused() -> None:
    with pytest.raises(InputError, match="must match"):
        distillation(torch.zeros(2, 3), torch.zeros(2, 2))
    with pytest.raises(InputError, match="must match"):
        margin_mse(torch.zeros(2, 3), torch.zeros(2, 2))


def test_other_passages_of_the_list_are_excluded() -> None:
    assert other_passages_of_list(2, 3).tolist() == [
        [False, True, True, False, False, False],
        [False] * 4 + [True, True],
    ]


def test_in_batch_by_hand() -> None:
    # Query 0: own first 2, others 1 and 1; its own second, 100, is out. Query 1: own first 3, others 1 and 2.
    scores = torch.tensor([[2.0, 100.0, 1.0, 1.0], [1.0, 2.0, 3.0, 100.0]]).log()
    assert in_batch(scores).item() == pytest.approx(-(math.log(2 / 4) + math.log(3 / 6)) / 2)
    torch.testing.assert_close(query_lists(scores).exp(), torch.tensor([[2.0, 100.0], [3.0, 100.0]]))


def test_margin_mse_by_hand() -> None:
    # Margins 1 and 3 against 2 and 1: (1 + 4) / 2
    loss = margin_mse(torch.tensor([[4.0, 3.0, 1.0]]), torch.tensor([[0.0, -2.0, -1.0]]))
    assert loss.item() == pytest.approx(2.5)


def test_margin_mse_ignores_a_shift_of_either_side() -> None:
    torch.manual_seed(0)
    scores, teacher = torch.randn(3, 4), torch.randn(3, 4)
    torch.testing.assert_close(margin_mse(scores, teacher), margin_mse(scores + 5, teacher - 7))

"""Objectives as a recipe names them: numbers in, a function of what the model gave out."""

from __future__ import annotations

import pytest
import torch

from plait.errors import ConfigError, InputError
from plait.train.loss import M3Numbers, make_objective
from plait.train.losses.distillation import distillation
from plait.train.tensors import BatchFacts, Encoded

DENSE = torch.nn.functional.normalize(torch.randn(6, 8, generator=torch.Generator().manual_seed(0)), dim=1)
QUERIES, DOCUMENTS = Encoded(dense=DENSE[:2]), Encoded(dense=DENSE[2:])
TEACHER = torch.tensor([[2.0, 1.0], [0.0, 3.0]])


def facts(teacher: torch.Tensor | None) -> BatchFacts:
    return BatchFacts(group=2, allowed=torch.ones(2, 4, dtype=torch.bool), teacher=teacher, step=0)


def test_m3_learns_from_a_teachers_lists_beside_its_own_sum() -> None:
    plain = make_objective(M3Numbers(temperature=0.1))(QUERIES, DOCUMENTS, facts(TEACHER))
    taught = make_objective(M3Numbers(temperature=0.1, lists=0.5, alpha=2.0))(QUERIES, DOCUMENTS, facts(TEACHER))
    scores = QUERIES.dense @ DOCUMENTS.dense.T  # type: ignore[operator, union-attr]
    lists = torch.stack([scores[0, :2], scores[1, 2:]])
    wanted = distillation(lists, TEACHER, temperature=0.1, alpha=2.0)
    torch.testing.assert_close(taught.total, plain.total + 0.5 * wanted)
    assert taught.parts["dense from lists"] == pytest.approx(wanted.item())


def test_lists_without_a_teacher_are_told() -> None:
    with pytest.raises(InputError, match="learns from a teacher"):
        make_objective(M3Numbers(lists=1.0))(QUERIES, DOCUMENTS, facts(None))
    with pytest.raises(ConfigError, match="lists is -1"):
        M3Numbers(lists=-1)

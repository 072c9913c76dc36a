"""Losses as recipes name them."""

from __future__ import annotations

import pytest
import torch

from plait.errors import ConfigError, InputError
from plait.train.loss import M3LossConfig, make_loss
from plait.train.losses.distillation import distillation
from plait.train.tensors import BatchTargets, Encoded

DENSE = torch.nn.functional.normalize(torch.randn(6, 8, generator=torch.Generator().manual_seed(0)), dim=1)
QUERIES, DOCUMENTS = Encoded(dense=DENSE[:2]), Encoded(dense=DENSE[2:])
TEACHER = torch.tensor([[2.0, 1.0], [0.0, 3.0]])


def targets(teacher: torch.Tensor | None) -> BatchTargets:
    return BatchTargets(group=2, allowed=torch.ones(2, 4, dtype=torch.bool), teacher=teacher, step=0)


def test_m3_learns_from_a_teacher_and_from_its_ensemble() -> None:
    plain = make_loss(M3LossConfig(temperature=0.1))(QUERIES, DOCUMENTS, targets(TEACHER))
    taught = make_loss(M3LossConfig(temperature=0.1, teacher_weight=0.5, teacher_scale=2.0))(
        QUERIES, DOCUMENTS, targets(TEACHER)
    )
    scores = QUERIES.dense @ DOCUMENTS.dense.T  # type: ignore[operator, union-attr]
    lists = torch.stack([scores[0, :2], scores[1, 2:]])
    wanted = distillation(lists, TEACHER, temperature=0.1, teacher_scale=2.0)
    torch.testing.assert_close(taught.total, plain.total + 0.5 * wanted)
    assert taught.parts["dense from teacher"] == pytest.approx(wanted.item())


def test_a_teacher_weight_without_teacher_scores_is_an_error() -> None:
    with pytest.raises(InputError, match="learns from a teacher"):
        make_loss(M3LossConfig(teacher_weight=1.0))(QUERIES, DOCUMENTS, targets(None))
    with pytest.raises(ConfigError, match="teacher_weight is -1"):
        M3LossConfig(teacher_weight=-1)

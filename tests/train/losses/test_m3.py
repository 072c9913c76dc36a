"""The loss of M3 by hand, and which parts get gradients."""

from __future__ import annotations

import math

import pytest
import torch

from plait.errors import ConfigError, InputError
from plait.train.losses.m3 import M3Config, m3, soft_cross_entropy

PLAIN = M3Config(temperature=1.0, start_step=10)
FIRST = torch.tensor([0])


def by_hand() -> dict[str, torch.Tensor]:
    """Odds of the positive: 3 to 1 dense, even sparse, 2 to 1 multi; all together 6 to 1."""
    odds = {"dense": [3.0, 1.0], "sparse": [1.0, 1.0], "multi": [2.0, 1.0]}
    return {name: torch.tensor([pair]).log() for name, pair in odds.items()}


def test_before_self_distillation_by_hand() -> None:
    loss, parts = m3(by_hand(), FIRST, PLAIN, step=10)
    dense, sparse, multi, every = (-math.log(p) for p in (3 / 4, 1 / 2, 2 / 3, 6 / 7))
    assert {name: part.item() for name, part in parts.items()} == pytest.approx(
        {"dense": dense, "sparse": sparse, "multi": multi, "ensemble": every}
    )
    assert loss.item() == pytest.approx((dense + 0.1 * sparse + multi + every) / 4)


def test_after_self_distillation_by_hand() -> None:
    loss, _ = m3(by_hand(), FIRST, PLAIN, step=11)
    before, _ = m3(by_hand(), FIRST, PLAIN, step=10)
    soft = [-(6 / 7 * math.log(p) + 1 / 7 * math.log(1 - p)) for p in (3 / 4, 1 / 2, 2 / 3)]
    assert loss.item() == pytest.approx((before.item() + (soft[0] + 0.1 * soft[1] + soft[2]) / 3) / 2)


def test_the_temperature_comes_before_the_sum() -> None:
    scores = by_hand()
    halved = {name: result / 2 for name, result in scores.items()}
    hot = M3Config(temperature=0.5, start_step=0)
    loss, _ = m3(halved, FIRST, hot, step=1)
    wanted, _ = m3(scores, FIRST, M3Config(temperature=1.0, start_step=0), step=1)
    assert loss.item() == pytest.approx(wanted.item())


def test_the_ensemble_gets_no_gradient_from_soft_losses() -> None:
    student, teacher = torch.randn(2, 3, requires_grad=True), torch.randn(2, 3, requires_grad=True)
    result = torch.autograd.grad(soft_cross_entropy(student, teacher), (student, teacher), allow_unused=True)
    torch.testing.assert_close(result[0], (student.softmax(1) - teacher.softmax(1)) / 2)
    assert result[1] is None


def test_a_pair_that_is_left_out_gets_no_gradient_and_no_nan() -> None:
    scores = {name: torch.randn(2, 4, requires_grad=True) for name in ("dense", "sparse", "multi")}
    excluded = torch.zeros(2, 4, dtype=torch.bool)
    excluded[0, 3] = True
    config = M3Config(ensemble_weights={"dense": 1.0, "sparse": 0.0, "multi": 1.0})
    loss, _ = m3(scores, torch.tensor([0, 1]), config, step=1, excluded=excluded)
    loss.backward()
    assert torch.isfinite(loss)
    for result in scores.values():
        assert result.grad is not None
        assert torch.isfinite(result.grad).all()
        assert result.grad[0, 3] == 0


def test_fewer_kinds_are_averaged_over_their_number() -> None:
    scores = {"dense": by_hand()["dense"]}
    loss, parts = m3(scores, FIRST, PLAIN, step=0)
    assert loss.item() == pytest.approx(-math.log(3 / 4))
    assert set(parts) == {"dense", "ensemble"}


def test_unknown_kinds_and_weights_are_refused() -> None:
    with pytest.raises(InputError, match="any of dense"):
        m3({"lexical": torch.zeros(1, 2)}, FIRST, PLAIN, step=0)
    with pytest.raises(ConfigError, match="loss_weights"):
        M3Config(loss_weights={"dense": 1.0})
    with pytest.raises(ConfigError, match="above 0"):
        M3Config(temperature=0.0)

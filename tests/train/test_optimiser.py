"""Learning-rate schedules and parameter groups."""

from __future__ import annotations

import pytest

from plait.errors import ConfigError
from plait.train.optimiser import OptimiserConfig, lr_schedule, make_optimiser, parameter_groups
from train.tiny import tiny_model


def test_the_learning_rate_warms_up_and_decays() -> None:
    line = lr_schedule(OptimiserConfig(warmup=0.2, schedule="linear"), 10)
    assert [round(line(step), 3) for step in range(10)] == [
        0.333,
        0.667,
        1,
        0.875,
        0.75,
        0.625,
        0.5,
        0.375,
        0.25,
        0.125,
    ]
    cosine = lr_schedule(OptimiserConfig(warmup=2, schedule="cosine"), 10)
    assert cosine(2) == 1.0
    assert cosine(6) == pytest.approx(0.5)
    assert lr_schedule(OptimiserConfig(warmup=0, schedule="constant"), 10)(9) == 1.0
    cut = lr_schedule(OptimiserConfig(warmup=0.2, schedule="linear", steps=5, schedule_steps=10), 5)
    assert [cut(step) for step in range(5)] == [line(step) for step in range(5)]
    with pytest.raises(ConfigError, match="schedule_steps is 4 and steps is 5"):
        OptimiserConfig(steps=5, schedule_steps=4)


def test_a_model_without_trained_parameters_is_refused() -> None:
    with pytest.raises(ConfigError, match="freeze fewer layers"):
        make_optimiser([{"params": [], "lr": 1.0}], OptimiserConfig())


def test_lower_layers_learn_slower_and_heads_have_their_rate() -> None:
    model = tiny_model()
    groups = parameter_groups(model, OptimiserConfig(lr=1.0, layer_decay=0.5, head_lr=3.0, weight_decay=0.1))
    rates = {group["name"]: (group["lr"], group["weight_decay"]) for group in groups}
    assert rates == {
        "embeddings": (0.25, 0.1), "embeddings, no decay": (0.25, 0.0),
        "layer 0": (0.5, 0.1), "layer 0, no decay": (0.5, 0.0),
        "layer 1": (1.0, 0.1), "layer 1, no decay": (1.0, 0.0),
        "heads": (3.0, 0.1), "heads, no decay": (3.0, 0.0),
    }  # fmt: skip
    grouped = [id(parameter) for group in groups for parameter in group["params"]]
    assert sorted(grouped) == sorted(id(parameter) for parameter in model.parameters())


def test_frozen_parameters_are_in_no_group() -> None:
    model = tiny_model()
    model.backbone.freeze(embeddings=True, layers=2)
    assert {group["name"].split(",")[0] for group in parameter_groups(model, OptimiserConfig(lr=1.0))} == {"heads"}

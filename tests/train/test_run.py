"""A run learns, and a run that is killed and resumed ends with the weights of one that was not."""

from __future__ import annotations

import json
import signal
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_model

from plait.errors import ConfigError
from plait.train.loop import DivergedError, StepReport, Trainable
from plait.train.recipe import Recipe, parse_recipe
from plait.train.run import Run, RunCallbacks, RunResult
from plait.train.run_folder import start_folder
from plait.train.run_state import last_checkpoint
from plait.train.tensors import Tokens
from train.corpora import write_beir
from train.small import SmallModel, SmallTexts, SumLoss, all_kinds

RECIPE = """
[model]
[loss]
[[data]]
path = "{data}"
[batching]
size = 10
n_buckets = 2
[optimiser]
lr = 0.02
steps = 24
[evaluation]
data = "{data}"
every = 8
mode = "dense"
[run]
seed = 7
save_every = 5
cpu = true
threads = 1
"""


@pytest.fixture(scope="module")
def recipe(tmp_path_factory: pytest.TempPathFactory) -> Recipe:
    return parse_recipe(RECIPE.format(data=write_beir(tmp_path_factory.mktemp("data") / "set")))


def build(recipe: Recipe, folder: Path) -> Trainable:
    del recipe, folder
    model = SmallModel(dropout=0.2)

    def save(folder: Path) -> None:
        folder.mkdir()
        save_model(model, str(folder / "model.safetensors"))

    return Trainable(model, SmallTexts(), model.groups, save, loss_function=all_kinds)


def trained(recipe: Recipe, folder: Path, watch: RunCallbacks | None = None, *, resumed: bool = False) -> RunResult:
    return Run(recipe, folder, build, watch, resumed=resumed).train()


def weights(folder: Path) -> dict[str, torch.Tensor]:
    checkpoint = last_checkpoint(folder / "checkpoints")
    assert checkpoint is not None
    return load_file(str(checkpoint / "model.safetensors"))


def equal(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


class KilledError(Exception):
    pass


def kill_at(step: int) -> RunCallbacks:
    def on_step(report: StepReport) -> None:
        if report.step == step:
            raise KilledError

    return RunCallbacks(on_step=on_step)


@pytest.fixture(scope="module")
def unbroken(recipe: Recipe, tmp_path_factory: pytest.TempPathFactory) -> RunResult:
    return trained(recipe, tmp_path_factory.mktemp("unbroken") / "run")


def test_the_loss_falls_and_the_best_weights_are_saved(unbroken: RunResult) -> None:
    lines = [json.loads(line) for line in (unbroken.folder / "curves.jsonl").read_text().splitlines()]
    losses = [line["loss"] for line in lines if "loss" in line]
    assert len(losses) == 24
    assert sum(losses[-4:]) < 0.8 * sum(losses[:4])
    assert list(unbroken.values) == [8, 16, 24]
    about = json.loads((unbroken.folder / "best" / "about.json").read_text())
    assert about["value"] == max(unbroken.values.values()) == unbroken.state.best
    assert (unbroken.folder / "best" / "model.safetensors").is_file()


@pytest.mark.parametrize("step", [5, 17])
def test_a_killed_run_resumes_to_the_same_bits(recipe: Recipe, unbroken: RunResult, tmp_path: Path, step: int) -> None:
    with pytest.raises(KilledError):
        trained(recipe, tmp_path / "run", kill_at(step))
    again = trained(recipe, tmp_path / "run", resumed=True)
    assert equal(weights(tmp_path / "run"), weights(unbroken.folder))
    assert again.state == unbroken.state
    names = ("step", "loss", "value", "norm", "lr")
    curves = [
        [{name: line.get(name) for name in names} for line in map(json.loads, file.read_text().splitlines())]
        for file in (tmp_path / "run" / "curves.jsonl", unbroken.folder / "curves.jsonl")
    ]
    assert curves[0] == curves[1]


def test_ctrl_c_finishes_the_step_saves_it_and_the_run_resumes_from_it(
    recipe: Recipe, unbroken: RunResult, tmp_path: Path
) -> None:
    n_read = 0

    class Interrupting(SmallTexts):
        def queries(self, texts: Sequence[str]) -> Tokens:
            nonlocal n_read
            n_read += 1
            if n_read == 7:
                signal.raise_signal(signal.SIGINT)
            return super().queries(texts)

    def interrupted(recipe: Recipe, folder: Path) -> Trainable:
        return replace(build(recipe, folder), texts=Interrupting())

    with pytest.raises(KeyboardInterrupt):
        Run(recipe, tmp_path / "run", interrupted).train()
    checkpoint = last_checkpoint(tmp_path / "run" / "checkpoints")
    assert checkpoint is not None
    assert checkpoint.name == "step-0000007"
    trained(recipe, tmp_path / "run", resumed=True)
    assert equal(weights(tmp_path / "run"), weights(unbroken.folder))


def test_a_run_folder_records_recipe_and_versions(unbroken: RunResult, recipe: Recipe) -> None:
    assert parse_recipe((unbroken.folder / "recipe.toml").read_text()) == recipe
    assert json.loads((unbroken.folder / "versions.json").read_text())["torch"] == torch.__version__


def test_a_run_is_not_started_twice_nor_resumed_with_another_recipe(
    unbroken: RunResult, recipe: Recipe, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match="already holds a run; resume it with --resume"):
        start_folder(unbroken.folder, recipe, resumed=False)
    other = replace(recipe, optimiser=replace(recipe.optimiser, lr=1.0))
    with pytest.raises(ConfigError, match="the recipe differs from"):
        start_folder(unbroken.folder, other, resumed=True)
    with pytest.raises(ConfigError, match=r"holds no run to resume"):
        start_folder(tmp_path / "none", recipe, resumed=True)


def test_a_run_that_cannot_be_built_removes_its_folder(recipe: Recipe, tmp_path: Path) -> None:
    def fails(*_: object) -> Trainable:
        raise ConfigError("the pair is too short")

    for _ in range(2):
        with pytest.raises(ConfigError, match="too short"):
            Run(recipe, tmp_path / "run", fails)
        assert not (tmp_path / "run").exists()


def test_a_nan_loss_stops_the_run(recipe: Recipe, tmp_path: Path) -> None:
    def nothing(*_: object) -> SumLoss:
        return SumLoss(torch.tensor(float("nan"), requires_grad=True), {})

    with pytest.raises(DivergedError, match="at step 1 the loss is nan"):
        Run(
            recipe, tmp_path / "run", lambda given, folder: replace(build(given, folder), loss_function=nothing)
        ).train()


def test_negatives_are_mined_before_each_round_with_the_current_model(recipe: Recipe, tmp_path: Path) -> None:
    mining = replace(recipe.mining, corpus=recipe.data[0].path, rounds=2, n_negatives=3, last_rank=8, mode="dense")
    two_rounds = replace(
        recipe,
        mining=mining,
        batching=replace(recipe.batching, n_negatives=2, split="gradcache", microbatch=4),
        evaluation=replace(recipe.evaluation, data=""),
        optimiser=replace(recipe.optimiser, steps=8),
    )
    stages: list[str] = []
    watch = RunCallbacks(on_mined=lambda stage, _: stages.append(stage))
    result = trained(two_rounds, tmp_path / "run", watch)
    assert list(dict.fromkeys(stages)) == ["mining with bm25", "mining with model"]
    assert (tmp_path / "run" / "data" / "mined-1.jsonl").is_file()
    assert result.state.step == 8
    with pytest.raises(KilledError):
        trained(two_rounds, tmp_path / "broken", kill_at(6))
    trained(two_rounds, tmp_path / "broken", resumed=True)
    assert equal(weights(tmp_path / "broken"), weights(tmp_path / "run"))

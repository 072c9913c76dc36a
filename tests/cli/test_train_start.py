"""`plait train` from a checkpoint of another library, and `plait export` to one; devices that are not there."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from plait.cli.app import app
from plait.convert.start import read_start
from plait.graphs.heads import DenseLayer
from plait.train import checkpoint as trained_models

ROOT = Path(__file__).parents[2]
CHECKPOINTS = ROOT / "tests" / "convert" / "checkpoints"
RECIPE = f"""
[model]
start = "{CHECKPOINTS / "stanford"}"
query = {{length = 16}}

[loss]
name = "contrastive"
kind = "multi"

[[data]]
kind = "beir"
path = "{ROOT / "recipes" / "tiny-data"}"

[batching]
size = 2
n_negatives = 0

[optimiser]
steps = 2
lr = 0.01

[run]
cpu = true
"""


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    path = tmp_path / "recipe.toml"
    path.write_text(RECIPE, encoding="utf-8")
    return path


@pytest.fixture
def no_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)


def test_a_run_from_a_checkpoint_is_trained_resumed_and_exported(
    runner: CliRunner, recipe: Path, tmp_path: Path
) -> None:
    run = str(tmp_path / "run")
    answer = runner.invoke(app, ["train", str(recipe), "--to", run, "--device", "cpu"])
    assert answer.exit_code == 0, answer.output
    assert "start: stanford, layout stanford-colbert" in answer.stderr
    assert "taken over: projection: 16 to 8 (model.safetensors: linear.weight)" in answer.stderr
    assert "changed by the recipe: query length is 16, was 24" in answer.stderr
    about = json.loads((tmp_path / "run" / "start.json").read_text())
    assert about["name"] == "stanford"
    model, _ = trained_models.load(tmp_path / "run" / "final")
    assert model.multi is not None
    head = read_start(CHECKPOINTS / "stanford").heads.multi
    assert head is not None
    assert isinstance(head.layers[0], DenseLayer)
    assert isinstance(model.multi.project, torch.nn.Linear)
    before, after = head.layers[0].linear.weight.T, model.multi.project.weight.detach().numpy()
    assert not np.array_equal(before, after)  # it was trained
    cosine = (before * after).sum() / np.linalg.norm(before) / np.linalg.norm(after)
    assert cosine > 0.8  # from where it was
    resumed = runner.invoke(app, ["train", str(recipe), "--to", run, "--resume"])
    assert resumed.exit_code == 0, resumed.output
    for form, layout in (("pylate", "pylate"), ("stanford", "stanford-colbert")):
        exported = runner.invoke(app, ["export", run, "--to", str(tmp_path / form), "--format", form])
        assert exported.exit_code == 0, exported.output
        assert f"format {form}, read back as {layout}" in exported.stdout
        assert "multi: " in exported.stdout
    assert runner.invoke(app, ["export", run, "--to", str(tmp_path / "model"), "--threads", "1"]).exit_code == 0


def test_a_dry_run_does_not_read_the_checkpoint(runner: CliRunner, recipe: Path) -> None:
    answer = runner.invoke(app, ["train", str(recipe), "--dry-run", "--set", "model.start=nobody/nothing"])
    assert answer.exit_code == 0, answer.output
    assert 'start = "nobody/nothing"' in answer.stdout


def test_a_start_that_is_not_there_leaves_no_run(runner: CliRunner, recipe: Path, tmp_path: Path) -> None:
    answer = runner.invoke(
        app, ["train", str(recipe), "--to", str(tmp_path / "run"), "--set", f"model.start={tmp_path / 'no'}"]
    )
    assert answer.exit_code == 2
    assert str(tmp_path / "no") in answer.stderr
    assert not (tmp_path / "run").exists()


def test_a_run_that_cannot_be_built_leaves_nothing(runner: CliRunner, recipe: Path, tmp_path: Path) -> None:
    answer = runner.invoke(
        app, ["train", str(recipe), "--to", str(tmp_path / "run"), "--set", "model.init_from=x", "--device", "cpu"]
    )
    assert answer.exit_code == 2
    assert "init_from and start are both set" in answer.stderr
    answer = runner.invoke(app, ["train", str(recipe), "--to", str(tmp_path / "run"), "--set", "model.freeze=9"])
    assert answer.exit_code == 2
    assert not (tmp_path / "run").exists()


@pytest.mark.usefixtures("no_cuda")
@pytest.mark.parametrize("verb", ["train", "export", "convert"])
def test_cuda_without_a_gpu_is_one_message_and_exit_code_2(
    runner: CliRunner, recipe: Path, tmp_path: Path, verb: str
) -> None:
    source = {"train": recipe, "export": tmp_path, "convert": CHECKPOINTS / "st-bert-mean"}[verb]
    answer = runner.invoke(app, [verb, str(source), "--to", str(tmp_path / "out"), "--device", "cuda"])
    assert answer.exit_code == 2, answer.output
    assert "device is 'cuda', and torch" in answer.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.usefixtures("no_cuda")
def test_without_a_device_conversion_falls_back_to_the_processor(runner: CliRunner, tmp_path: Path) -> None:
    source = CHECKPOINTS / "st-bert-mean"
    answer = runner.invoke(app, ["convert", str(source), "--to", str(tmp_path / "model"), "--threads", "1"])
    assert answer.exit_code == 0, answer.output


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--format", "onnx"], "there is no format 'onnx'; choose one of plait, sentence-transformers"),
        (["--format", "pylate", "--precision", "fp32"], "--precision is for the graphs of plait"),
        (["--format", "pylate", "--mcls", "4"], "--mcls is for the graphs of plait"),
        (["--drop", "sparse"], "--drop is for formats of other libraries"),
        (["--device", "tpu"], "device is 'tpu'; choose cpu or cuda"),
    ],
)
def test_wrong_options_of_an_export_are_one_message(
    runner: CliRunner, tmp_path: Path, options: list[str], said: str
) -> None:
    answer = runner.invoke(app, ["export", str(tmp_path), "--to", str(tmp_path / "out"), *options])
    assert answer.exit_code == 2
    assert said in " ".join(answer.stderr.split())

"""`plait train`: what it checks before it starts, and what it says."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from plait.cli import train as command
from plait.cli.app import app

RECIPES = Path(__file__).parent.parent.parent / "recipes"
SHORT = [
    "--set",
    "optimiser.steps=2",
    "--set",
    "evaluation.every=1",
    "--set",
    "mining.corpus=",
    "--set",
    "run.cpu=true",
]


@pytest.fixture
def at_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(RECIPES.parent)


def test_a_dry_run_prints_the_whole_recipe_and_makes_nothing(runner: CliRunner, tmp_path: Path) -> None:
    tiny = str(RECIPES / "tiny.toml")
    answer = runner.invoke(app, ["train", tiny, "--dry-run", "--to", str(tmp_path / "run"), "--set", "run.seed=9"])
    assert answer.exit_code == 0
    assert "seed = 9" in answer.stdout
    assert "weight_decay = 0.01" in answer.stdout
    assert not (tmp_path / "run").exists()


def test_a_mistake_in_a_recipe_is_one_message_and_exit_code_2(runner: CliRunner) -> None:
    answer = runner.invoke(app, ["train", str(RECIPES / "tiny.toml"), "--set", "optimiser.rate=1"])
    assert answer.exit_code == 2
    assert "unknown key 'rate'" in answer.stderr


def test_missing_libraries_are_named_with_what_to_install(runner: CliRunner, monkeypatch: pytest.MonkeyPatch) -> None:
    find_spec = importlib.util.find_spec

    def without_torch(name: str, *rest: Any) -> Any:
        return None if name in ("torch", "accelerate") else find_spec(name, *rest)

    monkeypatch.setattr(command, "find_spec", without_torch)
    answer = runner.invoke(app, ["train", str(RECIPES / "tiny.toml")])
    assert answer.exit_code == 2
    assert "training needs torch, accelerate; install with: pip install 'plait[train]'" in answer.stderr


@pytest.mark.usefixtures("at_root")
def test_a_run_prints_its_measures_and_refuses_to_start_twice(runner: CliRunner, tmp_path: Path) -> None:
    arguments = ["train", "recipes/tiny.toml", "--to", str(tmp_path / "run"), *SHORT, "--set", "batching.n_negatives=0"]
    answer = runner.invoke(app, arguments)
    assert answer.exit_code == 0, answer.output
    assert "step 1: nDCG@10" in answer.stderr
    assert "2 steps; best" in answer.stdout
    assert runner.invoke(app, arguments).exit_code == 2
    assert runner.invoke(app, [*arguments, "--resume"]).exit_code == 0


@pytest.mark.usefixtures("at_root")
def test_ctrl_c_says_how_to_continue(runner: CliRunner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from plait.train.run import Run

    def interrupted(_: Run) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Run, "train", interrupted)
    answer = runner.invoke(app, ["train", "recipes/tiny.toml", "--to", str(tmp_path / "run"), *SHORT])
    assert answer.exit_code == 130
    assert f"--to {tmp_path / 'run'} --set 'optimiser.steps=2'" in answer.stderr
    assert answer.stderr.rstrip().endswith("--resume")

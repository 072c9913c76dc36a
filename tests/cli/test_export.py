"""`plait export`: what it says, and what it refuses."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from plait.cli import export as command
from plait.cli.app import app
from plait.encode.load import find_model
from plait.train import checkpoint
from plait.train.tokenization import load_tokenizer
from train.tiny import tiny_model

MODEL = find_model()


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    """A tiny model, as training saves it; it has no vector for most of the tokeniser's ids."""
    checkpoint.save(tiny_model("bert"), load_tokenizer(MODEL), tmp_path / "saved")
    return tmp_path / "saved"


def test_missing_libraries_are_named_with_the_install_command(
    runner: CliRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    find_spec = importlib.util.find_spec

    def without_onnx(name: str, *rest: Any) -> Any:
        return None if name == "onnx" else find_spec(name, *rest)

    monkeypatch.setattr(command, "find_spec", without_onnx)
    answer = runner.invoke(app, ["export", "run", "--to", "model"])
    assert answer.exit_code == 2
    assert "export needs onnx; install with: pip install 'plait[train]'" in answer.stderr


def test_an_unknown_precision_is_one_message_and_exit_code_2(runner: CliRunner, tmp_path: Path) -> None:
    answer = runner.invoke(app, ["export", str(tmp_path), "--to", str(tmp_path / "model"), "--precision", "int4"])
    assert answer.exit_code == 2
    assert "precision is 'int4'; choose one of int8, fp32, both" in answer.stderr


def test_a_tokenizer_with_more_ids_than_the_backbone_is_an_error(
    runner: CliRunner, saved: Path, tmp_path: Path
) -> None:
    answer = runner.invoke(app, ["export", str(saved), "--to", str(tmp_path / "model")])
    assert answer.exit_code == 2
    assert "the tokenizer has ids up to 30521, and the backbone has 60 embeddings" in answer.stderr

"""`plait cluster train` and `mine` without Ray: what is checked before anything starts, and mining in a collection."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from cluster.collections import config_for
from encoders import WordEncoder
from plait.cli import cluster_training
from plait.cli.app import app
from plait.cluster import sharded_index
from plait.cluster.build import build_locally
from plait.cluster.manifest import MANIFEST
from plait.cluster.sharded_index import open_cluster
from plait.readers import documents_from
from train.corpora import write_beir

RECIPE = str(Path(__file__).parents[2] / "recipes/tiny.toml")
runner = CliRunner()


def test_training_without_ray_says_how_to_install_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    result = runner.invoke(app, ["cluster", "train", RECIPE, "--to", str(tmp_path / "run")])
    assert result.exit_code == 2
    assert "pip install 'plait[cluster]'" in result.stderr
    assert not (tmp_path / "run").exists()


def test_training_without_torch_says_how_to_install_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_training, "find_spec", lambda name: None if name == "torch" else True)
    for arguments in (["train", RECIPE], ["mine", "big", "data", "--to", str(tmp_path / "out")]):
        result = runner.invoke(app, ["cluster", *arguments])
        assert result.exit_code == 2
        assert "needs torch; install with: pip install 'plait[" in result.stderr


def test_a_wrong_recipe_is_an_error_before_ray_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", type(sys)("ray"))
    result = runner.invoke(app, ["cluster", "train", RECIPE, "--to", str(tmp_path / "run"), "--set", "loss.name=xtra"])
    assert result.exit_code == 2
    assert "unknown loss 'xtra'" in result.stderr
    assert not (tmp_path / "run").exists()


def test_a_collection_is_mined_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    beir, encoder = write_beir(tmp_path / "set"), WordEncoder()
    build_locally(documents_from([beir / "corpus.jsonl"]), encoder, tmp_path / "big", config_for(encoder, 3))

    def opened(path: Path, **_: Any) -> Any:
        return open_cluster(path, encoder=encoder)

    monkeypatch.setattr(sharded_index, "open_cluster", opened)
    arguments = [str(tmp_path / "big"), str(beir), "--to", str(tmp_path / "mined.jsonl"), "--number", "4"]
    result = runner.invoke(app, ["cluster", "mine", *arguments, "--mode", "dense", "--limit", "20"])
    assert result.exit_code == 0, result.output
    assert "wrote 20 examples" in result.output
    examples = [json.loads(line) for line in (tmp_path / "mined.jsonl").read_text().splitlines()]
    assert [len(example["neg"]) for example in examples] == [4] * 20
    for example in examples:
        assert not set(example["pos"]) & set(example["neg"])
    assert (tmp_path / "big" / MANIFEST).is_file()  # the collection stays


def test_a_folder_without_a_collection_is_wrong_use(tmp_path: Path) -> None:
    beir = write_beir(tmp_path / "set")
    result = runner.invoke(app, ["cluster", "mine", str(tmp_path), str(beir), "--to", str(tmp_path / "out")])
    assert result.exit_code == 2
    assert "not a sharded collection" in result.stderr

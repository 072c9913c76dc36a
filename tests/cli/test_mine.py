"""plait mine: lists of hard negatives that a recipe reads."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from plait.cli.app import app
from plait.train.data.sources import SourceConfig, read_source

TEXTS = {
    "a": "the loom weaves wool into cloth",
    "b": "the loom weaves silk into cloth",
    "c": "a dye colours wool",
    "d": "rain falls on the sea",
}


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "set"
    (folder / "qrels").mkdir(parents=True)
    documents = [json.dumps({"_id": id, "title": "", "text": text}) for id, text in TEXTS.items()]
    (folder / "corpus.jsonl").write_text("\n".join(documents) + "\n")
    (folder / "queries.jsonl").write_text(json.dumps({"_id": "1", "text": "what weaves wool"}) + "\n")
    (folder / "qrels" / "train.tsv").write_text("query-id\tcorpus-id\tscore\n1\ta\t1\n")
    return folder


def test_mined_negatives_rank_high_and_are_not_relevant(runner: CliRunner, data: Path, tmp_path: Path) -> None:
    to = tmp_path / "lists.jsonl"
    ended = runner.invoke(app, ["mine", str(data), "--to", str(to), "--number", "2"])
    assert ended.exit_code == 0, ended.output
    (example,) = read_source(SourceConfig(path=str(to), kind="flag"))
    assert [passage.text for passage in example.positives] == [TEXTS["a"]]
    assert {passage.text for passage in example.negatives} == {TEXTS["b"], TEXTS["c"]}


def test_a_missing_dataset_is_one_message(runner: CliRunner, tmp_path: Path) -> None:
    ended = runner.invoke(app, ["mine", str(tmp_path / "none"), "--to", str(tmp_path / "lists.jsonl")])
    assert ended.exit_code != 0
    assert not (tmp_path / "lists.jsonl").exists()


def test_mining_without_torch_says_what_to_install(
    runner: CliRunner, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("plait.cli.mine.find_spec", lambda name: None if name == "torch" else True)
    ended = runner.invoke(app, ["mine", str(data), "--to", str(tmp_path / "lists.jsonl")])
    assert ended.exit_code == 2
    assert ended.stderr == "plait: mine needs torch; install with: pip install 'plait[train]'\n"

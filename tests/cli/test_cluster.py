"""`plait cluster` without Ray: a local build, searches, the plan, and what is said if Ray is missing."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from plait.cli.app import app


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    path = tmp_path / "corpus.jsonl"
    texts = ["a loom weaves cloth", "silk comes from worms", "wool comes from sheep", "linen is made of flax"] * 3
    path.write_text("\n".join(json.dumps({"id": f"d{n}", "text": f"{text} {n}"}) for n, text in enumerate(texts)))
    return path


def test_a_local_build_is_searched(runner: CliRunner, corpus: Path, tmp_path: Path) -> None:
    built = runner.invoke(
        app, ["cluster", "index", str(corpus), "--to", str(tmp_path / "c"), "--shards", "2", "--local"]
    )
    assert built.exit_code == 0, built.output
    assert "12 documents and 12 passages in 2 shards, generation 1" in built.output
    again = runner.invoke(
        app, ["cluster", "index", str(corpus), "--to", str(tmp_path / "c"), "--shards", "2", "--local"]
    )
    assert "1 of them encoded before; 2 shards built before" in again.output
    searched = runner.invoke(app, ["cluster", "search", str(tmp_path / "c"), "worms 5", "-k", "2", "--json"])
    assert json.loads(searched.stdout)[0]["id"] == "d5"
    shown = runner.invoke(app, ["cluster", "search", str(tmp_path / "c"), "sheep", "--mode", "bm25"])
    assert len(shown.stdout.splitlines()) == 3
    assert runner.invoke(app, ["cluster", "search", str(tmp_path / "c"), "zzzz", "--mode", "bm25"]).exit_code == 1


def test_a_shard_is_split(runner: CliRunner, corpus: Path, tmp_path: Path) -> None:
    to = str(tmp_path / "c")
    assert runner.invoke(app, ["cluster", "index", str(corpus), "--to", to, "--shards", "1", "--local"]).exit_code == 0
    result = runner.invoke(app, ["cluster", "split", to, "0"])
    assert "2 shards, generation 2" in result.stdout, result.output
    assert runner.invoke(app, ["cluster", "split", to, "5"]).exit_code == 2


def test_without_ray_the_message_says_how_to_install_it(
    runner: CliRunner, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    for arguments in (["index", str(corpus), "--to", str(tmp_path / "c")], ["serve", str(tmp_path / "c")]):
        result = runner.invoke(app, ["cluster", *arguments])
        assert result.exit_code == 2
        assert "pip install 'plait[cluster]'" in result.stderr
    assert not (tmp_path / "c").exists()


def test_a_plan_prints_its_assumptions(runner: CliRunner) -> None:
    load = ["cluster", "plan", "--documents", "1e8", "--qps", "50"]
    text = runner.invoke(app, [*load, "--assume", "machine_price=3"]).stdout
    assert "machines" in text
    assert "p50, p95, p99" in text
    assert "machine_price        3" in text
    fields = json.loads(runner.invoke(app, [*load, "--json"]).stdout)
    assert fields["shards"] == 5
    assert fields["p50_ms"] < fields["p99_ms"]
    for wrong in (
        ["--assume", "price=3"],
        ["--assume", "machine_price"],
        ["--assume", "machine_price=x"],
        ["--bits", "3"],
    ):
        assert runner.invoke(app, [*load, *wrong]).exit_code == 2


def test_a_folder_that_is_no_collection_is_wrong_use(runner: CliRunner, tmp_path: Path) -> None:
    result = runner.invoke(app, ["cluster", "search", str(tmp_path), "x"])
    assert result.exit_code == 2
    assert "not a sharded collection" in result.stderr

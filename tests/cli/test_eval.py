"""`plait eval`: tables, JSON, runs, and doubts about numbers that look wrong."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cli.fakes import Library
from plait.cli.app import app
from plait.evaluate import read_run


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "small-set"
    (folder / "qrels").mkdir(parents=True)
    (folder / "queries.jsonl").write_text('{"_id": "q1", "text": "woven"}\n{"_id": "q2", "text": "strand"}\n')
    (folder / "qrels/test.tsv").write_text("query-id\tcorpus-id\tscore\nq1\ta\t1\nq2\tb\t1\nq9\tb\t1\n")
    return folder


def test_a_table_is_printed(runner: CliRunner, library: Library, data: Path) -> None:
    library.make("ix", a="woven", b="other", c="strand")
    result = runner.invoke(app, ["eval", "ix", "--data", str(data)])
    assert result.exit_code == 0
    assert "small-set, test: 2 queries" in result.stdout
    assert ["hybrid", "0.5000", "0.5000", "0.5000"] in [line.split()[:4] for line in result.stdout.splitlines()]
    assert "1 judged queries are not in the queries file" in result.stderr


def test_json_has_one_object_a_mode(runner: CliRunner, library: Library, data: Path) -> None:
    library.make("ix", a="woven", b="strand")
    modes = ["--mode", "bm25", "--mode", "hybrid", "--json", "--per-query", "-k", "5"]
    result = runner.invoke(app, ["eval", "ix", "--data", str(data), *modes])
    first, second = map(json.loads, result.stdout.splitlines())
    assert (first["mode"], second["mode"], first["n_queries"], first["k"]) == ("bm25", "hybrid", 2, 5)
    assert first["measures"] == {"nDCG@5": 1.0, "R@5": 1.0, "RR@5": 1.0}
    assert first["per_query"]["RR@5"] == {"q1": 1.0, "q2": 1.0}


def test_runs_are_written_one_for_each_mode(runner: CliRunner, library: Library, data: Path, tmp_path: Path) -> None:
    library.make("ix", a="woven", b="strand")
    single, several = tmp_path / "one.trec", tmp_path / "many.trec"
    runner.invoke(app, ["eval", "ix", "--data", str(data), "--run", str(single)])
    assert read_run(single) == {"q1": [("a", 1.0)], "q2": [("b", 1.0)]}
    runner.invoke(app, ["eval", "ix", "--data", str(data), "--run", str(several), "--mode", "every"])
    assert sorted(path.name for path in tmp_path.glob("many*")) == ["many-bm25.trec", "many-hybrid.trec"]


def test_all_leaves_out_modes_that_the_index_lacks_and_says_so(runner: CliRunner, library: Library, data: Path) -> None:
    library.make("ix", a="woven")
    result = runner.invoke(app, ["eval", "ix", "--data", str(data), "--mode", "every"])
    assert result.exit_code == 0
    assert "dense is left out: mode 'dense' needs" in result.stderr
    assert runner.invoke(app, ["eval", "ix", "--data", str(data), "--mode", "dense"]).exit_code == 2


def test_documents_named_as_their_query_are_dropped_on_request_only(
    runner: CliRunner, library: Library, data: Path
) -> None:
    library.make("ix", q1="woven", a="woven too")
    asked = ["eval", "ix", "--data", str(data), "--json", "-k", "1"]
    kept, dropped = runner.invoke(app, asked), runner.invoke(app, [*asked, "--drop-self"])
    assert json.loads(kept.stdout)["measures"]["R@1"] == 0.0
    assert "add --drop-self" in kept.stderr
    assert json.loads(dropped.stdout)["measures"]["R@1"] == 0.5
    assert "--drop-self" not in dropped.stderr


def test_an_index_of_another_corpus_is_doubted(runner: CliRunner, library: Library, data: Path) -> None:
    library.make("ix", x="woven", y="strand")
    result = runner.invoke(app, ["eval", "ix", "--data", str(data)])
    assert "does the index hold the corpus of" in result.stderr


@pytest.mark.parametrize("wrong", [["--split", "dev"], ["--per-query"], ["--mode", "nonsense"]])
def test_wrong_use_ends_with_2(runner: CliRunner, library: Library, data: Path, wrong: list[str]) -> None:
    library.make("ix", a="woven")
    result = runner.invoke(app, ["eval", "ix", "--data", str(data), *wrong])
    assert result.exit_code == 2
    assert result.stderr.splitlines()[-1].startswith("plait: ")

"""`plait eval`: tables, JSON, runs, and doubts about numbers that look wrong."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from cli.fakes import FakeIndex, Library
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


def test_json_has_one_object_for_each_mode(runner: CliRunner, library: Library, data: Path) -> None:
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


def test_every_skips_modes_that_the_index_does_not_support(runner: CliRunner, library: Library, data: Path) -> None:
    library.make("ix", a="woven")
    result = runner.invoke(app, ["eval", "ix", "--data", str(data), "--mode", "every"])
    assert result.exit_code == 0
    assert "dense is left out: mode 'dense' needs" in result.stderr
    assert runner.invoke(app, ["eval", "ix", "--data", str(data), "--mode", "dense"]).exit_code == 2


def test_drop_self_removes_documents_with_the_id_of_the_query(runner: CliRunner, library: Library, data: Path) -> None:
    library.make("ix", q1="woven", a="woven too")
    asked = ["eval", "ix", "--data", str(data), "--json", "-k", "1"]
    with_selves, without_selves = runner.invoke(app, asked), runner.invoke(app, [*asked, "--drop-self"])
    assert json.loads(with_selves.stdout)["measures"]["R@1"] == 0.0
    assert "add --drop-self" in with_selves.stderr
    assert json.loads(without_selves.stdout)["measures"]["R@1"] == 0.5
    assert "--drop-self" not in without_selves.stderr


def test_an_index_of_another_corpus_causes_a_warning(runner: CliRunner, library: Library, data: Path) -> None:
    library.make("ix", x="woven", y="strand")
    result = runner.invoke(app, ["eval", "ix", "--data", str(data)])
    assert "does the index hold the corpus of" in result.stderr


@pytest.mark.parametrize("wrong", [["--split", "dev"], ["--per-query"], ["--mode", "nonsense"]])
def test_wrong_use_exits_with_2(runner: CliRunner, library: Library, data: Path, wrong: list[str]) -> None:
    library.make("ix", a="woven")
    result = runner.invoke(app, ["eval", "ix", "--data", str(data), *wrong])
    assert result.exit_code == 2
    assert result.stderr.splitlines()[-1].startswith("plait: ")


def searches(index: FakeIndex) -> list[dict[str, Any]]:
    return [asked for asked in index.asked if "query" in asked]


def many(tmp_path: Path, *names: str) -> list[str]:
    """Two sets with a corpus, in folders of these names."""
    given = []
    for name in names:
        folder = tmp_path / name
        (folder / "qrels").mkdir(parents=True)
        (folder / "corpus.jsonl").write_text(
            '{"_id": "a", "text": "woven"}\n{"_id": "b", "text": "strand"}\n{"_id": "c"}\n'
        )
        (folder / "queries.jsonl").write_text('{"_id": "q1", "text": "woven"}\n{"_id": "q2", "text": "strand"}\n')
        (folder / "qrels/test.tsv").write_text("q1\ta\t1\nq2\ta\t1\n")
        given += ["--data", str(folder)]
    return given


def test_several_datasets_are_indexed_measured_and_averaged(
    runner: CliRunner, library: Library, tmp_path: Path
) -> None:
    asked = ["eval", *many(tmp_path, "one", "two"), "--indexes", str(tmp_path / "ix"), "--mode", "every"]
    result = runner.invoke(app, [*asked, "--run", str(tmp_path / "found.trec")])
    rows = [line.split() for line in result.stdout.splitlines()]
    assert result.exit_code == 0
    assert ["one", "2", "hybrid", "0.5000", "0.5000", "0.5000"] in [row[:6] for row in rows]
    assert ["mean", "of", "2", "bm25", "0.5000"] in [row[:5] for row in rows]
    assert sorted(library.indexes) == [str(tmp_path / "ix/one"), str(tmp_path / "ix/two")]
    assert "1 files or records could not be read" in result.stderr
    names = ["found-one-bm25.trec", "found-one-hybrid.trec", "found-two-bm25.trec", "found-two-hybrid.trec"]
    assert sorted(path.name for path in tmp_path.glob("found*")) == names


def test_finished_rankings_are_reused(runner: CliRunner, library: Library, tmp_path: Path) -> None:
    asked = ["eval", *many(tmp_path, "one"), "--indexes", str(tmp_path / "ix")]
    first = runner.invoke(app, asked)
    index = library.indexes[str(tmp_path / "ix/one")]
    n_asked = len(searches(index))
    second = runner.invoke(app, asked)
    assert len(searches(index)) == n_asked
    assert (second.stdout, "1 of 1 results are from an earlier run" in second.stderr) == (first.stdout, True)
    assert [one["create"] for one in library.opened] == [True, False, False]
    runner.invoke(app, [*asked, "--fresh"])
    assert len(searches(index)) == 2 * n_asked


def test_an_incomplete_index_is_completed(runner: CliRunner, library: Library, tmp_path: Path) -> None:
    asked = ["eval", *many(tmp_path, "one"), "--indexes", str(tmp_path / "ix")]
    index = library.make(str(tmp_path / "ix/one"))
    index.interrupt_after = 1
    stopped = runner.invoke(app, asked)
    assert (stopped.exit_code, len(index.documents)) == (130, 1)
    assert "run the same command again" in stopped.stderr
    index.interrupt_after = None
    assert runner.invoke(app, asked).exit_code == 0
    assert len(index.documents) == 2


def test_an_index_of_another_corpus_is_refused(runner: CliRunner, library: Library, tmp_path: Path) -> None:
    first, second = many(tmp_path, "x/en", "y/en")[1::2]
    inside = ["--indexes", str(tmp_path / "ix")]
    assert runner.invoke(app, ["eval", "--data", first, *inside]).exit_code == 0
    refused = runner.invoke(app, ["eval", "--data", second, *inside])
    assert refused.exit_code == 2
    assert "holds the corpus" in refused.stderr
    both = runner.invoke(app, ["eval", "--data", first, "--data", second, *inside])
    assert both.exit_code == 0
    assert str(tmp_path / "ix/y-en") in library.indexes
    assert "x-en" in both.stdout


def test_one_dataset_measures_several_indexes(runner: CliRunner, library: Library, data: Path) -> None:
    library.make("good", a="woven", b="strand")
    library.make("poor", c="woven", b="strand")
    result = runner.invoke(app, ["eval", "good", "poor", "--data", str(data)])
    rows = [line.split()[:3] for line in result.stdout.splitlines()]
    assert ["good", "hybrid", "1.0000"] in rows
    assert ["poor", "hybrid", "0.5000"] in rows


def test_measures_can_be_chosen_and_per_query_measures_written(
    runner: CliRunner, library: Library, data: Path, tmp_path: Path
) -> None:
    library.make("ix", a="woven")
    file = tmp_path / "each.jsonl"
    asked = ["eval", "ix", "--data", str(data), "--measure", "Success@5", "--measure", "R@1000"]
    result = runner.invoke(app, [*asked, "--per-query-file", str(file)])
    assert "R@1000 needs more than the 100 documents" in result.stderr
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    assert rows[0] == {
        "data": "small-set", "index": "ix", "mode": "hybrid", "query": "q1", "Success@5": 1.0, "R@1000": 1.0
    }  # fmt: skip
    assert rows[1]["Success@5"] == 0.0


@pytest.mark.parametrize("wrong", [[], ["ix", "--indexes", "more"], ["ix", "ix", "ix"]])
def test_each_dataset_needs_an_index(runner: CliRunner, library: Library, tmp_path: Path, wrong: list[str]) -> None:
    library.make("ix", a="woven")
    assert runner.invoke(app, ["eval", *wrong, *many(tmp_path, "one", "two")]).exit_code == 2
    assert runner.invoke(app, ["eval", "ix"]).exit_code == 2


def test_an_unwritable_cache_folder_does_not_stop_the_evaluation(
    runner: CliRunner, library: Library, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library.make("ix", a="woven")
    (tmp_path / "file").write_text("not a folder")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    result = runner.invoke(app, ["eval", "ix", "--data", str(data)])
    assert result.exit_code == 0
    assert "rankings are not kept" in result.stderr
    refused = runner.invoke(app, ["eval", "ix", "--data", str(data), "--cache", str(tmp_path / "file")])
    assert (refused.exit_code, "cannot keep rankings" in refused.stderr) == (2, True)

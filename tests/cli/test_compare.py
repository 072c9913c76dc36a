"""`plait compare`: tables, JSON, files, and what is said of runs that do not fit."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from plait.cli.app import app

OLD = "q1 Q0 b 1 2 t\nq1 Q0 a 2 1 t\nq2 Q0 a 1 1 t\n"
NEW = "q1 Q0 a 1 2 t\nq2 Q0 b 1 2 t\nq2 Q0 c 2 1 t\nq3 Q0 a 1 1 t\nq9 Q0 a 1 1 t\n"
QRELS = "q1 0 a 2\nq1 0 b 0\nq2 0 a 1\nq3 0 a 1\nq4 0 a 0\n"


@pytest.fixture
def files(tmp_path: Path) -> Path:
    (tmp_path / "old.trec").write_text(OLD)
    (tmp_path / "new.trec").write_text(NEW)
    (tmp_path / "qrels.txt").write_text(QRELS)
    (tmp_path / "queries.tsv").write_text("q1\tfirst \x1b[31mquestion\nq2\tsecond\n")
    (tmp_path / "corpus.jsonl").write_text('{"_id": "a", "title": "Right", "text": "x"}\n{"_id": "b", "text": ""}\n')
    return tmp_path


def asked(runner: CliRunner, files: Path, *more: str) -> Result:
    runs = [str(files / "old.trec"), str(files / "new.trec")]
    return runner.invoke(app, ["compare", *runs, "--qrels", str(files / "qrels.txt"), *more])


def test_tables_show_means_differences_and_wins(runner: CliRunner, files: Path) -> None:
    result = asked(runner, files, "--measure", "RR", "--measure", "R@1")
    lines = [line.split() for line in result.stdout.splitlines()]
    assert result.exit_code == 0
    assert ["RR", "old", "0.3750"] in [line[:3] for line in lines]
    assert ["RR", "new", "0.5000"] in [line[:3] for line in lines]
    (row,) = [line for line in lines if line[:2] == ["RR", "new"] and line[2].startswith("+")]
    assert (row[2], row[-3:]) == ("+0.1250", ["2", "1", "1"])
    assert "difference to old; p two-sided, corrected (holm)" in result.stdout


def test_missing_and_unjudged_queries_are_reported(runner: CliRunner, files: Path) -> None:
    notes = asked(runner, files).stderr
    assert "1 of 4 judged queries have no relevant document" in notes
    assert "old: 2 of 4 judged queries are not in the run, and count as 0" in notes
    assert "new: 1 queries of the run are not judged" in notes


def test_queries_that_changed_most_are_shown_with_both_rankings(runner: CliRunner, files: Path) -> None:
    texts = ["--queries", str(files / "queries.tsv"), "--corpus", str(files / "corpus.jsonl")]
    out = asked(runner, files, "--measure", "RR", "--moved", "3", *texts).stdout
    at = out.index("q2  1.0000 -> 0.0000 (-1.0000)  second")
    first, second = out[at:].splitlines()[1:3]
    assert first.split() == ["1", "*", "a", "Right", "1", "b"]
    assert second.split() == ["2", "c"]
    assert "first  [31mquestion" not in out
    assert "\x1b" not in out
    assert "1 *2 a  Right" in out
    assert "1 -  b" in out


def test_json_has_means_differences_and_moved_queries(runner: CliRunner, files: Path) -> None:
    comparison = json.loads(
        asked(runner, files, "--json", "--measure", "RR", "--correction", "none", "--seed", "3").stdout
    )
    assert comparison["means"]["RR"]["old"]["value"] == 0.375
    (difference,) = comparison["differences"]
    assert (difference["wins"], difference["ties"], difference["losses"]) == (2, 1, 1)
    assert difference["p_randomisation"] == difference["p_randomisation_corrected"] == 1.0
    assert comparison["config"]["seed"] == 3
    moved = comparison["moved"][0]
    assert (moved["query"], moved["baseline_value"], moved["run_value"]) == ("q2", 1.0, 0.0)
    assert moved["baseline_ranking"] == [{"id": "a", "relevance": 1}]


def test_the_same_seed_prints_the_same(runner: CliRunner, files: Path) -> None:
    assert asked(runner, files, "--json").stdout == asked(runner, files, "--json").stdout


def test_the_baseline_may_be_any_run_file(runner: CliRunner, files: Path) -> None:
    (files / "third.trec").write_text(OLD)
    for name in ("new", "third"):
        comparison = json.loads(asked(runner, files, "--json", "--baseline", str(files / f"{name}.trec")).stdout)
        assert comparison["baseline"] == name
        assert [one["run"] for one in comparison["differences"]] == [run for run in ("old", "new") if run != name]


def test_runs_with_the_same_file_name_are_named_by_their_paths(runner: CliRunner, files: Path) -> None:
    (files / "more").mkdir()
    (files / "more/old.trec").write_text(NEW)
    comparison = json.loads(asked(runner, files, "--json", "--baseline", str(files / "more/old.trec")).stdout)
    assert comparison["baseline"] == str(files / "more/old.trec")


def test_a_beir_folder_provides_judgements_and_texts(runner: CliRunner, files: Path) -> None:
    (files / "qrels").mkdir()
    (files / "qrels/dev.tsv").write_text("query-id\tcorpus-id\tscore\nq1\ta\t1\nq2\ta\t1\n")
    (files / "queries.jsonl").write_text('{"_id": "q1", "text": "one"}\n{"_id": "q2", "text": "two"}\n')
    runs = [str(files / "old.trec"), str(files / "new.trec")]
    out = runner.invoke(app, ["compare", *runs, "--qrels", str(files), "--split", "dev"]).stdout
    assert "2 queries" in out
    assert "(-1.0000)  two" in out


def test_per_query_measures_and_a_plot_are_written(runner: CliRunner, files: Path) -> None:
    each, plot = files / "each.tsv", files / "means.png"
    result = asked(runner, files, "--measure", "RR", "--per-query-file", str(each), "--plot", str(plot))
    assert result.exit_code == 0
    assert each.read_text().splitlines()[:3] == ["run\tquery\tRR", "old\tq1\t0.5", "old\tq2\t1.0"]
    assert plot.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    "wrong",
    [
        ["--measure", "nonsense"],
        ["--correction", "sidak"],
        ["--baseline", "nowhere.trec"],
        ["--plot", "x.gif"],
        ["--per-query-file", "x.csv"],
        ["--queries", "nowhere.tsv"],
    ],
)
def test_wrong_use_exits_with_2(runner: CliRunner, files: Path, wrong: list[str]) -> None:
    assert asked(runner, files, *wrong).exit_code == 2


def test_a_run_of_other_queries_is_refused(runner: CliRunner, files: Path) -> None:
    (files / "new.trec").write_text("x Q0 a 1 1 t\n")
    result = asked(runner, files)
    assert result.exit_code == 2
    assert "none of the 4 judged queries" in result.stderr


def test_queries_that_find_themselves_cause_a_warning_and_can_be_dropped(runner: CliRunner, files: Path) -> None:
    (files / "new.trec").write_text("q1 Q0 q1 1 2 t\nq1 Q0 a 2 1 t\n")
    with_selves, without_selves = (
        asked(runner, files, "--json", "--measure", "RR"),
        asked(runner, files, "--drop-self", "--json", "--measure", "RR"),
    )
    assert "new: for 1 queries the first document has the id of the query" in with_selves.stderr
    assert json.loads(with_selves.stdout)["means"]["RR"]["new"]["value"] == 0.125
    assert json.loads(without_selves.stdout)["means"]["RR"]["new"]["value"] == 0.25

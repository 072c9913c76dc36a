"""`plait tune`, on a real index: what it saves it shows, and what it cannot reach it refuses."""

from __future__ import annotations

import json
import shutil
import sqlite3
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from plait.cli.app import app
from plait.cli.tune import read_queries
from plait.errors import SourceError
from tune.tunable import make_index


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_index(tmp_path_factory.mktemp("tune") / "ix")


@pytest.fixture
def index(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "ix"))


def run(runner: CliRunner, verb: str, *arguments: object) -> Result:
    return runner.invoke(app, [verb, *map(str, arguments)])


def test_parameters_are_saved_shown_and_reset(runner: CliRunner, index: Path) -> None:
    done = run(runner, "tune", index, "--recall", 0.8, "--of", "codes", "--n-queries", 40)
    assert done.exit_code == 0, done.output
    assert "n_probe" in done.stdout
    assert "for 0.8 asked" in done.stdout
    shown = run(runner, "tune", index, "--show")
    assert shown.stdout.splitlines() == done.stdout.splitlines()[:-1]  # all but the time it took
    assert "by the codes" in shown.stdout
    assert shown.stdout.splitlines()[0] in run(runner, "info", index).stdout
    saved = json.loads(run(runner, "tune", index, "--show", "--json").stdout)
    assert (saved["target_recall"], saved["k"], saved["queries"], saved["damage"]) == (0.8, 10, "rows", "")
    assert run(runner, "tune", index, "--reset").stdout == "not tuned: searches use the defaults\n"
    assert "tuned" not in run(runner, "info", index).stdout


def test_a_recall_out_of_reach_exits_with_1_and_says_what_to_do(runner: CliRunner, index: Path) -> None:
    result = run(runner, "tune", index, "--recall", 1)
    assert result.exit_code == 1
    assert "out of reach: the codes keep 0." in result.stderr
    assert "plait compact --bits 4 (" in result.stderr
    assert "plait compact --keep-8bit (" in result.stderr
    assert "nothing was saved" in result.stderr


def test_json_has_the_tuning_result(runner: CliRunner, index: Path) -> None:
    result = run(runner, "tune", index, "--recall", 0.7, "--of", "codes", "--n-queries", 40, "--json")
    tuned = json.loads(result.stdout)
    assert (tuned["reached"], tuned["saved"], tuned["plan"]["recall_of"]) == (True, True, "codes")


def test_info_reports_damaged_parameters(runner: CliRunner, index: Path) -> None:
    connection = sqlite3.connect(index / "catalogue.sqlite")
    with connection:
        connection.execute("INSERT INTO meta VALUES ('tuned_params', '{')")
    connection.close()
    assert "defaults are used" in run(runner, "info", index).stdout


@pytest.mark.parametrize("wrong", [[], ["--show", "--reset"], ["--recall", 0], ["--recall", 1.5], ["-k", 0]])
def test_wrong_use_is_refused(runner: CliRunner, index: Path, wrong: list[object]) -> None:
    given = wrong if "-k" not in wrong else [*wrong, "--recall", 0.9]
    assert run(runner, "tune", index, *given).exit_code == 2


def test_queries_are_read_from_lines_and_from_objects(tmp_path: Path) -> None:
    file = tmp_path / "queries"
    file.write_text('how are vectors woven\n\n{"_id": "7", "text": "what is a strand"}\n', encoding="utf-8")
    assert read_queries(file) == ["how are vectors woven", "what is a strand"]
    file.write_text('{"_id": "7"}\n', encoding="utf-8")
    with pytest.raises(SourceError, match="line 1"):
        read_queries(file)


def test_fusion_and_data_belong_together() -> None:
    for arguments in (["--fusion"], ["--recall", "0.9", "--data", "set"]):
        result = CliRunner().invoke(app, ["tune", "ix", *arguments])
        assert result.exit_code != 0
        assert "belong together" in " ".join(result.stderr.split())

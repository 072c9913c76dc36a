"""`plait delete`, `plait info` and `plait check`."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from cli.fakes import Library
from plait.cli.app import app
from plait.cli.info import describe_size
from storage.grouped_tokens import make_tokens


def test_documents_are_deleted_by_id(runner: CliRunner, library: Library) -> None:
    index = library.make("ix", a="x", b="y", c="z")
    result = runner.invoke(app, ["delete", "ix", "a", "a", "nowhere", "c"])
    assert (result.exit_code, result.stdout) == (0, "deleted 2 documents; 1 of 3 were not in the index\n")
    assert list(index.documents) == ["b"]
    assert runner.invoke(app, ["delete", "ix", "b"]).stdout == "deleted 1 document\n"


def test_documents_are_deleted_by_a_filter(runner: CliRunner, library: Library) -> None:
    index = library.make("ix", a="x", b="y")
    result = runner.invoke(app, ["delete", "ix", "--filter", "year < 2000"])
    assert (result.exit_code, result.stdout) == (0, "deleted 2 documents\n")
    assert index.asked == [{"ids": None, "filter": "year < 2000"}]


def test_deleting_nothing_exits_with_1(runner: CliRunner, library: Library) -> None:
    library.make("ix", a="x")
    assert runner.invoke(app, ["delete", "ix", "nowhere"]).exit_code == 1


@pytest.mark.parametrize("command", [["delete", "ix", "a"], ["compact", "ix"], ["tune", "ix", "--reset"]])
def test_the_wait_of_a_writing_command_reaches_the_index(
    runner: CliRunner, library: Library, command: list[str]
) -> None:
    library.make("ix", a="x")
    runner.invoke(app, [*command, "--wait", "7"])
    runner.invoke(app, command)
    assert [opened["write_timeout"] for opened in library.opened] == [7.0, 30.0]


def test_info_prints_the_same_facts_as_lines_and_as_json(runner: CliRunner, library: Library) -> None:
    library.make("ix", a="x")
    shown = dict(line.split(maxsplit=1) for line in runner.invoke(app, ["info", "ix"]).stdout.splitlines())
    assert shown["documents"] == "1"
    assert shown["size"] == "1.5 MB"
    assert shown["multi"] == "1 MB"
    assert shown["embeddings"] == "multi (64)"
    assert shown["model"] == "small"
    read = json.loads(runner.invoke(app, ["info", "ix", "--json"]).stdout)
    assert (read["documents"], read["bytes_by_part"]["multi"]) == (1, 1_000_000)
    assert library.opened[0]["read_only"]


@pytest.mark.parametrize(
    ("n_bytes", "shown"),
    [
        (0, "0 bytes"),
        (999, "999 bytes"),
        (1500, "1.5 kB"),
        (23_400_000, "23.4 MB"),
        (999_700, "1 MB"),
        (5e15, "5e+03 TB"),
    ],
)
def test_sizes_are_printed_with_units(n_bytes: float, shown: str) -> None:
    assert describe_size(n_bytes) == shown


@pytest.mark.parametrize(("problems", "code"), [([], 0), (["dense.plait: block 3 is damaged"], 1)])
def test_check_exits_with_1_if_there_is_a_problem(
    runner: CliRunner, monkeypatch: pytest.MonkeyPatch, problems: list[str], code: int
) -> None:
    report = SimpleNamespace(problems=problems, notes=["a leftover"], n_documents=5, n_segments=2)
    monkeypatch.setattr("plait.storage.check.check", lambda path: report if path == Path("ix") else None)
    result = runner.invoke(app, ["check", "ix"])
    assert result.exit_code == code
    assert "note: a leftover" in result.stdout
    assert ("ix is sound: 5 documents in 2 segments" in result.stdout) == (not problems)
    assert all(f"problem: {problem}" in result.stdout for problem in problems)


def test_repair_names_what_was_lost_and_backup_copies(runner: CliRunner, tmp_path: Path) -> None:
    store = make_tokens(tmp_path / "index", n_documents=10)
    copied = runner.invoke(app, ["backup", str(store.path), str(tmp_path / "copy")])
    assert (copied.exit_code, "27 documents" in copied.stdout) == (0, True)
    (store.path / "segments" / "000002" / "dense.plait").unlink()
    assert runner.invoke(app, ["check", str(store.path)]).exit_code == 1
    repaired = runner.invoke(app, ["check", str(store.path), "--repair"])
    assert repaired.exit_code == 0
    assert "dropped: segment 2\nlost: d11\n" in repaired.stdout
    assert "18 documents are kept, 9 are lost" in repaired.stdout
    lost = tmp_path / "index.lost.jsonl"
    assert f"the texts of 9 of the lost documents are in {lost}" in repaired.stdout
    assert f"plait index {lost} --to {store.path}" in repaired.stdout
    assert len(lost.read_text().splitlines()) == 9
    assert runner.invoke(app, ["check", str(tmp_path / "copy")]).exit_code == 0


def test_rescue_without_repair_is_refused(runner: CliRunner, tmp_path: Path) -> None:
    result = runner.invoke(app, ["check", str(tmp_path), "--rescue", "lost.jsonl"])
    assert (result.exit_code, "--rescue needs --repair" in result.stderr) == (2, True)

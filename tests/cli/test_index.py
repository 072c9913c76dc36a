"""`plait index`: what it says, what it keeps and how it ends."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from cli.fakes import FakeIndex, Library
from plait.cli.app import app
from plait.codec.pooling import Pooling


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "a.jsonl"
    path.write_text("".join(f'{{"id": "{n}", "text": "text {n}"}}\n' for n in range(5)))
    return path


def test_documents_go_into_the_index(runner: CliRunner, library: Library, source: Path) -> None:
    result = runner.invoke(app, ["index", str(source), "--to", "ix", "--model", "small", "--threads", "2"])
    assert result.exit_code == 0
    assert list(library.indexes["ix"].documents) == ["0", "1", "2", "3", "4"]
    assert library.opened == [
        {"path": "ix", "create": True, "model": "small", "language": None, "pooling": None, "n_threads": 2}
    ]
    assert "ix: 5 documents added, 0 updated, 0 unchanged; 5 passages in 0.5 s, 10 documents/s" in result.stdout
    assert "1 passages were longer" in result.stderr


def test_what_was_left_out_is_said_at_the_end(runner: CliRunner, library: Library, source: Path) -> None:
    source.write_text(source.read_text() + 'broken\n{"id": "0", "text": "again"}\n')
    (source.parent / "x.png").write_bytes(b"png")
    result = runner.invoke(app, ["index", str(source.parent), "--to", "ix", "--on-error", "skip"])
    assert result.exit_code == 0
    assert "passed over 1 files: 1 .png" in result.stderr
    assert "skipped 1 that could not be read" in result.stderr
    assert f"{source}, line 6, column 1: this is not JSON" in result.stderr
    assert "1 ids came more than once, and the last one was kept: 0" in result.stderr
    assert library.indexes["ix"].documents["0"].text == "again"


def test_a_bad_record_stops_it_and_says_what_is_kept(runner: CliRunner, library: Library, source: Path) -> None:
    source.write_text(source.read_text() + "broken\n")
    result = runner.invoke(app, ["index", str(source), "--to", "ix", "--commit-every", "2"])
    assert result.exit_code == 2
    assert result.stderr.startswith(f"plait: {source}, line 6")
    assert "4 documents before it are kept in ix" in result.stderr
    assert "--on-error skip" in result.stderr
    assert library.indexes


def test_ctrl_c_says_what_is_kept_and_how_to_go_on(runner: CliRunner, library: Library, source: Path) -> None:
    library.indexes["ix"] = FakeIndex(Path("ix"), interrupt_after=3)
    result = runner.invoke(app, ["index", str(source), "--to", "ix", "--commit-every", "2"])
    assert result.exit_code == 130
    assert "stopped; 2 documents are safe in ix. Run the same command with --resume" in result.stderr


@pytest.mark.parametrize("content", ["", "\n\n", None])
def test_an_index_of_nothing_is_not_made(
    runner: CliRunner, library: Library, source: Path, content: str | None
) -> None:
    source.unlink() if content is None else source.write_text(content)
    result = runner.invoke(app, ["index", str(source.parent), "--to", "ix"])
    assert result.exit_code == 2
    assert "there is nothing to index" in result.stderr
    assert not library.indexes


def test_json_lines_may_come_from_another_program(runner: CliRunner, library: Library) -> None:
    result = runner.invoke(app, ["index", "-", "--to", "ix"], input='{"id": "a", "text": "woven"}\n')
    assert result.exit_code == 0, result.output
    assert list(library.indexes["ix"].documents) == ["a"]


@pytest.mark.parametrize(
    "wrong", [["--to", "ix"], ["a.jsonl"], ["missing.txt", "--to", "ix"], ["-", "--to", "x", "--on-error", "cry"]]
)
def test_wrong_use_ends_with_2(runner: CliRunner, library: Library, wrong: list[str]) -> None:
    result = runner.invoke(app, ["index", *wrong])
    assert result.exit_code == 2
    assert not library.indexes


def test_pooling_is_handed_on_where_it_is_chosen(runner: CliRunner, library: Library, source: Path) -> None:
    arguments = ["--pool-fixed", "32", "--pool-method", "sequential"]
    assert runner.invoke(app, ["index", str(source), "--to", "ix", *arguments]).exit_code == 0
    assert runner.invoke(app, ["index", str(source), "--to", "iy", "--pool-factor", "2"]).exit_code == 0
    first, second = library.opened
    assert (first["pooling"], second["pooling"]) == (Pooling(fixed=32, method="sequential"), Pooling(factor=2))

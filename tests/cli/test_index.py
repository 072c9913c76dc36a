"""`plait index`: what it says, what it keeps and how it ends."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from cli.fakes import FakeIndex, Library
from plait.cli.app import app
from plait.codec.pooling import Pooling
from plait.codec.projection import Projection


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
        {
            "path": "ix",
            "create": True,
            "model": "small",
            "language": None,
            "pooling": None,
            "projection": None,
            "chunking": None,
            "n_threads": 2,
            "write_timeout": 30.0,
        }
    ]
    assert "ix: 5 documents added, 0 updated, 0 unchanged; 5 passages in 0.5 s, 10 documents/s" in result.stdout
    assert "1 passages were longer" in result.stderr


def test_skipped_files_and_repeated_ids_are_reported_at_the_end(
    runner: CliRunner, library: Library, source: Path
) -> None:
    source.write_text(source.read_text() + 'broken\n{"id": "0", "text": "again"}\n')
    (source.parent / "x.png").write_bytes(b"png")
    result = runner.invoke(app, ["index", str(source.parent), "--to", "ix"])
    assert result.exit_code == 1
    assert "skipped 1 files: 1 .png" in result.stderr
    assert "1 files or records could not be read:" in result.stderr
    assert f"{source}, line 6, column 1: this is not JSON" in result.stderr
    assert "1 ids came more than once, and the last document of each was used: 0" in result.stderr
    assert library.indexes["ix"].documents["0"].text == "again"


def test_a_bad_record_stops_the_run_and_the_message_says_what_was_saved(
    runner: CliRunner, library: Library, source: Path
) -> None:
    source.write_text(source.read_text() + "broken\n")
    result = runner.invoke(app, ["index", str(source), "--to", "ix", "--commit-every", "2", "--on-error", "stop"])
    assert result.exit_code == 2
    assert result.stderr.startswith(f"plait: {source}, line 6")
    assert "4 documents before it are in ix" in result.stderr
    assert "--on-error skip" in result.stderr
    assert library.indexes


def test_ctrl_c_says_what_was_saved_and_how_to_continue(runner: CliRunner, library: Library, source: Path) -> None:
    library.indexes["ix"] = FakeIndex(Path("ix"), interrupt_after=3)
    result = runner.invoke(app, ["index", str(source), "--to", "ix", "--commit-every", "2"])
    assert result.exit_code == 130
    assert "stopped; 2 documents are saved in ix. Run the same command with --resume" in result.stderr


@pytest.mark.parametrize("content", ["", "\n\n", None])
def test_no_empty_index_is_left(runner: CliRunner, source: Path, content: str | None) -> None:
    source.unlink() if content is None else source.write_text(content)
    to = source.parent.parent / f"{source.parent.name}-ix"
    result = runner.invoke(app, ["index", str(source.parent), "--to", str(to)])
    assert result.exit_code == 2
    assert "there is nothing to index" in result.stderr
    assert not to.exists()


def test_input_that_is_all_bad_gives_its_reason_and_leaves_no_index(runner: CliRunner, source: Path) -> None:
    """Issue 24: the reason was hidden, and an empty index was left."""
    source.write_text("broken\n")
    for option in ("skip", "stop"):
        to = source.parent / f"ix-{option}"
        result = runner.invoke(app, ["index", str(source), "--to", str(to), "--on-error", option])
        assert result.exit_code == 2
        assert f"{source}, line 1, column 1: this is not JSON" in result.stderr
        assert not to.exists()


def test_a_first_load_that_fails_while_it_encodes_leaves_no_index(
    runner: CliRunner, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("plait.folder_sync.load.add_documents", fail)
    to = source.parent / "ix"
    to.mkdir()
    result = runner.invoke(app, ["index", str(source), "--to", str(to)])
    assert result.exit_code == 130
    assert "stopped; nothing was saved" in result.stderr
    assert not (to / "catalogue.sqlite").exists()


def test_a_later_load_that_fails_leaves_the_index(runner: CliRunner, source: Path) -> None:
    to = source.parent / "ix"
    assert runner.invoke(app, ["index", str(source), "--to", str(to)]).exit_code == 0
    source.write_text("broken\n")
    assert runner.invoke(app, ["index", str(source), "--to", str(to)]).exit_code == 2
    assert (to / "catalogue.sqlite").exists()


def test_json_lines_are_read_from_standard_input(runner: CliRunner, library: Library) -> None:
    result = runner.invoke(app, ["index", "-", "--to", "ix"], input='{"id": "a", "text": "woven"}\n')
    assert result.exit_code == 0, result.output
    assert list(library.indexes["ix"].documents) == ["a"]


@pytest.mark.parametrize(
    "wrong", [["--to", "ix"], ["a.jsonl"], ["missing.txt", "--to", "ix"], ["-", "--to", "x", "--on-error", "cry"]]
)
def test_wrong_use_exits_with_2(runner: CliRunner, library: Library, wrong: list[str]) -> None:
    result = runner.invoke(app, ["index", *wrong])
    assert result.exit_code == 2
    assert not library.indexes


def test_dims_become_a_projection(runner: CliRunner, library: Library, source: Path) -> None:
    for dims in ("64", "off"):
        assert runner.invoke(app, ["index", str(source), "--to", f"ix-{dims}", "--dims", dims]).exit_code == 0
    first, second = library.opened
    assert (first["projection"], second["projection"]) == (Projection(dims=64), None)
    assert runner.invoke(app, ["index", str(source), "--to", "ix", "--dims", "narrow"]).exit_code == 2


def test_pooling_options_become_a_pooling(runner: CliRunner, library: Library, source: Path) -> None:
    arguments = ["--pool-fixed", "32", "--pool-method", "sequential"]
    assert runner.invoke(app, ["index", str(source), "--to", "ix", *arguments]).exit_code == 0
    assert runner.invoke(app, ["index", str(source), "--to", "iy", "--pool-factor", "2"]).exit_code == 0
    first, second = library.opened
    assert (first["pooling"], second["pooling"]) == (Pooling(fixed=32, method="sequential"), Pooling(factor=2))


def test_resume_needs_an_index_that_exists(runner: CliRunner, library: Library, tmp_path: Path) -> None:
    (tmp_path / "c.jsonl").write_text('{"id": "a", "text": "x"}\n')
    answer = runner.invoke(app, ["index", str(tmp_path / "c.jsonl"), "--to", str(tmp_path / "ix"), "--resume"])
    assert answer.exit_code == 2
    assert "there is nothing to resume" in answer.stderr
    assert library.opened == []

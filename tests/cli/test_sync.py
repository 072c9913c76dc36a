"""`plait sync`: what it says, and how it ends. The index is a real one, with an encoder of words."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import plait
from encoders import WordEncoder
from plait.cli.app import app
from plait.index import open_index


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two notes; `plait.open` uses an encoder that needs no model."""

    def open_with_words(path: Path, *, model: object = None, **options: Any) -> plait.Index:
        del model
        return open_index(path, encoder=WordEncoder(), **options)

    monkeypatch.setitem(vars(plait), "open", open_with_words)
    notes = tmp_path / "notes"
    notes.mkdir()
    (notes / "a.txt").write_text("wool is warm")
    (notes / "b.txt").write_text("silk is smooth")
    return notes


def test_a_folder_is_synced_and_synced_again(runner: CliRunner, folder: Path, tmp_path: Path) -> None:
    arguments = ["sync", str(folder), "--to", str(tmp_path / "ix")]
    result = runner.invoke(app, arguments)
    assert result.exit_code == 0, result.output
    assert "2 files added, 0 changed, 0 moved, 0 removed, 0 unchanged; 2 passages encoded" in result.stdout
    (folder / "a.txt").rename(folder / "c.txt")
    (folder / "b.txt").unlink()
    dry = runner.invoke(app, [*arguments, "--dry-run"])
    assert dry.stdout == (
        "move    a.txt -> c.txt\nremove  b.txt\nwould be: 0 files added, 0 changed, 1 moved, 1 removed, 0 unchanged\n"
    )
    result = runner.invoke(app, arguments)
    assert "0 files added, 0 changed, 1 moved, 1 removed, 0 unchanged; 0 passages encoded" in result.stdout


def test_a_bad_file_is_named_each_time_and_the_exit_code_says_so(
    runner: CliRunner, folder: Path, tmp_path: Path
) -> None:
    (folder / "bad.docx").write_bytes(b"nonsense")
    for _ in range(2):
        result = runner.invoke(app, ["sync", str(folder), "--to", str(tmp_path / "ix")])
        assert result.exit_code == 1
        assert "1 files or records could not be read:" in result.stderr
        assert "bad.docx is damaged" in result.stderr


def test_files_can_be_chosen(runner: CliRunner, folder: Path, tmp_path: Path) -> None:
    (folder / "c.csv").write_text("key;body\n7;linen creases\n")
    options = ["--include", "*.csv", "--id-field", "key", "--text-field", "body"]
    assert runner.invoke(app, ["sync", str(folder), "--to", str(tmp_path / "ix"), *options]).exit_code == 0
    with plait.open(tmp_path / "ix") as index:
        assert {document.id: document.text for document in index} == {"7": "linen creases"}


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["missing", "--to", "ix"], "there is no file or folder"),
        (["-", "--to", "ix"], "standard input cannot be synced"),
        ([".", "--to", "ix", "--watch", "--dry-run"], "exclude each other"),
        ([".", "--to", "ix", "--dry-run"], "does not exist"),
        (["empty", "--to", "ix"], "there is nothing to index"),
    ],
)
def test_wrong_use_is_named_and_leaves_no_index(
    runner: CliRunner,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    problem: str,
) -> None:
    monkeypatch.chdir(folder)
    (folder / "empty").mkdir()
    result = runner.invoke(app, ["sync", *arguments])
    assert result.exit_code == 2
    assert problem in result.stderr
    assert not (folder / "ix").exists()


def test_watching_follows_changes_until_ctrl_c(folder: Path, tmp_path: Path) -> None:
    """In a process of its own, with a real signal."""
    code = (
        "import sys, plait; from plait.index import open_index; from encoders import WordEncoder\n"
        "vars(plait)['open'] = lambda path, model=None, **options: open_index(path, encoder=WordEncoder(), **options)\n"
        "from plait.cli import main; sys.exit(main(sys.argv[1:]))"
    )
    arguments = ["sync", str(folder), "--to", str(tmp_path / "ix"), "--watch"]
    tests = str(Path(__file__).parents[1])
    running = subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": tests},
    )
    try:
        assert running.stdout is not None
        assert "2 files added" in running.stdout.readline()
        time.sleep(1)  # until the watch has begun
        (folder / "new.txt").write_text("linen creases")
        (folder / "a.txt").unlink()
        assert "1 files added, 0 changed, 0 moved, 1 removed" in running.stdout.readline()
        running.send_signal(signal.SIGINT)
        _, errors = running.communicate(timeout=30)
    finally:
        running.kill()
        running.wait()
    assert running.returncode == 0
    assert "stopped watching" in errors
    assert "Traceback" not in errors

"""`plait index --resume`."""

from __future__ import annotations

from pathlib import Path

from typer.testing import CliRunner

from cli.fakes import Library
from plait.cli.app import app


def test_resuming_needs_something_to_resume(runner: CliRunner, library: Library, tmp_path: Path) -> None:
    (tmp_path / "c.jsonl").write_text('{"id": "a", "text": "x"}\n')
    answer = runner.invoke(app, ["index", str(tmp_path / "c.jsonl"), "--to", str(tmp_path / "ix"), "--resume"])
    assert answer.exit_code == 2
    assert "there is nothing to resume" in answer.stderr
    assert library.opened == []

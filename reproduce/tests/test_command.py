"""`plait reproduce` as a command: its options are documented, and `--list` names every claim."""

from __future__ import annotations

from pathlib import Path

import typer
from typer.testing import CliRunner

from plait.cli.errors import handle_errors
from plait_reproduce.claims import experiments
from plait_reproduce.command import reproduce

README = Path(__file__).parents[1] / "README.md"

app = typer.Typer(add_completion=False)
app.command()(handle_errors(reproduce))


def test_every_option_is_documented() -> None:
    page = README.read_text(encoding="utf-8")
    options = [name for option in typer.main.get_command(app).params for name in option.opts if name.startswith("--")]
    assert [name for name in options if f"`{name}" not in page] == []


def test_the_list_names_every_claim() -> None:
    listed = CliRunner().invoke(app, ["--list"]).stdout
    assert [id for id in experiments() if f"\n{id} " not in listed] == []


def test_two_tiers_at_once_are_refused() -> None:
    answer = CliRunner().invoke(app, ["--quick", "--full"])
    assert answer.exit_code == 2
    assert "--quick and --full" in answer.stderr

"""Verbs of other packages: run if the package is installed, else an error that says how to install it."""

from __future__ import annotations

from importlib.metadata import EntryPoint, EntryPoints

import pytest
import typer
from typer.testing import CliRunner

from plait.cli import extensions
from plait.cli.app import app
from plait.errors import ConfigError


def install(monkeypatch: pytest.MonkeyPatch, *entries: EntryPoint) -> None:
    monkeypatch.setattr(extensions, "entry_points", lambda **wanted: EntryPoints(entries).select(**wanted))


def greet(name: str, loud: bool = False, wrong: bool = False) -> None:
    """Greet someone."""
    if wrong:
        raise ConfigError("that is wrong")
    typer.echo(f"hello {name.upper() if loud else name}")


ENTRY = EntryPoint("reproduce", f"{__name__}:greet", extensions.ENTRY_POINT_GROUP)


def test_a_verb_whose_package_is_missing_says_how_to_install_it(
    runner: CliRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(monkeypatch)
    answer = runner.invoke(app, ["reproduce", "--list"])
    assert answer.exit_code == 2
    assert "pip install plait-reproduce" in answer.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "output"),
    [
        (["you", "--loud"], 0, "hello YOU"),
        (["--help"], 0, "Greet someone."),
        (["you", "--wrong"], 2, "plait: that is wrong"),
        (["you", "--what"], 2, "No such option"),
    ],
)
def test_the_arguments_go_to_the_installed_command(
    runner: CliRunner, monkeypatch: pytest.MonkeyPatch, arguments: list[str], code: int, output: str
) -> None:
    install(monkeypatch, ENTRY)
    monkeypatch.setattr(EntryPoint, "load", lambda _entry: greet)
    answer = runner.invoke(app, ["reproduce", *arguments])
    assert answer.exit_code == code
    assert output in answer.output

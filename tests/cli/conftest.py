"""Each test of the command line gets a runner, and a library of indexes in place of the engine."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

import plait
from cli.fakes import Library


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> Library:
    library = Library()
    monkeypatch.setitem(vars(plait), "open", library.open)
    return library


@pytest.fixture
def runner() -> CliRunner:
    return CliRunner()

"""Each test of the command line gets a runner, and a library of indexes in place of the engine."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
from typer.testing import CliRunner

import plait
from cli.fakes import FakeIndex, Library


def call_method(name: str, index: FakeIndex, *args: object, **kwargs: object) -> object:
    return getattr(index, name)(*args, **kwargs)


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> Library:
    library = Library()
    monkeypatch.setitem(vars(plait), "open", library.open)
    for name in ("rank_queries", "search_fingerprint"):
        monkeypatch.setattr(f"plait.evaluate.rank.{name}", partial(call_method, name))
    return library


@pytest.fixture(autouse=True)
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What commands keep for later goes to a folder of the test's own."""
    folder = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder))
    return folder


@pytest.fixture
def runner() -> CliRunner:
    return CliRunner()

"""Copies of the small checkpoints that a test may change, and a cache of models of the test's own."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

CHECKPOINTS = Path(__file__).parent / "checkpoints"

Copy = Callable[[str], Path]


@pytest.fixture
def copy(tmp_path: Path) -> Copy:
    """Copies one of the small checkpoints into a folder of the test's own."""

    def copied(name: str) -> Path:
        folder = tmp_path / "source" / name
        shutil.copytree(CHECKPOINTS / name, folder)
        return folder

    return copied


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of converted models."""
    monkeypatch.setenv("PLAIT_HOME", str(tmp_path / "home"))
    return tmp_path / "home"

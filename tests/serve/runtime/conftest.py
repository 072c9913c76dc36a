"""What the tests of the runtime share."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from serve.runtime.samples import make_index


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_index(tmp_path_factory.mktemp("built") / "fabrics")


@pytest.fixture
def fabrics(built: Path, tmp_path: Path) -> Path:
    """A copy of a small index, which a test may change."""
    return Path(shutil.copytree(built, tmp_path / "fabrics"))

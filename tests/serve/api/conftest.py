"""What the tests of the API share."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from serve.api.servers import config_of, make_index, serving


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_index(tmp_path_factory.mktemp("built") / "fabrics")


@pytest.fixture
def fabrics(built: Path, tmp_path: Path) -> Path:
    """A copy of a small index, which a test may change."""
    return Path(shutil.copytree(built, tmp_path / "fabrics"))


@pytest.fixture
def client(fabrics: Path) -> Iterator[TestClient]:
    """A client of a server on loopback, without keys."""
    with serving(config_of(fabrics)) as client:
        yield client

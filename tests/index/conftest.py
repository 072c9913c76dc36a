from __future__ import annotations

from pathlib import Path

import pytest

from index.samples import add, fabrics, make_store
from plait.index.store import Store


@pytest.fixture
def empty(tmp_path: Path) -> Store:
    """An index without documents."""
    return make_store(tmp_path / "index")


@pytest.fixture
def store(empty: Store) -> Store:
    """An index of four documents, two passages each, in one segment."""
    add(empty, fabrics())
    return empty

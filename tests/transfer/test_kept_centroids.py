"""Vectors that a source compressed keep the centroids that the source gave them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from plait.storage.store import Store
from plait.transfer import import_index
from plait.transfer.formats import open_source
from plait.transfer.source import ImportOptions
from transfer.conftest import FIXTURES


@pytest.mark.parametrize("name", ["fast-plaid", "plaid", "warp"])
def test_imported_vectors_keep_the_centroids_of_the_source(tmp_path: Path, name: str) -> None:
    cells = [row.cells for row in open_source(FIXTURES / name, None, ImportOptions()).rows() if row.cells is not None]
    import_index(FIXTURES / name, tmp_path / "index")
    with Store.open(tmp_path / "index", read_only=True) as store, store.snapshot() as snapshot:
        (segment,) = snapshot.segments
        assert segment.coded is not None
        assert segment.coded.rows.cells is not None
        imported = np.array(segment.coded.rows.cells)
    assert np.array_equal(imported, np.concatenate(cells))

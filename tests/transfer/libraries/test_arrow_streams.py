"""Passages in DuckDB and polars."""

from __future__ import annotations

from pathlib import Path

import duckdb
import polars

from plait.transfer import passage_reader
from transfer.conftest import make_index
from transfer.same import passages


def test_duckdb_and_polars_read_an_index(tmp_path: Path) -> None:
    with make_index(tmp_path / "index") as index:
        n_passages = passages(index).n_passages
        recent = duckdb.from_arrow(passage_reader(index, filter="year >= 2050"))
        assert recent.aggregate("count(DISTINCT id)").fetchall() == [(10,)]
        frame = polars.from_arrow(passage_reader(index).read_all())
        assert isinstance(frame, polars.DataFrame)
        assert len(frame) == n_passages

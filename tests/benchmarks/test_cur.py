"""The benchmark of search with a cross-encoder, on a matrix that is made up."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import cur
import cur_matrix


@pytest.fixture
def matrix(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    queries, items = rng.normal(size=(60, 12)), rng.normal(size=(200, 12))
    (queries @ items.T).astype("<f4").tofile(tmp_path / "scores.f32")
    (items[:30] @ items.T).astype("<f4").tofile(tmp_path / "item_scores.f32")
    np.save(tmp_path / "item_anchors.npy", np.arange(30))
    np.save(tmp_path / "items.npy", (items + rng.normal(size=items.shape)).astype(np.float32))
    np.save(tmp_path / "queries.npy", queries.astype(np.float32))
    (tmp_path / "about.json").write_text(json.dumps({"data": "made up", "model": "none"}))
    return tmp_path


def test_every_method_is_measured_and_the_matrix_decides_who_wins(
    matrix: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"CUTS": (1e-3,), "SPLITS": (0.5,), "MIXES": (0.0,), "N_DEV": 5}.items():
        monkeypatch.setattr(cur, name, value)
    found = cur.measured(cur.read(matrix, 40, 10), 50, 0)
    assert set(found) == {
        *("rerank dense", "anncur", "anncur, oracle split", "fixed-item", "item-CUR", "adacur", "adacur, dense start"),
        *("axn dense", "axn factors"),
    }
    assert found["anncur"][10] == pytest.approx(1.0)  # 25 anchors span 12 directions
    assert found["adacur"][10] == pytest.approx(1.0)
    assert found["rerank dense"][10] < 1
    page = cur.table({50: found}, 10)
    assert "| anncur | 1.000 |" in page


def test_a_matrix_goes_on_where_it_was_stopped(tmp_path: Path) -> None:
    asked: list[str] = []

    def row(query: str) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
        asked.append(query)
        return np.full(4, len(asked), np.float32)

    cur_matrix.fill(tmp_path / "m", ["a", "b"], 4, row)
    with (tmp_path / "m").open("ab") as file:
        file.write(b"half")
    whole = cur_matrix.fill(tmp_path / "m", ["a", "b", "c"], 4, row)
    assert asked == ["a", "b", "c"]
    np.testing.assert_array_equal(whole[:, 0], [1, 2, 3])

"""The benchmark of search with a cross-encoder, on a generated matrix."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from benchmarks.cur import matrix as score_matrix
from benchmarks.cur import recall as cur
from benchmarks.cur.figures import tables
from plait.records import Document


@pytest.fixture
def matrix(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    queries, items = rng.normal(size=(60, 12)), rng.normal(size=(200, 12))
    (queries @ items.T).astype("<f4").tofile(tmp_path / "scores.f32")
    (items[:30] @ items.T).astype("<f4").tofile(tmp_path / "item_scores.f32")
    np.save(tmp_path / "item_anchors.npy", np.arange(30))
    np.save(tmp_path / "items.npy", (items + rng.normal(size=items.shape)).astype(np.float32))
    np.save(tmp_path / "queries.npy", queries.astype(np.float32))
    np.save(tmp_path / "first-bm25.npy", np.tile(np.r_[np.arange(60), -1], (60, 1)))
    (tmp_path / "positives.json").write_text(json.dumps([[int(row.argmax())] for row in queries @ items.T]))
    (tmp_path / "about.json").write_text(json.dumps({"data": "made up", "model": "none"}))
    return tmp_path


def test_every_method_is_measured_on_the_matrix(matrix: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"CUTS": (1e-3,), "AXN_CUTS": (1e-3,), "SPLITS": (0.5,), "MIXES": (0.0,), "N_DEV": 5}.items():
        monkeypatch.setattr(cur, name, value)
    data = cur.read(matrix, 40, 10)
    found, chosen = cur.measured(data, 50, 0)
    assert set(found) == {
        *("rerank dense", "rerank bm25", "anncur", "anncur, oracle split", "fixed-item", "item-CUR", "adacur"),
        *("adacur, dense start", "adacur, bm25 start", "axn dense", "axn factors"),
    }
    assert found["anncur"]["top-10"] == pytest.approx(1.0)  # 25 anchors span 12 directions
    assert found["adacur"]["top-10"] == pytest.approx(1.0)
    assert found["rerank dense"]["top-10"] < 1
    assert found["anncur"]["accuracy"] == pytest.approx(1.0)  # what is relevant is the best
    assert chosen["anncur, k = 10"] == "25 anchors, cut 0.001"
    alone = cur.without_calls(data)
    assert alone["exact cross-encoder"] == {"accuracy": 1.0, "nDCG@10": 1.0}
    page = "\n".join(tables({50: found}, ["top-10", "accuracy"], alone))
    assert "| anncur | 1.000 |" in page
    assert "| exact cross-encoder | 1.000 |" in page


def test_bm25_and_judgements_name_documents_by_number(tmp_path: Path) -> None:
    documents = [Document("a", "red apples"), Document("b", "green pears"), Document("c", "red and green")]
    ranked = score_matrix.by_words(documents, ["pears", "nothing of it"], 2)
    assert ranked.tolist() == [[1, -1], [-1, -1]]
    (tmp_path / "qrels").mkdir()
    (tmp_path / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\nq\tc\t1\nq\tb\t0\n")
    assert score_matrix.relevant(tmp_path, ["q", "r"], ["a", "b", "c"]) == [[2], []]


def test_a_stopped_matrix_continues_with_the_next_row(tmp_path: Path) -> None:
    asked: list[str] = []

    def row(query: str) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
        asked.append(query)
        return np.full(4, len(asked), np.float32)

    score_matrix.fill(tmp_path / "m", ["a", "b"], 4, row)
    with (tmp_path / "m").open("ab") as file:
        file.write(b"half")
    whole = score_matrix.fill(tmp_path / "m", ["a", "b", "c"], 4, row)
    assert asked == ["a", "b", "c"]
    np.testing.assert_array_equal(whole[:, 0], [1, 2, 3])

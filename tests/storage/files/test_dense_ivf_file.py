"""dense_ivf.plait: when it is written, merges, deletes and damage."""

from __future__ import annotations

import math
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

import plait
from plait.errors import CorruptIndexError
from plait.search.dense import ProbedDense
from plait.search.query import QueryBatch
from plait.search.trace import Trace
from plait.storage.check import check
from plait.storage.files import dense_ivf as cells
from plait.storage.segment_file import ArraySource, SegmentFile, write_file
from plait.storage.store import Store

DIM, N_TOPICS = 20, 40  # not a multiple of 8


@pytest.fixture(autouse=True)
def _few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cells, "MIN_ROWS", 400)


def vectors(n_rows: int, seed: int = 0) -> NDArray[np.float32]:
    """Rows around topics, of length one."""
    rng = np.random.default_rng(seed)
    rows = np.random.default_rng(9).standard_normal((N_TOPICS, DIM))[rng.integers(0, N_TOPICS, n_rows)]
    rows = rows + 0.4 * rng.standard_normal(rows.shape)
    return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True), np.float32)


def add(index: plait.Index, rows: NDArray[np.float32], first: int = 0) -> None:
    documents = [{"id": str(first + n), "text": f"text {first + n}", "n": first + n} for n in range(len(rows))]
    index.add_embeddings(documents, plait.Embeddings(dense=rows), merge=False)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    with plait.open(tmp_path / "index", create=True, spec=plait.EmbeddingSpec(dense=DIM), n_threads=1) as index:
        add(index, vectors(1200))
        index.compact()
    return tmp_path / "index"


def cells_of(path: Path) -> list[Path]:
    return sorted(path.glob("segments/*/dense_ivf.plait"))


def recall(index: plait.Index, k: int, filter: str | None = None) -> float:
    shares = []
    for query in vectors(30, seed=5):
        asked = plait.Embeddings(dense=query[None])
        exact, probed = (
            {hit.id for hit in index.search_embeddings(asked, k, mode="dense", exact=way, filter=filter)[0]}
            for way in (True, False)
        )
        shares.append(len(exact & probed) / len(exact))
    return float(np.mean(shares))


def probing(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that searches of a small index probe, too."""
    from plait.search import dense

    monkeypatch.setattr(dense, "ProbedDense", partial(ProbedDense, exhaustive_below=0))


def test_only_a_compaction_of_many_rows_writes_the_file(path: Path, tmp_path: Path) -> None:
    assert len(cells_of(path)) == 1
    assert check(path).ok
    with plait.open(tmp_path / "few", create=True, spec=plait.EmbeddingSpec(dense=DIM)) as index:
        add(index, vectors(300))
        index.compact()
    assert cells_of(tmp_path / "few") == []


@pytest.mark.parametrize("k", [10, 100])
@pytest.mark.parametrize("filter", [None, "n < 120", "n < 12"])
def test_nearly_all_of_the_exact_answer_is_found(
    path: Path, monkeypatch: pytest.MonkeyPatch, k: int, filter: str | None
) -> None:
    probing(monkeypatch)
    with plait.open(path, read_only=True) as index:
        assert recall(index, k, filter) >= 0.97


def test_a_search_reads_only_some_cells(path: Path) -> None:
    batch = QueryBatch([""], plait.Embeddings(dense=vectors(1, seed=6)))
    with Store.open(path).snapshot() as snapshot:
        n_read, found = [], []
        for part in (1.0, 0.25):
            trace = Trace()
            found += ProbedDense(share_of_cells=part, exhaustive_below=0).retrieve(snapshot, batch, 20, None, trace)
            n_read.append(trace.stages[0].counts["cells"])
    assert n_read[1] == math.ceil(n_read[0] / 4)
    assert len(found[1]) == 20
    # What it finds has the score it always has.
    scores = dict(zip(found[0].docs.tolist(), found[0].scores.tolist(), strict=True))
    for doc, score in zip(found[1].docs.tolist(), found[1].scores.tolist(), strict=True):
        assert scores.get(doc, score) == score


def test_scores_are_those_of_the_floats(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    probing(monkeypatch)
    with plait.open(path, read_only=True) as index:
        asked = plait.Embeddings(dense=vectors(1, seed=6))
        exact = {hit.id: hit.score for hit in index.search_embeddings(asked, 5, mode="dense", exact=True)[0]}
        probed = {hit.id: hit.score for hit in index.search_embeddings(asked, 5, mode="dense")[0]}
        assert {id: probed[id] for id in exact if id in probed} == {id: exact[id] for id in exact if id in probed}


def test_k_live_rows_are_found_beside_deleted_ones(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    probing(monkeypatch)
    asked = plait.Embeddings(dense=vectors(1, seed=7))
    with plait.open(path) as index:
        first = [hit.id for hit in index.search_embeddings(asked, 50, mode="dense")[0]]
        index.delete(first, merge=False)
        second = [hit.id for hit in index.search_embeddings(asked, 50, mode="dense")[0]]
        assert len(second) == 50
        assert not set(first) & set(second)


def test_every_document_is_found_if_k_is_the_size_of_the_index(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    probing(monkeypatch)
    with plait.open(path, read_only=True) as index:
        assert len(index.search_embeddings(plait.Embeddings(dense=vectors(1)), 5000, mode="dense")[0]) == 1200


def test_another_compaction_keeps_the_centroids_until_they_are_outgrown(path: Path) -> None:
    before = SegmentFile.open(cells_of(path)[0]).array("centroids", "|i1", (None, DIM)).copy()
    with plait.open(path) as index:
        add(index, vectors(100, seed=1), 1200)
        index.compact()
        kept = SegmentFile.open(cells_of(path)[0]).array("centroids", "|i1", (None, DIM)).copy()
        add(index, vectors(30_000, seed=2), 1300)
        index.compact()
    np.testing.assert_array_equal(before, kept)
    assert len(SegmentFile.open(cells_of(path)[0]).array("centroids", "|i1", (None, DIM))) > len(before)
    assert check(path).ok


def test_a_compaction_adds_a_missing_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with plait.open(tmp_path / "old", create=True, spec=plait.EmbeddingSpec(dense=DIM)) as index:
        add(index, vectors(500))
        monkeypatch.setattr(cells, "MIN_ROWS", 10_000)
        index.compact()
        assert cells_of(tmp_path / "old") == []
        monkeypatch.setattr(cells, "MIN_ROWS", 400)
        index.compact()
        assert len(cells_of(tmp_path / "old")) == 1


def test_a_changed_byte_is_found_when_the_file_is_used(path: Path) -> None:
    file = cells_of(path)[0]
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)
    assert any("dense_ivf.plait" in problem for problem in check(path).problems)
    with Store.open(path).snapshot() as snapshot, pytest.raises(CorruptIndexError, match=r"dense_ivf\.plait"):
        _ = snapshot.segments[0].dense_ivf


@pytest.mark.parametrize(
    ("name", "wrong", "says"),
    [
        ("cell_starts", np.array([0, 900, 800, 1200]), "do not cover"),
        ("rows", np.full(1200, 7, np.uint32), "in no cell, or in two"),
        ("rows", np.full(1200, 4_000_000, np.uint32), "in no cell, or in two"),
        ("codes", np.ones((1200, DIM), np.int8), "do not match the rows"),
        ("centroid_scales", np.full(3, np.nan, np.float32), "not finite"),
    ],
)
def test_invalid_values_are_named(tmp_path: Path, name: str, wrong: NDArray[np.generic], says: str) -> None:
    floats = vectors(1200)
    cells.write_dense_ivf(tmp_path / "good.plait", floats, number=1)
    good = SegmentFile.open(tmp_path / "good.plait")
    arrays = {
        "centroids": ("|i1", good.array("centroids", "|i1", (None, DIM))[:3]),
        "centroid_scales": ("<f4", good.array("centroid_scales", "<f4", (None,))[:3]),
        "cell_starts": ("<i8", np.array([0, 400, 800, 1200])),
        "rows": ("<u4", good.array("rows", "<u4", (1200,))),
        "codes": ("|i1", good.array("codes", "|i1", (1200, DIM))),
        "code_scales": ("<f4", good.array("code_scales", "<f4", (1200,))),
    }
    arrays[name] = (arrays[name][0], wrong)
    sources = [ArraySource.of(key, dtype, array) for key, (dtype, array) in arrays.items()]
    probes = {f"n_probe_{k}": 1 for k in (10, 100, 1000)}
    write_file(tmp_path / "bad.plait", "dense_ivf", sources, attributes=probes)
    with pytest.raises(CorruptIndexError, match=says):
        cells.DenseIvfFile(SegmentFile.open(tmp_path / "bad.plait"), 1200, DIM).check_values(floats)


def test_an_invalid_n_probe_is_refused(tmp_path: Path) -> None:
    cells.write_dense_ivf(tmp_path / "good.plait", vectors(1200), number=1)
    good = SegmentFile.open(tmp_path / "good.plait")
    good.attributes = {**good.attributes, "n_probe_10": 0}
    with pytest.raises(CorruptIndexError, match="n_probe_10"):
        cells.DenseIvfFile(good, 1200, DIM)

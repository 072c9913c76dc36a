"""near.plait: the cells of new vectors, written with them, kept by merges, and refused when they cannot be."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from plait.codec.codebook import Codebook
from plait.errors import CorruptIndexError
from plait.search.trace import Trace
from plait.storage import segment as segments
from plait.storage.check import check
from plait.storage.files import centroid_ids as near
from plait.storage.files.centroid_ids import NEAR
from plait.storage.merge_policy import FANOUT
from plait.storage.segment import Segment
from plait.storage.store import Store
from search.multivector.test_probed_multi import queries
from search.plans import DefaultProbe
from storage.resealed import Change, cut, index_of, put, rewrite, say
from storage.tokens import batch as tokens
from storage.tokens import make_tokens


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An index with one compressed segment, 4, and one that is not, 5."""
    store = make_tokens(tmp_path_factory.mktemp("near") / "index")
    with store.writer() as writer:
        writer.compact()
        writer.write(*tokens(500, 30))
    return store.path


@pytest.fixture
def file(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The near.plait of an index of its own, as in a new process."""
    monkeypatch.setattr(segments, "_verified", set())
    shutil.copytree(made, tmp_path / "index")
    return tmp_path / "index" / "segments" / "000005" / NEAR


def cosines(segment: Segment, codebook: Codebook) -> NDArray[np.float32]:
    """(vectors, cells) of the vectors with all centroids: the slow twin of what chose the cells."""
    assert segment.multi is not None
    rows, centroids = segment.multi.values.astype(np.float32), codebook.floats()
    return np.asarray(rows @ (centroids / np.linalg.norm(centroids, axis=1, keepdims=True)).T, np.float32)


def check_nearest(store: Store) -> int:
    """That vectors name a cell as near as the nearest, but for rounding to bytes; says how many were looked at."""
    with store.snapshot() as snapshot:
        codebook = next(own.coded.codec.codebook for own in snapshot.segments if own.coded is not None)
        for segment in (own for own in snapshot.segments if own.coded is None):
            assert segment.centroid_ids_file is not None
            assert segment.codebook == near.mark_of(codebook)
            table = cosines(segment, codebook)
            chosen = np.take_along_axis(table, segment.centroid_ids_file.cells[:, None].astype(np.int64), 1)[:, 0]
            assert np.all(chosen >= table.max(axis=1) - 0.03)
        return sum(len(own.centroid_ids_file.cells) for own in snapshot.segments if own.centroid_ids_file is not None)


@pytest.mark.parametrize("few", [0, 1 << 30], ids=["in groups", "all tried"])
def test_each_vector_names_its_nearest_cell(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, few: int
) -> None:
    monkeypatch.setattr(near, "FEW", few)
    shutil.copytree(made, tmp_path / "index")
    store = Store.open(tmp_path / "index")
    with store.writer() as writer:
        writer.write(*tokens(600, 10))
    assert check_nearest(store) == 40 * 8
    assert check(store.path).problems == []


def test_a_merge_that_leaves_vectors_as_they_are_has_their_cells(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("plait.storage.writer.choose", lambda found: [own for own in found if own.coded is None])
    store = Store.open(index_of(file))
    with store.writer() as writer:
        for number in range(FANOUT - 1):
            writer.write(*tokens(600 + 10 * number, 10))
        assert writer.merge() == FANOUT
    assert check_nearest(store) == (30 + 10 * (FANOUT - 1)) * 8


def test_an_index_where_nothing_is_compressed_has_no_cells(tmp_path: Path) -> None:
    with make_tokens(tmp_path / "index").snapshot() as snapshot:
        assert [own.codebook for own in snapshot.segments] == [None] * 3


def test_a_batch_is_written_though_the_compressed_segment_is_damaged(file: Path) -> None:
    coded = index_of(file) / "segments" / "000004" / "coded.plait"
    coded.unlink()
    with Store.open(index_of(file)).writer() as writer:
        assert writer.write(*tokens(700, 5)).n_added == 5
    assert not (index_of(file) / "segments" / "000006" / NEAR).exists()


@pytest.mark.parametrize(
    "change",
    [say("n_cells", -1), say("n_cells", "many"), say("codebook", 1 << 40), say("codebook", None), cut("cells", 3)],
)
def test_what_cannot_be_a_file_of_cells_is_refused(file: Path, change: Change) -> None:
    rewrite(file, change)
    with pytest.raises(CorruptIndexError, match=r"near\.plait"):
        Store.open(index_of(file)).snapshot()


def test_a_cell_that_is_none_is_found_by_check_and_by_a_search(file: Path) -> None:
    rewrite(file, put("cells", 17, 60_000))
    assert any("near.plait" in problem for problem in check(index_of(file)).problems)
    with Store.open(index_of(file)).snapshot() as snapshot, pytest.raises(CorruptIndexError, match="60000"):
        DefaultProbe().retrieve(snapshot, queries(), 3, None, Trace())

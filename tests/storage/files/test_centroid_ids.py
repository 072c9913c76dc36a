"""centroid_ids.plait: written with new vectors and by merges; damaged files are refused."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from plait.codec.codebook import Codebook
from plait.errors import CorruptIndexError
from plait.search.trace import Trace
from plait.storage import verification
from plait.storage.check import check
from plait.storage.files import centroid_ids
from plait.storage.files.centroid_ids import CENTROID_IDS
from plait.storage.merge_policy import FANOUT
from plait.storage.segment import Segment
from plait.storage.store import Store
from search.multivector.test_probed_multi import queries
from search.plans import DefaultProbe
from storage.grouped_tokens import batch as tokens
from storage.grouped_tokens import make_tokens
from storage.resealed import Change, cut, index_of, put, rewrite, say


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An index with a compressed segment, number 4, and an uncompressed one, number 5."""
    store = make_tokens(tmp_path_factory.mktemp("near") / "index")
    with store.writer() as writer:
        writer.compact()
        writer.write(*tokens(500, 30))
    return store.path


@pytest.fixture
def file(made: Path, tmp_path: Path) -> Path:
    """The centroid_ids.plait of a copy of the index, as a new process would see it."""
    verification.forget()
    shutil.copytree(made, tmp_path / "index")
    return tmp_path / "index" / "segments" / "000005" / CENTROID_IDS


def cosines(segment: Segment, codebook: Codebook) -> NDArray[np.float32]:
    """(vectors, centroids): every vector with every centroid, computed the slow way."""
    assert segment.multi is not None
    rows, centroids = segment.multi.values.astype(np.float32), codebook.floats()
    return np.asarray(rows @ (centroids / np.linalg.norm(centroids, axis=1, keepdims=True)).T, np.float32)


def check_nearest(store: Store) -> int:
    """Asserts that every id names the nearest centroid, up to rounding to 8 bits; returns the number of ids."""
    with store.snapshot() as snapshot:
        codebook = next(own.coded.codec.codebook for own in snapshot.segments if own.coded is not None)
        for segment in (own for own in snapshot.segments if own.coded is None):
            assert segment.centroid_ids_file is not None
            assert segment.codebook_crc == centroid_ids.codebook_crc(codebook)
            table = cosines(segment, codebook)
            chosen = np.take_along_axis(table, segment.centroid_ids_file.centroid_ids[:, None].astype(np.int64), 1)[
                :, 0
            ]
            assert np.all(chosen >= table.max(axis=1) - 0.03)
        return sum(
            len(own.centroid_ids_file.centroid_ids) for own in snapshot.segments if own.centroid_ids_file is not None
        )


@pytest.mark.parametrize("min_grouped", [0, 1 << 30], ids=["grouped", "all centroids"])
def test_each_vector_gets_its_nearest_centroid(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, min_grouped: int
) -> None:
    monkeypatch.setattr(centroid_ids, "MIN_GROUPED_VECTORS", min_grouped)
    shutil.copytree(made, tmp_path / "index")
    store = Store.open(tmp_path / "index")
    with store.writer() as writer:
        writer.write(*tokens(600, 10))
    assert check_nearest(store) == 40 * 8
    assert check(store.path).problems == []


def test_a_merge_that_leaves_vectors_uncompressed_writes_their_centroids(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "plait.storage.writer.choose_segments", lambda found, **_: [own for own in found if own.coded is None]
    )
    store = Store.open(index_of(file))
    with store.writer() as writer:
        for number in range(FANOUT - 1):
            writer.write(*tokens(600 + 10 * number, 10))
        assert writer.merge() == FANOUT
    assert check_nearest(store) == (30 + 10 * (FANOUT - 1)) * 8


def test_an_uncompressed_index_has_no_centroid_ids(tmp_path: Path) -> None:
    with make_tokens(tmp_path / "index").snapshot() as snapshot:
        assert [own.codebook_crc for own in snapshot.segments] == [None] * 3


def test_a_batch_is_written_even_if_the_compressed_segment_is_damaged(file: Path) -> None:
    coded = index_of(file) / "segments" / "000004" / "residual.plait"
    coded.unlink()
    with Store.open(index_of(file)).writer() as writer:
        assert writer.write(*tokens(700, 5)).n_added == 5
    assert not (index_of(file) / "segments" / "000006" / CENTROID_IDS).exists()


@pytest.mark.parametrize(
    "change",
    [
        say("n_centroids", -1),
        say("n_centroids", "many"),
        say("codebook_crc", 1 << 40),
        say("codebook_crc", None),
        cut("centroid_ids", 3),
    ],
)
def test_an_invalid_file_is_refused(file: Path, change: Change) -> None:
    rewrite(file, change)
    with pytest.raises(CorruptIndexError, match=r"centroid_ids\.plait"):
        Store.open(index_of(file)).snapshot()


def test_an_id_without_a_centroid_is_found_by_check_and_by_search(file: Path) -> None:
    rewrite(file, put("centroid_ids", 17, 60_000))
    assert any("centroid_ids.plait" in problem for problem in check(index_of(file)).problems)
    with Store.open(index_of(file)).snapshot() as snapshot, pytest.raises(CorruptIndexError, match="60000"):
        DefaultProbe().retrieve(snapshot, queries(), 3, None, Trace())

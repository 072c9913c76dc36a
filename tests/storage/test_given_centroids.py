"""Compaction with the centroids of another codec, and with the centroid that it gave each vector."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from plait import Pooling
from plait.errors import ConfigError, InputError
from plait.storage.store import Store
from storage.grouped_tokens import SPEC, make_tokens

N_CELLS = 12


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return make_tokens(tmp_path / "index")


def centroids() -> NDArray[np.float32]:
    assert SPEC.multi is not None
    rows = np.random.default_rng(1).standard_normal((N_CELLS, SPEC.multi)).astype(np.float32)
    return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True), np.float32)


def n_live_vectors(store: Store) -> int:
    total = 0
    with store.snapshot() as snapshot:
        for segment in snapshot.segments:
            assert segment.multi is not None
            live = np.ones(segment.n_rows, bool) if segment.live is None else segment.live
            total += int(np.diff(segment.multi.offsets)[live].sum())
    return total


@pytest.mark.parametrize("n_threads", [1, 3])
def test_every_vector_keeps_the_centroid_it_had(store: Store, n_threads: int) -> None:
    given = np.random.default_rng(0).integers(0, N_CELLS, n_live_vectors(store))
    with store.writer() as writer:
        writer.compact(bits=4, centroids=centroids(), centroid_ids=given, n_threads=n_threads)
    with store.snapshot() as snapshot:
        (segment,) = snapshot.segments
        assert segment.coded is not None
        assert segment.coded.rows.cells is not None
        assert np.array_equal(segment.coded.rows.cells, given)


def test_without_numbers_a_vector_has_the_nearest_centroid(store: Store) -> None:
    with store.writer() as writer:
        writer.compact(bits=8, centroids=centroids())
    with store.snapshot() as snapshot:
        (segment,) = snapshot.segments
        assert segment.coded is not None
        assert segment.coded.rows.cells is not None
        codec = segment.coded.codec
        distances = codec.decode(segment.coded.rows) @ codec.codebook.floats().T
        distances = np.square(codec.codebook.floats()).sum(axis=1) - 2 * distances
        assert np.mean(np.argmin(distances, axis=1) == segment.coded.rows.cells) > 0.98


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda ids: ids[:-1], "centroid_ids for"),
        (lambda ids: np.append(ids, 0), "centroid_ids for"),
        (lambda ids: np.where(np.arange(len(ids)) == 5, N_CELLS, ids), f"has {N_CELLS}; there are {N_CELLS} centroids"),
        (lambda ids: np.where(np.arange(len(ids)) == 5, -1, ids), "has -1"),
        (lambda ids: ids.astype(np.float32), "one integer for each vector; got float32"),
        (lambda ids: ids[:, None], "of shape"),
    ],
)
def test_wrong_numbers_are_refused_and_nothing_changes(store: Store, change: object, message: str) -> None:
    assert callable(change)
    given = change(np.zeros(n_live_vectors(store), np.int64))
    with store.writer() as writer, pytest.raises(InputError, match=message):
        writer.compact(centroids=centroids(), centroid_ids=given)
    with store.snapshot() as snapshot:
        assert all(segment.coded is None for segment in snapshot.segments)


def test_numbers_without_centroids_are_refused(store: Store) -> None:
    with store.writer() as writer, pytest.raises(InputError, match="give centroids as well"):
        writer.compact(centroid_ids=np.zeros(n_live_vectors(store), np.int64))


def test_numbers_of_vectors_that_are_pooled_are_refused(store: Store) -> None:
    given = np.zeros(n_live_vectors(store), np.int64)
    with store.writer() as writer, pytest.raises(ConfigError, match="pooled or projected have no centroids yet"):
        writer.compact(centroids=centroids(), centroid_ids=given, pooling=Pooling(fixed=4))

"""New segments beside compressed ones: one search, one budget, and the answers of scoring everything."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from plait.embeddings import Embeddings, MultiVectors
from plait.search.multivector.passages import ExactMulti
from plait.search.multivector.plait import ProbedMulti, split_selection
from plait.search.multivector.probe import ResolvedProbe
from plait.search.multivector.segment_group import segment_groups
from plait.search.query import QueryBatch
from plait.search.ranking import Ranking
from plait.search.trace import Stage, Trace
from plait.storage import compaction as compact
from plait.storage.files.centroid_ids import CENTROID_IDS
from plait.storage.merge_policy import FANOUT
from plait.storage.store import Store
from search.multivector.test_probed_multi import EVERYTHING, PROBED, overlap, queries, run
from search.plans import DefaultProbe
from storage.grouped_tokens import N_GROUPS, SPEC, batch
from storage.samples import make_store

N_OLD, N_NEW, N_BATCHES = 240, 24, 3


def make(path: Path, n_batches: int = N_BATCHES) -> Store:
    """A compressed segment of 240 documents, then small ones of 24, with some deleted of each."""
    store = make_store(path, spec=SPEC)
    with store.writer() as writer:
        writer.write(*batch(0, N_OLD, noise=0.3))
        writer.compact(bits=4)
        for number in range(n_batches):
            writer.write(*batch(N_OLD + number * N_NEW, N_NEW, noise=0.3))
        writer.delete([f"d{n}" for n in range(0, N_OLD + n_batches * N_NEW, 9)])
    return store


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return make(tmp_path_factory.mktemp("pool") / "index")


@pytest.fixture(scope="module")
def merged(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """Two compressed segments of one codec, and a small one."""
    store = make(tmp_path_factory.mktemp("merged") / "index", n_batches=FANOUT)
    with pytest.MonkeyPatch.context() as patch, store.writer() as writer:
        patch.setattr(compact, "MIN_COMPRESSED_VECTORS", 1)
        patch.setattr(compact, "ROWS_PER_CELL", 1)
        patch.setattr(
            "plait.storage.writer.choose_segments", lambda segments, **_: [one for one in segments if one.coded is None]
        )
        assert writer.merge() == FANOUT
        writer.write(*batch(1000, N_NEW, noise=0.3))
    return store


def same(found: list[Ranking], wanted: list[Ranking]) -> None:
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(one.docs, other.docs)
        np.testing.assert_array_equal(one.scores, other.scores)
        np.testing.assert_array_equal(one.rows, other.rows)


def stages(store: Store, probe: ResolvedProbe | None = None) -> dict[str, Stage]:
    trace = Trace()
    with store.snapshot() as snapshot:
        retriever = DefaultProbe() if probe is None else ProbedMulti(probe, exhaustive_below=1)
        retriever.retrieve(snapshot, queries(), 10, None, trace)
    return {stage.name.removeprefix("multi: "): stage for stage in trace.stages}


def shape_of(store: Store) -> list[tuple[int, int]]:
    """How many segments of each group are compressed, and how many are not."""
    with store.snapshot() as snapshot:
        return [(len(group.coded), len(group.parts) - len(group.coded)) for group in segment_groups(snapshot)]


def test_new_segments_are_searched_with_the_compressed_one(store: Store, merged: Store) -> None:
    assert shape_of(store) == [(1, N_BATCHES)]
    assert shape_of(merged) == [(2, 1)]


@pytest.mark.parametrize("k", [1, 10, 1000])
def test_probing_everything_equals_scoring_everything(store: Store, merged: Store, k: int) -> None:
    for own in (store, merged):
        same(run(ProbedMulti(EVERYTHING, exhaustive_below=1), own, k), run(ExactMulti(), own, k))


def test_probing_keeps_nine_in_ten_of_what_scoring_everything_finds(store: Store, merged: Store) -> None:
    for own in (store, merged):
        assert overlap(run(PROBED, own), run(ExactMulti(), own)) >= 0.9


def test_results_are_the_same_each_time_and_with_threads(store: Store) -> None:
    same(run(PROBED, store), run(PROBED, store))
    same(run(DefaultProbe(n_threads=2), store), run(PROBED, store))


def test_a_filter_is_applied_before_scoring(store: Store) -> None:
    allowed = [*range(1, 60), *range(N_OLD + 2, N_OLD + 40)]
    found = run(ProbedMulti(EVERYTHING, exhaustive_below=1), store, allowed=allowed)
    same(found, run(ExactMulti(), store, allowed=allowed))
    assert all(np.isin(own.docs, allowed).all() for own in found)


def test_each_stage_keeps_the_best_of_all_segments(store: Store, merged: Store) -> None:
    probe = ResolvedProbe(n_probe=4, n_candidates=80, n_code_scored=30, n_rescored=20)
    for own in (store, merged):
        with own.snapshot() as snapshot:
            n_plain = sum(s.n_live for s in snapshot.segments if s.coded is None)
            n_centroids = len(next(s.coded for s in snapshot.segments if s.coded is not None).codec.codebook)
        seen = stages(own, probe)
        assert seen["centroids"].counts["centroids"] == N_GROUPS * n_centroids
        assert seen["by centroids"].counts["items"] <= N_GROUPS * (80 + n_plain)
        assert seen["codes"].counts["items"] + seen["floats"].counts["items"] <= N_GROUPS * (30 + 20)


def test_a_passage_that_was_just_added_is_found_first(store: Store) -> None:
    with store.snapshot() as snapshot:
        newest = snapshot.segments[-1]
        assert newest.multi is not None
        asked = QueryBatch([""], Embeddings(multi=MultiVectors.from_items([newest.multi[10].astype(np.float32)])))
        (found,) = PROBED.retrieve(snapshot, asked, 3, None, Trace())
        assert found.rows[0] == sum(own.n_rows for own in snapshot.segments[:-1]) + 10


def test_a_segment_without_centroid_ids_is_scored_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("plait.storage.writer.Writer._codebook", lambda _: None)
    made = make(tmp_path / "index", n_batches=2)
    assert shape_of(made) == [(1, 0), (0, 1), (0, 1)]
    with made.snapshot() as snapshot:
        n_new = sum(own.n_live for own in snapshot.segments[1:])
    assert stages(made)["floats"].counts["items"] == N_GROUPS * n_new
    assert overlap(run(PROBED, made), run(ExactMulti(), made)) >= 0.9


def test_a_selection_is_split_by_segment() -> None:
    rows = [np.array([3, 5, 8]), np.zeros(0, np.int64), np.array([1, 2])]
    kept = split_selection(rows, np.array([4, 0, 2]))
    assert [own.tolist() for own in kept] == [[3, 8], [], [2]]


def test_new_segments_have_centroid_ids(store: Store) -> None:
    with store.snapshot() as snapshot:
        assert [CENTROID_IDS in own.files for own in snapshot.segments] == [False, *[True] * N_BATCHES]

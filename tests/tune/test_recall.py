"""Tuning: the target recall is reached on other queries, or refused; the parameters are saved in the index."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import plait
from plait.embeddings import Embeddings, MultiVectors
from plait.errors import ConfigError, InputError, LockedError, ReadOnlyError
from plait.search.multivector.exhaustive import Exhaustive
from plait.search.multivector.item_filter import ItemFilter
from plait.search.multivector.plait import FoundPassages, PlaitSearch
from plait.search.multivector.probe import ProbeParams, ResolvedProbe, probe_by_size, probe_for_list, resolve_probe
from plait.search.multivector.segment_group import segment_groups
from plait.storage.check import check
from plait.storage.store import Store
from plait.tune.stages import ProbeGrid, count_found, expected_seconds
from plait.tune.synthetic_queries import from_rows, words_of_documents
from tune.tunable import DIM, N_PASSAGES, make_index, passages, recall


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_index(tmp_path_factory.mktemp("tuner") / "ix", keep_8bit=True)


@pytest.fixture
def index(made: Path, tmp_path: Path) -> Iterator[plait.Index]:
    """A copy of its own, so that plans of other tests are not there."""
    shutil.copytree(made, tmp_path / "ix")
    with plait.open(tmp_path / "ix", n_threads=1) as opened:
        yield opened


def store_value(index: plait.Index, key: str, value: object) -> None:
    connection = sqlite3.connect(index.path / "catalogue.sqlite")
    with connection:
        connection.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", [key, value])
    connection.close()
    index.refresh()


@pytest.mark.parametrize("asked", [0.7, 0.95])
def test_the_target_recall_is_reached_on_other_queries(index: plait.Index, asked: float) -> None:
    done = index.tune(asked, n_queries=60)
    assert done.plan is not None
    assert (done.reached, done.saved) == (True, True)
    assert done.plan.recall >= asked
    assert recall(index) >= asked - 0.05


def test_more_recall_reads_more(index: plait.Index) -> None:
    low, high = index.tune(0.6, n_queries=40).plan, index.tune(0.97, n_queries=40).plan
    assert low is not None
    assert high is not None
    assert low.n_candidates * low.n_code_scored < high.n_candidates * high.n_code_scored or high.exhaustive


def test_the_ranks_of_one_pass_predict_what_real_searches_find(index: plait.Index) -> None:
    with Store.open(index.path).snapshot() as snapshot:
        (group,) = segment_groups(snapshot)
        items = group.coded[0].items
        grid = ProbeGrid.of(items, 10)
        for query in from_rows(snapshot, 5, seed=3).rows:
            search = PlaitSearch(query, group.coded)
            truth = Exhaustive().search(search.queries[0], 10, ItemFilter(items)).items
            counts = count_found(search, truth, grid)
            for position in [(0, 0, 0, 0), (1, 3, 2, 1), (3, 5, 4, 3), tuple(length - 1 for length in grid.shape)]:
                best, _ = search.passages(grid.at(position), 10).top(10)
                assert counts[position] == len(np.intersect1d(best, truth))


def test_tuning_times_the_function_that_serves(index: plait.Index, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[ResolvedProbe] = []
    passages = PlaitSearch.passages

    def counting(search: PlaitSearch, probe: ResolvedProbe, n_wanted: int) -> FoundPassages:
        calls.append(probe)
        return passages(search, probe, n_wanted)

    monkeypatch.setattr(PlaitSearch, "passages", counting)
    with Store.open(index.path).snapshot() as snapshot:
        (group,) = segment_groups(snapshot)
        query = from_rows(snapshot, 1, seed=3).rows[0]
        expected_seconds([query], group, ProbeGrid.of(group.coded[0].items, 10), 10)
    n_timed = len(calls)
    assert n_timed > 0
    index.search_embeddings(Embeddings(multi=MultiVectors.from_items([query])), 10, mode="multi")
    assert len(calls) == n_timed + 1


def test_the_same_seed_makes_the_same_queries(index: plait.Index) -> None:
    with Store.open(index.path).snapshot() as snapshot:
        one, same, other = (from_rows(snapshot, 12, seed=seed) for seed in (0, 0, 1))
        assert all(np.array_equal(left, right) for left, right in zip(one.rows, same.rows, strict=True))
        assert not np.array_equal(one.sources, other.sources)
        texts = words_of_documents(snapshot, 12, seed=0)
        assert texts == words_of_documents(snapshot, 12, seed=0)
        assert all(text == f"passage {doc - 1}" for doc, text in texts.items())


def test_given_queries_are_used(index: plait.Index) -> None:
    done = index.tune(0.8, queries=Embeddings(multi=passages(5, 40)), n_queries=30)
    assert done.plan is not None
    assert (done.plan.queries, done.plan.n_queries) == ("given", 30)


def test_a_recall_that_the_codes_cannot_reach_is_refused_and_nothing_is_saved(index: plait.Index) -> None:
    store_value(index, "codes_recall", 0.8)
    done = index.tune(0.9, n_queries=40)
    assert (done.reached, done.saved, done.plan, done.codes_recall) == (False, False, None, 0.8)
    assert index.info().tuned.params is None
    best = index.tune(0.9, n_queries=40, best=True)
    assert (best.reached, best.saved) == (False, True)
    assert best.plan is not None
    assert best.plan.recall <= 0.8


def test_remedies_have_the_size_of_more_bits(tmp_path: Path) -> None:
    with plait.open(make_index(tmp_path / "ix", bits=1), n_threads=1) as index:
        done = index.tune(1.0, n_queries=40)
        assert not done.reached
        assert done.codes_recall is not None
        n_vectors = 6 * N_PASSAGES
        costs = {remedy.command: remedy.n_bytes for remedy in done.remedies}
        assert costs["--bits 4"] == n_vectors * DIM * 3 // 8
        assert costs["--keep-8bit"] == n_vectors * (DIM + 1)


def test_compaction_measures_what_the_codes_lose(index: plait.Index) -> None:
    with Store.open(index.path).snapshot() as snapshot:
        assert snapshot.codes_recall is not None
        assert snapshot.codes_recall > 0.9  # codes of 8 bits


def test_other_readers_see_tuned_parameters_after_refresh(index: plait.Index) -> None:
    with plait.open(index.path, read_only=True) as reader:
        assert len(reader) == N_PASSAGES
        index.tune(0.8, n_queries=40)
        assert reader.snapshot.tuned.params is None
        reader.refresh()
        assert reader.snapshot.tuned.params == index.info().tuned.params is not None


def test_tuned_parameters_are_used_and_grow_with_k(index: plait.Index) -> None:
    plan = index.tune(0.8, n_queries=40).plan
    assert plan is not None
    with Store.open(index.path).snapshot() as snapshot:
        tuned, n_passages = snapshot.tuned.usable, snapshot.n_rows
        ten, forty = (resolve_probe(ProbeParams(), n_passages=n_passages, k=k, tuned=tuned) for k in (10, 40))
        assert (ten.n_probe, ten.n_code_scored) == (plan.n_probe, plan.n_code_scored)
        assert forty.n_code_scored > ten.n_code_scored
    index.reset_tuning()
    with Store.open(index.path).snapshot() as snapshot:
        assert snapshot.tuned.usable is None


def test_a_list_beside_others_never_looks_at_more() -> None:
    large, small = probe_by_size(10**6, 10), probe_by_size(1000, 10)
    listed = probe_for_list(large, 100)
    assert (listed.n_probe, listed.n_candidates, listed.n_code_scored) == (8, 1600, 200)
    assert probe_for_list(small, 100).n_candidates == small.n_candidates


def test_defaults_grow_with_k_and_with_the_corpus() -> None:
    small, deep, large = probe_by_size(1000, 10), probe_by_size(1000, 100), probe_by_size(10**6, 10)
    assert small.n_code_scored < deep.n_code_scored
    assert small.n_candidates < large.n_candidates


def test_tuned_parameters_are_stale_after_a_new_codec(index: plait.Index) -> None:
    index.tune(0.8, n_queries=40)
    with Store.open(index.path).writer() as writer:
        writer.compact(retrain=True)
    index.refresh()
    read = index.info().tuned
    assert read.params is not None
    assert (read.params.stale, read.usable) == ("the vectors were coded again", None)
    again = index.tune(0.8, n_queries=40, of="codes")
    assert again.plan is not None
    assert index.info().tuned.usable == again.plan


def test_tuned_parameters_stay_after_a_compaction_with_the_same_codec(index: plait.Index) -> None:
    plan = index.tune(0.8, n_queries=40).plan
    index.delete(["3", "4"])
    index.compact()
    assert index.info().tuned.usable == plan


@pytest.mark.parametrize("stored", ["{", '{"n_probe": 1}', "[]", 7, '{"n_probe": -1}'])
def test_damaged_tuned_parameters_are_ignored_and_reported(index: plait.Index, stored: object) -> None:
    store_value(index, "tuned_params", stored)
    assert index.info().tuned.damage
    assert any("saved search params" in problem for problem in check(index.path).problems)
    assert recall(index) > 0.5
    index.reset_tuning()
    assert check(index.path).problems == []


@pytest.mark.parametrize("wrong", [{"recall": 0}, {"recall": 1.5}, {"k": 0}, {"n_queries": 2}, {"of": "floats"}])
def test_invalid_goals_are_refused(index: plait.Index, wrong: dict[str, object]) -> None:
    with pytest.raises(ConfigError):
        index.tune(**{"recall": 0.9, **wrong})  # type: ignore[arg-type]


def test_queries_of_another_size_are_refused(index: plait.Index) -> None:
    rows = MultiVectors.from_items([np.ones((2, 8), np.float32)] * 12)
    with pytest.raises(InputError, match="it needs rows of 32"):
        index.tune(0.9, queries=Embeddings(multi=rows))


def test_a_locked_or_read_only_index_is_not_tuned(index: plait.Index) -> None:
    with Store.open(index.path).writer(), pytest.raises(LockedError):
        index.tune(0.9, n_queries=40)
    with plait.open(index.path, read_only=True) as reader, pytest.raises(ReadOnlyError):
        reader.tune(0.9, n_queries=40)


def test_a_small_index_has_nothing_to_tune(tmp_path: Path) -> None:
    with plait.open(tmp_path / "ix", create=True, spec=plait.EmbeddingSpec(multi=DIM)) as index:
        index.add_embeddings([{"id": "a", "text": "b"}], Embeddings(multi=passages(1, 1)))
        done = index.tune(0.9)
        assert (done.plan, done.reached, done.saved) == (None, True, False)
        assert "nothing to tune" in done.note

"""Ranking a dataset: rankings are cached, and an interrupted run resumes."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import cast

import pytest

import plait
from encoders import WordEncoder
from plait import Index
from plait.evaluate import Dataset, DatasetRun, rank_dataset
from plait.evaluate.run_cache import RunCache


class CountingIndex:
    """A fake index that returns the query's own id first, and records the queries."""

    def __init__(self, *, stop_after: int = 10**9) -> None:
        self.queries_seen: list[str] = []
        self.commit, self._stop_after = 1, stop_after

    def search_fingerprint(self, _k: int, *, mode: str, **_: None) -> str:
        return f"{self.commit} {mode}"

    def rank_queries(self, queries: Sequence[str], k: int, *, mode: str, **_: None) -> list[list[tuple[str, float]]]:
        assert mode == "bm25"
        if k > 1:  # a search for one document only loads the model
            if len(self.queries_seen) >= self._stop_after:
                raise KeyboardInterrupt
            self.queries_seen += queries
        return [[(text.removeprefix("text "), 2.0), ("d", 1.0 / 3), ("e", 0.1)][:k] for text in queries]


@pytest.fixture
def counting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Searches through the methods of `CountingIndex` in place of an index."""
    for name in ("rank_queries", "search_fingerprint"):
        monkeypatch.setattr(f"plait.evaluate.rank.{name}", partial(call_method, name))


def call_method(name: str, index: CountingIndex, *args: object, **kwargs: object) -> object:
    return getattr(index, name)(*args, **kwargs)


def dataset_of(n: int) -> Dataset:
    queries = {f"q{number}": f"text q{number}" for number in range(n)}
    return Dataset("set", "set", "test", None, queries, {id: {"d": 1} for id in queries})


def rank(
    index: CountingIndex, n: int, cache: Path | None, *, drop_self: bool = False, fresh: bool = False
) -> DatasetRun:
    return rank_dataset(cast(Index, index), dataset_of(n), "bm25", 2, cache=cache, drop_self=drop_self, fresh=fresh)


@pytest.mark.usefixtures("counting")
def test_cached_rankings_are_not_searched_again(tmp_path: Path) -> None:
    index = CountingIndex()
    first, second = rank(index, 5, tmp_path), rank(index, 5, tmp_path)
    assert (first.run, first.seconds) == (second.run, second.seconds)
    assert (first.n_cached, second.n_cached, len(index.queries_seen)) == (0, 5, 5)


@pytest.mark.usefixtures("counting")
def test_a_fresh_run_and_one_without_a_cache_search_again(tmp_path: Path) -> None:
    index = CountingIndex()
    for cache, fresh in ((tmp_path, False), (tmp_path, True), (None, False)):
        assert rank(index, 5, cache, fresh=fresh).n_cached == 0
    assert len(index.queries_seen) == 15
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.usefixtures("counting")
def test_an_interrupted_run_resumes_after_its_last_batch(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        rank(CountingIndex(stop_after=100), 200, tmp_path)
    resumed = CountingIndex()
    result = rank(resumed, 200, tmp_path)
    assert (result.n_cached, len(resumed.queries_seen), len(result.run)) == (128, 72, 200)
    assert list(result.run) == list(dataset_of(200).queries)


@pytest.mark.usefixtures("counting")
def test_a_changed_index_queries_or_depth_are_not_taken_from_the_cache(tmp_path: Path) -> None:
    index = CountingIndex()
    rank(index, 5, tmp_path)
    rank(index, 5, tmp_path, drop_self=True)
    rank(index, 6, tmp_path)
    index.commit = 2
    rank(index, 5, tmp_path)
    assert len(index.queries_seen) == 5 + 5 + 6 + 5


@pytest.mark.usefixtures("counting")
def test_dropping_the_query_itself_still_leaves_k_documents() -> None:
    assert rank(CountingIndex(), 1, None, drop_self=True).run == {"q0": [("d", 1.0 / 3), ("e", 0.1)]}
    assert rank(CountingIndex(), 1, None).run == {"q0": [("q0", 2.0), ("d", 1.0 / 3)]}


def test_a_truncated_line_of_the_cache_is_computed_again(tmp_path: Path) -> None:
    cache = RunCache(tmp_path, {"k": 1})
    cache.add({"q1": [("a", 0.1)]}, 1.0)
    cache.add({"q2": [("b", 0.2)]}, 2.0)
    cache.file.write_bytes(cache.file.read_bytes()[:-12])
    assert cache.read() == ({"q1": [("a", 0.1)]}, 1.0)
    cache.add({"q2": [("c", 0.3)]}, 4.0)
    assert cache.read() == ({"q1": [("a", 0.1)], "q2": [("c", 0.3)]}, 5.0)


def test_a_new_document_invalidates_the_cache(tmp_path: Path) -> None:
    queries = Dataset("set", "set", "test", None, {"q": "woven"}, {"q": {"b": 1}})
    with plait.open(tmp_path / "index", create=True, encoder=WordEncoder()) as index:
        index.add([{"id": "a", "text": "woven strands"}])
        runs = [rank_dataset(index, queries, "bm25", 5, cache=tmp_path / "cache") for _ in range(2)]
        index.add([{"id": "b", "text": "woven"}])
        runs.append(rank_dataset(index, queries, "bm25", 5, cache=tmp_path / "cache"))
    assert [run.n_cached for run in runs] == [0, 1, 0]
    assert [len(run.run["q"]) for run in runs] == [1, 1, 2]

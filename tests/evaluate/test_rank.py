"""Ranking a set: what was found is kept, and goes on where it was stopped."""

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


class Counting:
    """Finds one document for each query, its own id first if there is room, and counts what it was asked."""

    def __init__(self, *, stop_after: int = 10**9) -> None:
        self.asked: list[str] = []
        self.commit, self._stop_after = 1, stop_after

    def search_fingerprint(self, *, mode: str, **_: None) -> str:
        return f"{self.commit} {mode}"

    def rank_queries(self, queries: Sequence[str], k: int, *, mode: str, **_: None) -> list[list[tuple[str, float]]]:
        assert mode == "bm25"
        if k > 1:  # asking for one is how a model is loaded
            if len(self.asked) >= self._stop_after:
                raise KeyboardInterrupt
            self.asked += queries
        return [[(text.removeprefix("text "), 2.0), ("d", 1.0 / 3), ("e", 0.1)][:k] for text in queries]


@pytest.fixture
def counting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Searches through the methods of `Counting` in place of an index."""
    for name in ("rank_queries", "search_fingerprint"):
        monkeypatch.setattr(f"plait.evaluate.rank.{name}", partial(call_method, name))


def call_method(name: str, index: Counting, *args: object, **kwargs: object) -> object:
    return getattr(index, name)(*args, **kwargs)


def judged(n: int) -> Dataset:
    queries = {f"q{number}": f"text q{number}" for number in range(n)}
    return Dataset("set", "set", "test", None, queries, {id: {"d": 1} for id in queries})


def ranked(index: Counting, n: int, keep: Path | None, *, drop_self: bool = False, fresh: bool = False) -> DatasetRun:
    return rank_dataset(cast(Index, index), judged(n), "bm25", 2, cache=keep, drop_self=drop_self, fresh=fresh)


@pytest.mark.usefixtures("counting")
def test_what_was_found_is_not_searched_again(tmp_path: Path) -> None:
    index = Counting()
    first, second = ranked(index, 5, tmp_path), ranked(index, 5, tmp_path)
    assert (first.run, first.seconds) == (second.run, second.seconds)
    assert (first.n_cached, second.n_cached, len(index.asked)) == (0, 5, 5)


@pytest.mark.usefixtures("counting")
def test_a_fresh_run_and_one_that_keeps_nothing_search_again(tmp_path: Path) -> None:
    index = Counting()
    for keep, fresh in ((tmp_path, False), (tmp_path, True), (None, False)):
        assert ranked(index, 5, keep, fresh=fresh).n_cached == 0
    assert len(index.asked) == 15
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.usefixtures("counting")
def test_work_that_was_stopped_goes_on_after_its_last_batch(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        ranked(Counting(stop_after=100), 200, tmp_path)
    again = Counting()
    found = ranked(again, 200, tmp_path)
    assert (found.n_cached, len(again.asked), len(found.run)) == (128, 72, 200)
    assert list(found.run) == list(judged(200).queries)


@pytest.mark.usefixtures("counting")
def test_another_state_of_the_index_other_queries_and_another_depth_are_searched_anew(tmp_path: Path) -> None:
    index = Counting()
    ranked(index, 5, tmp_path)
    ranked(index, 5, tmp_path, drop_self=True)
    ranked(index, 6, tmp_path)
    index.commit = 2
    ranked(index, 5, tmp_path)
    assert len(index.asked) == 5 + 5 + 6 + 5


@pytest.mark.usefixtures("counting")
def test_dropping_the_query_itself_still_leaves_k_documents() -> None:
    assert ranked(Counting(), 1, None, drop_self=True).run == {"q0": [("d", 1.0 / 3), ("e", 0.1)]}
    assert ranked(Counting(), 1, None).run == {"q0": [("q0", 2.0), ("d", 1.0 / 3)]}


def test_a_line_that_was_cut_short_is_made_anew_and_hurts_no_other(tmp_path: Path) -> None:
    kept = RunCache(tmp_path, {"k": 1})
    kept.add({"q1": [("a", 0.1)]}, 1.0)
    kept.add({"q2": [("b", 0.2)]}, 2.0)
    kept.file.write_bytes(kept.file.read_bytes()[:-12])
    assert kept.read() == ({"q1": [("a", 0.1)]}, 1.0)
    kept.add({"q2": [("c", 0.3)]}, 4.0)
    assert kept.read() == ({"q1": [("a", 0.1)], "q2": [("c", 0.3)]}, 5.0)


def test_a_document_that_is_added_is_found_and_not_what_was_kept(tmp_path: Path) -> None:
    queries = Dataset("set", "set", "test", None, {"q": "woven"}, {"q": {"b": 1}})
    with plait.open(tmp_path / "index", create=True, encoder=WordEncoder()) as index:
        index.add([{"id": "a", "text": "woven strands"}])
        runs = [rank_dataset(index, queries, "bm25", 5, cache=tmp_path / "kept") for _ in range(2)]
        index.add([{"id": "b", "text": "woven"}])
        runs.append(rank_dataset(index, queries, "bm25", 5, cache=tmp_path / "kept"))
    assert [run.n_cached for run in runs] == [0, 1, 0]
    assert [len(run.run["q"]) for run in runs] == [1, 1, 2]

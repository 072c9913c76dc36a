"""Tables of models on judged sets: means over sets, their marks, and indexes that are completed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import plait
from benchmarks.quality.zero_shot import indexed, of_all, of_set
from plait.evaluate import Dataset


def judged_by(n_queries: int) -> Dataset:
    names = [str(number) for number in range(n_queries)]
    return Dataset(
        "set", "set", "test", None, dict.fromkeys(names, "a question"), {name: {"right": 1} for name in names}
    )


def test_a_column_that_is_surely_below_is_marked() -> None:
    judged = judged_by(40)
    runs = {
        "old:dense": {query: [("wrong", 2.0), ("right", 1.0)] for query in judged.queries},
        "same:dense": {query: [("right", 1.0)] for query in judged.queries},
        "new:dense": {query: [("right", 2.0)] for query in judged.queries},
    }
    means, cells = of_set(runs, judged)
    assert means["new:dense"] == 1
    assert means["old:dense"] < 1
    assert cells == {"old:dense": "0.631 <", "same:dense": "1.000", "new:dense": "1.000"}


def test_each_set_counts_the_same_in_the_mean() -> None:
    large = {"old": {str(query): 1.0 for query in range(400)}, "new": {str(query): 0.0 for query in range(400)}}
    small = {"old": {str(query): 0.0 for query in range(4)}, "new": {str(query): 1.0 for query in range(4)}}
    assert of_all([large, small], ["old", "new"]) == ["0.500", "0.500"]
    assert of_all([large], ["old", "new"]) == ["1.000 >", "0.000"]


def test_a_column_that_a_set_lacks_has_no_mean() -> None:
    whole = {"old": {"1": 1.0}, "new": {"1": 0.5}}
    assert of_all([whole, {"new": {"1": 0.5}}], ["old", "new"]) == ["", "0.500"]


def test_an_index_that_was_not_finished_is_completed(tmp_path: Path) -> None:
    corpus = tmp_path / "corpus.jsonl"
    corpus.write_text('{"_id": "right", "text": "a"}\n{"_id": "wrong", "text": "b"}\n')
    judged = replace(judged_by(1), corpus=corpus)
    with plait.open(tmp_path / "index", create=True, model="plait-small") as index:
        index.add([{"id": "right", "text": "a"}])
    with indexed(tmp_path / "index", "plait-small", judged, 1) as index:
        assert sorted(document.id for document in index) == ["right", "wrong"]

"""The training data of the default encoder: which queries and passages are drawn, and what a list contains."""

from __future__ import annotations

import gzip
import json
import random
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import committee_lists
from average_models import averaged
from committee import Candidates, _maxsim, _standardised
from committee_lists import Passage, Query, Source, drawn, labelled, list_of, made, save_labels, scored

TEXTS = {
    "glass": "Glass bends light in lenses. A lens of ground glass bends light to a point. It is polished with rouge",
    "salt": "Salt melts ice on roads. Grains of salt on a frozen road melt the ice below. It rusts cars in winter",
    "wool": "Wool keeps sheep warm. Fibres of wool hold still air between their many crimps. Sheep grow it all year",
    "iron": "Iron rusts in the rain. Water and air together turn iron into a brown and brittle crust. Paint stops it",
    "one": "Only a single sentence of rather more than six words stands in here",
}
QUERIES = {"q-train": "what bends light", "q-more": "what melts ice", "q-test": "what rusts"}
QRELS = {"train": [("q-train", "glass"), ("q-more", "salt"), ("q-more", "wool")], "test": [("q-test", "iron")]}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "metals"
    (folder / "qrels").mkdir(parents=True)
    for name, rows in (("corpus", TEXTS), ("queries", QUERIES)):
        lines = [json.dumps({"_id": id, "title": "", "text": text}) + "\n" for id, text in rows.items()]
        with gzip.open(folder / f"{name}.jsonl.gz", "wt", encoding="utf-8") as file:
            file.writelines(lines)
    for split, pairs in QRELS.items():
        rows_of = "".join(f"{query}\t{id}\t1\n" for query, id in pairs)
        (folder / "qrels" / f"{split}.tsv").write_text("query-id\tcorpus-id\tscore\n" + rows_of)
    return folder


def test_passages_judged_in_dev_or_test_are_left_out(folder: Path) -> None:
    queries, passages = drawn(folder, Source("metals", 10, {"questions": 10}), 1.0)
    assert set(passages) == set(TEXTS) - {"iron"}
    assert sorted((query.text, query.answer, *query.without) for query in queries) == [
        ("what bends light", "glass"),
        ("what melts ice", "salt", "wool"),
    ]


def test_a_sentence_that_is_left_out_is_no_longer_in_its_passage(folder: Path) -> None:
    queries, passages = drawn(folder, Source("metals", 10, {"left-out": 10}), 1.0)
    assert {query.answer for query in queries} == {"glass", "salt", "wool"}  # "one" has no other sentence
    assert all(query.text in TEXTS[query.answer] and query.text not in passages[query.answer] for query in queries)


def test_a_sentence_that_stays_does_not_find_its_own_passage(folder: Path) -> None:
    queries, passages = drawn(folder, Source("metals", 10, {"sentences": 10}), 1.0)
    assert len(queries) == 4
    assert all(query.text in passages[next(iter(query.without))] for query in queries)


def test_a_passage_gives_one_query_at_most(folder: Path) -> None:
    queries, _ = drawn(folder, Source("metals", 10, {"left-out": 2, "sentences": 10}), 1.0)
    assert len(queries) == 4


def test_half_of_a_passage_asks_for_the_other_half() -> None:
    passage = Passage("Title", "One two. Three four. Five six. Seven eight")
    assert made("halves", passage, Counter(), 1, random.Random(0)) == "One two. Three four"
    assert passage.whole == "Five six. Seven eight"


def test_a_title_leaves_its_passage_and_one_word_is_no_query() -> None:
    passage = Passage("Two words", "Text")
    assert made("titles", passage, Counter(), 1, random.Random(0)) == "Two words"
    assert passage.whole == "Text"
    assert made("titles", Passage("One", "Text"), Counter(), 1, random.Random(0)) is None


def test_a_list_has_the_scores_of_the_committee(monkeypatch: pytest.MonkeyPatch) -> None:
    def retrieve(queries: Sequence[str], *_: Any, **__: Any) -> list[Candidates]:
        return [Candidates(np.array([2, 0, 1]), np.array([0.9, 0.5, 0.1])) for _ in queries]

    monkeypatch.setattr("committee_lists.candidates_of", retrieve)
    passages = {"a": "text a", "b": "text b", "c": "text c", "d": "text d"}
    lists = scored([Query("x", "a"), Query("y"), Query("z", without=frozenset("c")), Query("w", "d")], passages, [], 1)
    rows: list[dict[str, Any]] = list(lists)
    assert [(row["pos_id"], row["neg_id"]) for row in rows] == [
        (["a"], ["c", "b"]),
        (["c"], ["a", "b"]),
        (["a"], ["b"]),
    ]
    assert rows[0]["pos_scores"] == [0.5]
    assert rows[0]["neg_scores"] == [0.9, 0.1]


def test_maxsim_of_the_committee_is_that_of_plain_loops() -> None:
    rng = np.random.default_rng(0)
    query, documents = rng.normal(size=(3, 4)), [rng.normal(size=(n, 4)) for n in (2, 5, 1)]
    expected = [np.mean([max(float(q @ row) for row in document) for q in query]) for document in documents]
    got = _maxsim(query.astype(np.float16), [document.astype(np.float16) for document in documents])
    assert np.allclose(got, expected, atol=1e-2)


def test_a_voice_without_opinion_does_not_divide_by_zero() -> None:
    assert _standardised(np.array([2.0, 2.0])).tolist() == [0.0, 0.0]
    assert np.allclose(_standardised(np.array([1.0, 3.0])), [-1, 1])


def test_an_average_keeps_a_share_of_the_start() -> None:
    torch = pytest.importorskip("torch")
    start = {"multi.weight": torch.zeros(2), "sparse.weight": torch.zeros(2), "ids": torch.tensor([1])}
    runs = [
        {"multi.weight": torch.ones(2), "sparse.weight": torch.ones(2), "ids": torch.tensor([7])},
        {"multi.weight": 3 * torch.ones(2), "sparse.weight": torch.ones(2), "ids": torch.tensor([7])},
    ]
    mean = averaged(start, runs, 0.25)
    assert mean["multi.weight"].tolist() == [0.5, 0.5]
    assert mean["sparse.weight"].tolist() == [1, 1]  # begins at random: the start has nothing to keep
    assert mean["ids"].tolist() == [7]
    with pytest.raises(ValueError, match="from 0 to 1"):
        averaged(start, runs, 2)


@pytest.fixture
def labels(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The labels of two lists, the second of which the committee did not answer."""
    source = Source("metals", 10, {"questions": 10})
    monkeypatch.setattr(committee_lists, "SOURCES", (source,))
    queries, passages = drawn(folder, source, 1.0)
    (tmp_path / "metals.jsonl").write_text(
        json.dumps(list_of(queries[1].text, "salt", ["one"], [1.5, -0.25], passages))
    )
    save_labels(tmp_path, tmp_path, tmp_path / "labels.npz", 1.0)
    return tmp_path / "labels.npz"


def test_lists_are_made_again_from_their_labels(folder: Path, labels: Path) -> None:
    queries, passages = drawn(folder, Source("metals", 10, {"questions": 10}), 1.0)
    assert list(labelled("metals", queries, passages, labels)) == [
        list_of(queries[1].text, "salt", ["one"], [1.5, -0.25], passages)
    ]


def test_labels_of_other_texts_are_refused(folder: Path, labels: Path) -> None:
    queries, passages = drawn(folder, Source("metals", 10, {"questions": 10}), 1.0)
    with pytest.raises(SystemExit, match="labels other texts of metals"):
        list(labelled("metals", queries[:1], passages, labels))
    with pytest.raises(SystemExit, match="has no labels of wood"):
        list(labelled("wood", queries, passages, labels))

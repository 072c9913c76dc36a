"""The training data of the default encoder: which queries and passages are drawn, and what a list contains."""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from training_lists import LEAD, Query, Source, drawn, judged

TEXTS = {
    "glass": "Glass bends light. A lens of ground glass bends light to a point. It is polished with rouge.",
    "salt": "Salt melts ice. Grains of salt on a frozen road melt the ice below. It rusts cars in winter.",
    "wool": "Wool keeps warm. Fibres of wool hold still air between their many crimps. Sheep grow it all year.",
    "iron": "Iron rusts. Water and air together turn iron into a brown and brittle crust. Paint stops it.",
    "one": "Only a single sentence of rather more than six words stands in here",
}
QUERIES = {"q-train": "what bends light", "q-more": "what melts ice", "q-test": "what rusts"}
QRELS = {"train": [("q-train", "glass"), ("q-more", "salt"), ("q-more", "iron")], "test": [("q-test", "iron")]}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "metals"
    (folder / "qrels").mkdir(parents=True)
    for name, rows in (("corpus", TEXTS), ("queries", QUERIES)):
        lines = [json.dumps({"_id": id, "text": text}) + "\n" for id, text in rows.items()]
        with gzip.open(folder / f"{name}.jsonl.gz", "wt", encoding="utf-8") as file:
            file.writelines(lines)
    for split, pairs in QRELS.items():
        rows_of = "".join(f"{query}\t{id}\t1\n" for query, id in pairs)
        (folder / "qrels" / f"{split}.tsv").write_text("query-id\tcorpus-id\tscore\n" + rows_of)
    return folder


def test_passages_judged_in_dev_or_test_are_left_out(folder: Path) -> None:
    queries, passages = drawn(folder, Source("metals", 10, 10), 1.0)
    assert set(passages) == set(TEXTS) - {"iron"}
    assert sorted((own.text, own.answer) for own in queries) == [
        ("what bends light", "glass"),
        ("what melts ice", "salt"),
    ]


def test_a_source_that_shares_passages_keeps_them(folder: Path) -> None:
    queries, passages = drawn(folder, Source("metals", 10, 10, shares=True), 1.0)
    assert set(passages) == set(TEXTS)
    assert next(own for own in queries if own.answer == "salt").others == {"iron"}


def test_a_removed_sentence_is_no_longer_in_its_passage(folder: Path) -> None:
    source = Source("metals", 10, 10, queries="left out", n_sentences=2)
    queries, passages = drawn(folder, source, 1.0)
    assert {own.answer for own in queries} == {"glass", "salt", "wool"}  # "one" would be empty without its sentence
    for query in queries:
        assert query.text in TEXTS[query.answer]
        assert query.text not in passages[query.answer]
        assert len(passages[query.answer]) > 20


class Agrees:
    """A teacher for whom all texts are alike."""

    def vectors(self, texts: Sequence[str]) -> NDArray[np.float32]:
        return np.ones((len(texts), 1), np.float32)


@pytest.mark.parametrize("is_sure", [True, False])
def test_a_list_has_one_answer_and_no_other_relevant_passage(is_sure: bool) -> None:
    teacher: Any = Agrees()
    asked = [Query("which metal has a crust", "wool", frozenset({"iron"}))]  # a label that nobody would agree with
    lists: list[Any] = list(judged(asked, TEXTS, teacher, 1, is_sure=is_sure))
    assert [own["pos_id"] for own in lists] == [["wool"]]
    assert set(lists[0]["neg_id"]) == {"glass", "salt", "one"}
    assert (lists[0]["pos_scores"][0] >= max(lists[0]["neg_scores"]) + LEAD - 1e-3) == is_sure

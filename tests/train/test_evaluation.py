"""Evaluation on a dev set."""

from __future__ import annotations

from pathlib import Path

from encoders import WordEncoder
from plait.train.evaluation import evaluate, load_dev_set
from plait.train.recipe import EvaluationConfig
from train.corpora import write_beir


def test_the_dev_set_has_all_judged_documents_and_is_searched(tmp_path: Path) -> None:
    config = EvaluationConfig(data=str(write_beir(tmp_path / "set")), n_documents=20, n_queries=5)
    dev_set = load_dev_set(config, seed=0)
    assert len(dev_set.queries) == 5
    assert len(dev_set.documents) == 20
    assert {id for of_query in dev_set.qrels.values() for id in of_query} <= {
        document.id for document in dev_set.documents
    }
    assert evaluate(WordEncoder(), dev_set, config, tmp_path / "index", mode="hybrid") > 0.6
    assert not (tmp_path / "index").exists()

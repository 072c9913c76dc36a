"""Test collections in BEIR's shape, as dictionaries and as a folder; they need no framework."""

from __future__ import annotations

from pathlib import Path

import pytest

from integrations.judged import write_beir as write_sample
from plait.errors import ConfigError, InputError
from plait.evaluate import load_beir
from plait.integrations.datasets import beir_results, from_beir, from_ir_datasets, from_ranx_run, to_beir, write_beir


def test_beir_dictionaries_go_in_and_out(tmp_path: Path) -> None:
    judged = load_beir(write_sample(tmp_path / "sample"))
    corpus, queries, qrels = to_beir(judged)
    assert corpus["d1"]["title"] == "body"
    again = from_beir(corpus, queries, qrels, name="again")
    assert to_beir(again) == (corpus, queries, qrels)
    write_beir(tmp_path / "written", again)
    assert to_beir(load_beir(tmp_path / "written")) == (corpus, queries, qrels)
    texts = from_beir({"1": "plain text", "2": ""}, {"q": "x", "r": "y"}, {"q": {"1": 1}, "lost": {"1": 1}})
    assert [one.text for one in texts.documents()] == ["plain text"]
    assert (list(texts.queries), texts.n_without_text) == (["q"], 1)
    with pytest.raises(InputError, match="none of the 1"):
        from_beir(corpus, {}, {"q": {"1": 1}})
    with pytest.raises(InputError, match="corpus"):
        from_beir([], queries, qrels)  # type: ignore[arg-type]


def test_scores_that_leave_plait_decrease_strictly() -> None:
    scores = beir_results({"q": [("b", 1.0), ("a", 1.0), ("c", 0.5)]})["q"]
    assert list(scores) == ["a", "b", "c"]
    assert scores["a"] > scores["b"] > scores["c"] == 0.5
    assert scores["b"] == pytest.approx(1.0, rel=1e-6)


def test_objects_of_other_libraries_are_recognised() -> None:
    with pytest.raises(InputError, match="queries_iter"):
        from_ir_datasets("topics")
    with pytest.raises(ConfigError, match=r"ranx\.Run"):
        from_ranx_run({"q": {}})

"""Cross-encoders of other libraries as pair scorers, and in a search."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import plait
from adapters import fakes
from encoders import WordEncoder
from plait.adapters import CrossEncoderScorer, FlagRerankerScorer, FunctionScorer
from plait.errors import ConfigError, InputError, ModelError
from plait.rerank.reranker import Reranker

PAIRS = [("the heart", "the heart pumps"), ("the heart", "bread"), ("bread", "is bread")]
TESTS = Path(__file__).parents[1]


def test_scores_are_those_of_the_library_in_the_order_of_the_pairs() -> None:
    for scorer in (
        CrossEncoderScorer(fakes.CrossEncoder(), batch_size=2),
        FlagRerankerScorer(fakes.FlagReranker(), batch_size=2),
        FunctionScorer(lambda pairs: [len({*a.split()} & {*b.split()}) for a, b in pairs], name="words", batch_size=2),
    ):
        done: list[tuple[int, int]] = []
        scores = scorer.score(PAIRS, on_batch=lambda n_done, n_total, done=done: done.append((n_done, n_total)))  # type: ignore[misc]
        assert scores.dtype == np.float32
        assert scores.tolist() == [2.0, 0.0, 1.0]
        assert done == [(2, 3), (3, 3)]
        assert scorer.score([]).shape == (0,)


def test_fingerprints_name_weights_and_settings() -> None:
    same = [CrossEncoderScorer(fakes.CrossEncoder()).fingerprint for _ in range(2)]
    assert same[0] == same[1]
    assert CrossEncoderScorer(fakes.CrossEncoder(seed=1)).fingerprint != same[0]
    changed = fakes.CrossEncoder()
    changed.max_seq_length = 16
    assert CrossEncoderScorer(changed).fingerprint != same[0]
    flag = fakes.FlagReranker()
    before = FlagRerankerScorer(flag).fingerprint
    flag.normalize = True
    assert FlagRerankerScorer(flag).fingerprint != before
    assert FunctionScorer(len, name="a").fingerprint != FunctionScorer(len, name="b").fingerprint


def test_a_fingerprint_is_the_same_in_another_process() -> None:
    code = (
        "from adapters import fakes; from plait.adapters import *;"
        "print(CrossEncoderScorer(fakes.CrossEncoder()).fingerprint);"
        "print(FlagRerankerScorer(fakes.FlagReranker()).fingerprint)"
    )
    environment = {"PYTHONHASHSEED": "7", "PYTHONPATH": str(TESTS), "PATH": ""}
    answer = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment, cwd=TESTS
    )
    flag = FlagRerankerScorer(fakes.FlagReranker())
    assert answer.stdout.split() == [CrossEncoderScorer(fakes.CrossEncoder()).fingerprint, flag.fingerprint]


@pytest.mark.parametrize("output", [[1.0], [[1.0, 2.0]] * 3, [1.0, 2.0, float("nan")], None])
def test_wrong_scores_are_refused(output: Any) -> None:
    with pytest.raises(ModelError):
        FunctionScorer(lambda _: output, name="wrong").score(PAIRS)


@pytest.mark.parametrize("pairs", [["ab"], [("a",)], [("a", None)], [("a", "\ud800")], "ab", [None]])
def test_pairs_that_are_no_pairs_are_refused(pairs: Any) -> None:
    with pytest.raises(InputError):
        CrossEncoderScorer(fakes.CrossEncoder()).score(pairs)


def test_a_classifier_and_other_objects_are_refused() -> None:
    with pytest.raises(ConfigError, match="3 labels"):
        CrossEncoderScorer(fakes.CrossEncoder(num_labels=3))
    for make in (CrossEncoderScorer, FlagRerankerScorer):
        with pytest.raises(ConfigError, match="takes a loaded"):
            make(object())
    with pytest.raises(ConfigError, match="callable"):
        FunctionScorer("text", name="m")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="name"):
        FunctionScorer(len, name="")


def test_a_search_takes_a_scorer_as_its_reranker(tmp_path: Path) -> None:
    texts = {"a": "blood blood blood", "b": "the heart pumps blood", "c": "bread"}
    with plait.open(tmp_path / "index", create=True, encoder=WordEncoder()) as index:
        index.add([{"id": id, "text": text} for id, text in texts.items()])
        scorer = CrossEncoderScorer(fakes.CrossEncoder())
        query = "the heart and blood"
        hits = index.search(query, k=3, mode="bm25", rerank=scorer)
        assert [hit.id for hit in hits] == ["b", "a"]
        assert [hit.score for hit in hits] == [3.0, 1.0]
        wrapped = index.search(query, k=3, mode="bm25", rerank=Reranker(scorer, depth=1, blend=0.5))
        assert [hit.id for hit in wrapped] == ["b", "a"]
        with pytest.raises(ConfigError, match="rerank must be a path"):
            index.search(query, rerank=fakes.CrossEncoder())  # type: ignore[arg-type]

"""Mining: hard negatives that are none of the positives, teacher scores that are asked for once, false negatives."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from encoders import WordEncoder
from plait.errors import InputError
from plait.train.data.example import Example, Passage
from plait.train.data.sources import read_beir
from plait.train.mining.config import MiningConfig
from plait.train.mining.negatives import corpus_path, make_index, mine_negatives, read_corpus
from plait.train.mining.teacher import CachedScorer, EncoderScorer, Pair, drop_false_negatives, with_scores
from train.corpora import write_beir


@pytest.fixture
def beir(tmp_path: Path) -> Path:
    return write_beir(tmp_path / "set")


def mined(beir: Path, tmp_path: Path, config: MiningConfig, *, encoder: WordEncoder | None, mode: str) -> list[Example]:
    with make_index(tmp_path / "index", beir, encoder) as index, read_corpus(beir) as texts:
        return list(mine_negatives(read_beir(beir), index, texts, config, mode=mode, seed=0))


@pytest.mark.parametrize(("encoder", "mode"), [(None, "bm25"), (WordEncoder(), "dense"), (WordEncoder(), "multi")])
def test_mined_negatives_share_words_with_the_query_and_do_not_answer_it(
    beir: Path, tmp_path: Path, encoder: WordEncoder | None, mode: str
) -> None:
    examples = mined(beir, tmp_path, MiningConfig(n_negatives=4, last_rank=10), encoder=encoder, mode=mode)
    assert len(examples) == 50
    for example in examples:
        assert len(example.negatives) == 4
        assert {passage.id for passage in example.negatives}.isdisjoint(passage.id for passage in example.positives)
        shared = [set(passage.text.split()) & set(example.query.split()) for passage in example.negatives]
        assert sum(map(bool, shared)) >= 3


def test_a_copy_of_the_positive_under_another_id_is_no_negative(beir: Path, tmp_path: Path) -> None:
    corpus = beir / "corpus.jsonl"
    first = corpus.read_text().splitlines()[0]
    with corpus.open("a") as file:
        file.write(first.replace('"d0"', '"copy"').replace("the loom", "the  loom") + "\n")
    example = mined(beir, tmp_path, MiningConfig(n_negatives=50, last_rank=50), encoder=None, mode="bm25")[0]
    assert "copy" not in [passage.id for passage in example.negatives]


def test_random_negatives_come_from_the_whole_corpus(beir: Path, tmp_path: Path) -> None:
    ranked = MiningConfig(n_negatives=4, last_rank=4)
    alone = mined(beir, tmp_path, ranked, encoder=None, mode="bm25")
    both = mined(beir, tmp_path, replace(ranked, n_random=3), encoder=None, mode="bm25")
    random_ids = set()
    for plain, example in zip(alone, both, strict=True):
        n = len(plain.negatives)
        assert example.negatives[:n] == plain.negatives
        ids = [passage.id for passage in (*example.positives, *example.negatives)]
        assert len(example.negatives) == n + 3
        assert len(set(ids)) == len(ids)
        random_ids.update(ids[-3:])
    assert len(random_ids) > 25  # of 50 documents, by 150 draws


def test_negatives_come_from_the_configured_ranks(beir: Path, tmp_path: Path) -> None:
    whole = mined(beir, tmp_path, MiningConfig(n_negatives=50, last_rank=10), encoder=None, mode="bm25")[3]
    later = mined(beir, tmp_path, MiningConfig(n_negatives=50, first_rank=6, last_rank=10), encoder=None, mode="bm25")[
        3
    ]
    assert later.negatives == whole.negatives[-len(later.negatives) :]
    assert len(later.negatives) == 5


def test_a_missing_corpus_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"there is no corpus .*none"):
        corpus_path(tmp_path / "none")


class Counting:
    """Scores a passage by its length."""

    fingerprint = "length"

    def score(self, pairs: Sequence[Pair]) -> NDArray[np.float32]:
        return np.array([len(passage) for _, passage in pairs], np.float32)


def test_scores_are_computed_once_and_cached_for_the_next_run(tmp_path: Path) -> None:
    examples = [Example("q", (Passage("four"),), (Passage("a"), Passage("three"))), Example("r", (Passage("four"),))]
    for n_expected in (4, 0):
        scorer = CachedScorer(Counting(), tmp_path / "scores.sqlite")
        first, second = with_scores(examples, scorer)
        assert (first.positive_scores, first.negative_scores) == ((4.0,), (1.0, 5.0))
        assert second.negative_scores == ()
        assert scorer.n_computed == n_expected
        scorer.close()


def test_each_teacher_has_its_cached_scores(tmp_path: Path) -> None:
    CachedScorer(Counting(), tmp_path / "scores.sqlite").score([("q", "p")])
    other = Counting()
    other.fingerprint = "another"
    scorer = CachedScorer(other, tmp_path / "scores.sqlite")
    scorer.score([("q", "p")])
    assert scorer.n_computed == 1


def test_an_encoder_teaches_by_inner_products() -> None:
    scores = EncoderScorer(WordEncoder()).score([("red loom", "red loom"), ("red loom", "blue river")])
    assert scores[0] == pytest.approx(1.0, abs=1e-5)
    assert scores[1] < scores[0]


@pytest.mark.parametrize(
    ("margin", "kind", "kept"), [(0.0, "absolute", "bcd"), (2.0, "absolute", "cd"), (0.5, "percent", "d")]
)
def test_negatives_scored_close_to_the_positive_are_dropped(margin: float, kind: str, kept: str) -> None:
    example = Example("q", (Passage("p"),), tuple(Passage(name) for name in "abcd"), (10.0,), (11.0, 9.0, 8.0, 2.0))
    result = drop_false_negatives(example, margin=margin, kind=kind)
    assert "".join(passage.text for passage in result.negatives) == kept
    assert result.negative_scores is not None
    assert len(result.negative_scores) == len(kept)


def test_a_percent_margin_works_for_negative_scores() -> None:
    example = Example("q", (Passage("p"),), (Passage("a"), Passage("b")), (-10.0,), (-10.5, -12.0))
    result = drop_false_negatives(example, margin=0.1, kind="percent")
    assert [passage.text for passage in result.negatives] == ["b"]

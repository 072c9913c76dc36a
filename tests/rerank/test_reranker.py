"""Reranking in a search: the cross-encoder decides the order, and hits keep the scores of the search."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import plait
from encoders import WordEncoder
from plait.cli.app import app
from plait.errors import ConfigError, ModelError
from plait.evaluate import rank_queries
from plait.index import Index
from plait.rerank.cross_encoder import load_cross
from plait.rerank.reranker import Reranker, blend_scores
from plait.search.ranking import Ranking
from plait.search.trace import Trace
from rerank.small_cross import WordScorer, cross_card

TEXTS = {
    "a": "vectors are woven into strands",
    "b": "woven woven cloth",
    "c": "vectors and more vectors and again vectors of many kinds",
    "d": "nothing of that",
}


@pytest.fixture
def index(tmp_path: Path) -> Index:
    opened = plait.open(tmp_path / "ix", create=True, encoder=WordEncoder())
    opened.add([{"id": id, "text": text} for id, text in TEXTS.items()])
    return opened


def test_hits_are_in_the_order_of_the_cross_encoder(index: Index) -> None:
    scorer = WordScorer()
    hits = index.search("woven vectors", 3, rerank=Reranker(scorer))
    expected = scorer.score([("woven vectors", text) for text in TEXTS.values()])
    order = sorted(zip(-expected, TEXTS, strict=True))[:3]
    assert [hit.id for hit in hits] == [id for _, id in order]
    assert [hit.score for hit in hits] == pytest.approx([-score for score, _ in order])
    assert all(hit.scores["rerank"] == hit.score for hit in hits)
    assert "dense" in hits[0].scores


def test_a_reranker_reorders_rankings_by_the_texts_it_is_given() -> None:
    docs = np.array([7, 8, 9])
    ranking = Ranking(docs, np.array([3, 2, 1], np.float32), docs, {"dense": np.array([3, 2, 1], np.float32)})
    (top,) = Reranker(WordScorer()).rerank(["b"], [["a", "b b", "b"]], [ranking], 2, Trace())
    assert top.docs.tolist() == [8, 9]
    assert top.parts["dense"].tolist() == [2, 1]
    assert top.ranks["dense"].tolist() == [2, 3]


def test_whole_blocks_of_depth_candidates_are_scored(index: Index) -> None:
    for depth, k, pairs in [(2, 1, [2]), (2, 3, [2, 2]), (50, 2, [4])]:
        scorer, trace = WordScorer(), Trace()
        assert len(index.search("woven vectors", k, mode="dense", rerank=Reranker(scorer, depth), trace=trace)) == k
        assert scorer.n_pairs == sum(pairs)
        assert [stage.counts["pairs"] for stage in trace.stages if stage.name == "rerank"] == pairs


def test_an_explanation_has_the_ranks_of_the_search_and_the_new_score(index: Index) -> None:
    for mode in ("hybrid", "dense", "bm25"):
        plain = [hit.id for hit in index.search("woven vectors", 4, mode=mode)]
        hit = index.search("woven vectors", 4, mode=mode, rerank=Reranker(WordScorer()), explain=True)[0]
        assert hit.explanation is not None
        parts = {part.kind: part for part in hit.explanation.parts}
        assert (parts["rerank"].share, parts["rerank"].rank) == (1.0, 1)
        if mode != "hybrid":
            assert parts[mode].rank == plain.index(hit.id) + 1
            assert parts[mode].share == 0


def test_runs_are_reranked_too(index: Index) -> None:
    ranked = rank_queries(index, ["woven vectors", "cloth"], 2, rerank=Reranker(WordScorer()))
    assert [len(ranking) for ranking in ranked] == [2, 2]
    assert ranked[0][0][0] == index.search("woven vectors", 1, rerank=Reranker(WordScorer()))[0].id


def test_candidates_restrict_reranking(index: Index) -> None:
    hits = index.search("woven vectors", candidates=["a", "d"], rerank=Reranker(WordScorer()))
    assert {hit.id for hit in hits} == {"a", "d"}


def test_a_blend_is_the_weighted_sum_of_both_scores(index: Index) -> None:
    first = {hit.id: hit.score for hit in index.search("woven vectors", 4)}
    alone = {hit.id: hit.score for hit in index.search("woven vectors", 4, rerank=Reranker(WordScorer()))}
    hits = index.search("woven vectors", 4, rerank=Reranker(WordScorer(), blend=0.25), explain=True)

    def unit(scores: dict[str, float], id: str) -> float:
        return (scores[id] - min(scores.values())) / (max(scores.values()) - min(scores.values()))

    assert [hit.score for hit in hits] == pytest.approx(
        sorted((0.25 * unit(first, id) + 0.75 * unit(alone, id) for id in TEXTS), reverse=True), abs=1e-6
    )
    assert all(hit.scores["rerank"] == pytest.approx(alone[hit.id]) for hit in hits)
    shares = [part.share for part in hits[0].explanation.parts]  # type: ignore[union-attr]
    assert sum(shares) == pytest.approx(1.0)
    assert len([share for share in shares if share]) > 1


def test_equal_scores_can_be_blended() -> None:
    equal = np.ones(3, np.float32)
    np.testing.assert_array_equal(blend_scores(equal, np.array([0, 1, 2], np.float32), 0.5), [0.5, 0.75, 1.0])
    assert len(blend_scores(equal[:0], equal[:0], 0.5)) == 0


def test_a_blend_outside_zero_to_one_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"blend is 1.0; it is a share"):
        Reranker(WordScorer(), blend=1.0)


def test_a_depth_of_zero_is_refused() -> None:
    with pytest.raises(ConfigError, match="rerank depth is 0"):
        Reranker(WordScorer(), 0)


def test_without_a_cross_encoder_the_error_says_how_to_get_one(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("plait.rerank.cross_encoder.DEFAULT_CROSS", "no-such-model")
    with pytest.raises(ModelError, match=r"pip install no-such-model.*--rerank-model FOLDER"):
        index.search("woven", rerank=True)


def test_a_folder_without_a_cross_encoder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="there is no model folder"):
        load_cross(tmp_path / "absent")
    (tmp_path / "plait.json").write_text(json.dumps({"format": 1, "name": "dense"}))
    with pytest.raises(ModelError, match="the card of an encoder"):
        load_cross(tmp_path)
    (tmp_path / "plait.json").write_text(json.dumps(cross_card()))
    with pytest.raises(ModelError, match="is missing"):
        load_cross(tmp_path)
    with pytest.raises(ModelError, match="gives no vectors"):
        plait.load_model(tmp_path)


# -- the command line


@pytest.fixture
def words(monkeypatch: pytest.MonkeyPatch) -> WordScorer:
    scorer = WordScorer()
    monkeypatch.setattr("plait.rerank.cross_encoder.load_cross", lambda *_given, **_options: scorer)
    return scorer


def test_candidates_are_printed_best_first(words: WordScorer) -> None:
    del words
    line = json.dumps({"query": "woven", "candidates": ["cloth", {"id": "x", "text": "woven", "title": "T"}]})
    result = CliRunner().invoke(app, ["rerank"], input=line + "\n\n")
    assert result.exit_code == 0
    answer = json.loads(result.stdout)
    assert [candidate["id"] for candidate in answer["candidates"]] == ["x", "0"]
    assert answer["candidates"][0]["score"] > answer["candidates"][1]["score"]


@pytest.mark.parametrize(
    "line", ["{}", "[]", "nonsense", '{"query": "", "candidates": []}', '{"query": "a", "candidates": [3]}']
)
def test_an_error_names_a_bad_input_line(words: WordScorer, line: str) -> None:
    del words
    result = CliRunner().invoke(app, ["rerank"], input=line + "\n")
    assert result.exit_code == 2
    assert "standard input, line 1" in result.stderr


def test_a_run_is_reranked_with_the_texts_of_an_index(
    words: WordScorer, index: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    del words
    monkeypatch.setitem(vars(plait), "open", lambda *_given, **_options: index)
    run, queries, to = tmp_path / "run.trec", tmp_path / "queries.jsonl", tmp_path / "better.trec"
    run.write_text("q1 Q0 d 1 3 x\nq1 Q0 a 2 2 x\nq1 Q0 b 3 1 x\n")
    queries.write_text('{"_id": "q1", "text": "woven cloth"}\n')
    arguments = ["rerank", str(run), "--index", str(index.path), "--queries", str(queries), "--to", str(to), "-k", "2"]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.stderr
    assert [line.split()[2] for line in to.read_text().splitlines()] == ["b", "a"]


def test_rerank_options_need_rerank() -> None:
    result = CliRunner().invoke(app, ["search", "ix", "woven", "--rerank-depth", "5"])
    assert result.exit_code == 2
    assert "add --rerank" in result.stderr
    result = CliRunner().invoke(app, ["rerank", "run.trec", "--to", "x"])
    assert "needs --index" in result.stderr

"""BM25 equals its formula, by FTS5 and by the text index of a segment."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

import plait
from plait.embeddings import Embeddings
from plait.scoring.bm25 import COMMON_SHARE
from plait.search import fts5
from plait.search.bm25 import bm25_of, bm25_search, bm25_statistics, bm25_word_scores
from plait.search.word_statistics import WordStatistics
from plait.storage.files import text_index as words_file

K1, B = 1.2, 0.75
# Words with a Zipf distribution: w0 is in nearly every document, w40 in few. Stemming does not change them.
RNG = np.random.default_rng(5)
TEXTS = [" ".join(f"w{min(int(rank), 60)}" for rank in RNG.zipf(1.4, RNG.integers(3, 30))) for _ in range(120)]


def expected(query: str, n_texts: int = len(TEXTS)) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    """BM25 of every text, written for reading."""
    counts = [Counter(text.split()) for text in TEXTS[:n_texts]]
    lengths = np.array([sum(count.values()) for count in counts])
    scores = np.zeros(n_texts)
    for word, times in Counter(query.split()).items():
        n = sum(word in count for count in counts)
        odds = (n_texts - n + 0.5) / (n + 0.5)
        idf = math.log(odds) if n <= COMMON_SHARE * n_texts else min(math.log1p(odds), math.log(2))
        tf = np.array([count[word] for count in counts])
        scores += min(times, 4) * idf * tf * (K1 + 1) / (tf + K1 * (1 - B + B * lengths / lengths.mean()))
    return scores


@pytest.fixture(scope="module", params=["sqlite", "words"])
def index(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> plait.Index:
    """By the full-text table of the catalogue, and by the words of a compacted segment."""
    made = plait.open(tmp_path_factory.mktemp("words") / "index", create=True, spec=plait.EmbeddingSpec())
    made.add_embeddings([{"id": str(number), "text": text} for number, text in enumerate(TEXTS)], Embeddings())
    if request.param == "words":
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(words_file, "MIN_DOCUMENTS", 1)
            made.compact()
    assert len(list(made.path.glob("segments/*/text_index.plait"))) == (request.param == "words")
    return made


@pytest.mark.parametrize("deep", [1, 2000])
@pytest.mark.parametrize("k", [1, 5, 200])
@pytest.mark.parametrize(
    "query", ["w1", "w30", "w1 w2", "w1 w30 w40", "w30 w40 w50", "w2 w2 w2 w9 w30", "w1 " * 9 + "w20", "w60 w1 w59"]
)
def test_scores_are_those_of_the_formula(
    index: plait.Index, query: str, k: int, deep: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fts5, "FIRST_STEP_FACTOR", 1)
    monkeypatch.setattr(fts5, "MIN_FIRST_STEP", deep)
    scores = expected(query)
    order = [number for number in np.lexsort((np.arange(len(TEXTS)), -scores.astype(np.float32))) if scores[number] > 0]
    found = index.search(query, k, mode="bm25")
    assert [hit.score for hit in found] == pytest.approx([scores[number] for number in order[:k]], rel=1e-4)
    equal = {str(number) for number in order if scores[number] > 0.999 * scores[order[0]]}
    assert {hit.id for hit in found[:1]} <= equal


def test_a_word_of_all_documents_still_ranks_them(index: plait.Index) -> None:
    found = index.search("w1", 10, mode="bm25")
    assert found[0].score > found[-1].score > 0.01


def test_a_filter_does_not_change_scores(index: plait.Index) -> None:
    every = {hit.id: hit.score for hit in index.search("w1 w30", 200, mode="bm25")}
    chosen = list(every)[::7]
    some = {hit.id: hit.score for hit in index.search("w1 w30", 3, mode="bm25", candidates=chosen)}
    assert some == pytest.approx({id: every[id] for id in chosen[:3]})


def test_a_single_document_is_found_with_a_score_above_zero(tmp_path: Path) -> None:
    with plait.open(tmp_path / "index", create=True, spec=plait.EmbeddingSpec()) as one:
        one.add_embeddings([{"id": "1", "text": "tea"}], Embeddings())
        assert one.search("tea", mode="bm25")[0].score > 0.1


def test_an_explanation_adds_up_to_the_score(index: plait.Index) -> None:
    for hit in index.search("w1 w1 w2 w30", 5, mode="bm25", explain=True):
        assert hit.explanation is not None
        assert hit.explanation.bm25 is not None
        assert sum(match.score for match in hit.explanation.bm25) == pytest.approx(hit.score, rel=1e-5)


@pytest.mark.parametrize("by_words", [False, True])
@pytest.mark.parametrize("query", ["w1", "w30 w2", "w2 w2 w9 w30 absent", "w1 " * 9 + "w20", "w3*"])
def test_shards_that_share_statistics_score_as_one_index(tmp_path: Path, query: str, by_words: bool) -> None:
    """Three shards of very different mean lengths; two of them get documents after they were compacted."""
    by_length = sorted(range(len(TEXTS)), key=lambda number: len(TEXTS[number]))
    shards = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(words_file, "MIN_DOCUMENTS", 1)
        for number, part in enumerate([by_length[:50], by_length[50:90], by_length[90:]]):
            shard = plait.open(tmp_path / f"shard{number}", create=True, spec=plait.EmbeddingSpec())
            documents = [{"id": str(position), "text": TEXTS[position]} for position in part]
            first = documents if number == 2 else documents[:-3]
            shard.add_embeddings(first, Embeddings(), merge=False)
            if by_words:
                shard.compact()
            if number != 2:
                shard.add_embeddings(documents[-3:], Embeddings(), merge=False)
            shards.append(shard)
    for shard in shards:
        assert (bm25_of(shard.snapshot).segment_index is not None) == by_words
    collection = WordStatistics.total([bm25_statistics(shard.snapshot, [query]) for shard in shards])
    one = plait.open(tmp_path / "one", create=True, spec=plait.EmbeddingSpec())
    one.add_embeddings([{"id": str(n), "text": text} for n, text in enumerate(TEXTS)], Embeddings())
    if by_words:  # the statistics of compacted shards are those of their compactions
        assert collection.n_documents == len(TEXTS) - 6
        collection = bm25_statistics(one.snapshot, [query])
    scored: dict[int, float] = {}
    for shard in shards:
        docs, scores = bm25_search(shard.snapshot, query, 200, collection=collection)
        scored |= dict(zip(map(int, shard.snapshot.fetch_ids(docs.tolist())), scores.tolist(), strict=True))
        for doc, score in zip(docs.tolist()[:2], scores.tolist(), strict=False):
            parts = bm25_word_scores(shard.snapshot, query, doc, collection).values()
            assert sum(part.score for _, part in parts) == pytest.approx(score, rel=1e-5)
    docs, scores = bm25_search(one.snapshot, query, 200)
    wanted = dict(zip(map(int, one.snapshot.fetch_ids(docs.tolist())), scores.tolist(), strict=True))
    assert scored == pytest.approx(wanted, rel=1e-6)


def test_numbers_of_sqlite_are_read() -> None:
    assert fts5.read_varints(bytes([0x01, 0x81, 0x00, 0x7F])) == [1, 128, 127]
    assert fts5.read_varints(b"\xff" * 9) == [2**64 - 1]

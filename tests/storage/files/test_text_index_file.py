"""text_index.plait: BM25 over it equals BM25 by FTS5, before and after changes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

import plait
from plait.errors import CorruptIndexError
from plait.search import bm25
from plait.search.bm25 import bm25_of, bm25_search, bm25_word_scores
from plait.storage.check import check
from plait.storage.files import text_index as words_file
from plait.storage.segment_file import SegmentFile
from plait.storage.store import Store
from plait.text.analyser import DEFAULT_ANALYSER, Analyser
from plait.text.query_terms import normalize_terms

WORDS = [
    "river",
    "rivers",
    "flood",
    "floods",
    "Überfahrt",
    "café",
    "running",
    "runs",
    "ran",
    "the",
    "of",
    "north",
    "茶道",
    "history",
    "naïve",
    "zebra",
    "x1",
    "2024",
]
QUERIES = [
    "river flood",
    "the history of rivers",
    "the of",  # nothing but words that most documents hold
    "rivers river flooded zebra zebra",  # words that are one word there, or are asked for twice
    "running",
    "ÜBERFAHRT cafe",
    "zebra",
    "茶道",
    "unheard",
    "naive 2024 x1",
]


@pytest.fixture(autouse=True)
def _few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(words_file, "MIN_DOCUMENTS", 50)
    monkeypatch.setattr(words_file, "BLOCK_OCCURRENCES", 500)


def add(index: plait.Index, n_documents: int, first: int = 0) -> None:
    rng = np.random.default_rng(first)
    share = 1 / np.arange(1, len(WORDS) + 1)
    documents = [
        {
            "id": str(first + number),
            "title": " ".join(rng.choice(WORDS, rng.integers(0, 3))),
            "text": " ".join(rng.choice(WORDS, rng.integers(1, 60), p=share / share.sum())),
            "n": first + number,
        }
        for number in range(n_documents)
    ]
    index.add_embeddings(documents, plait.Embeddings(dense=np.ones((n_documents, 2), np.float32)), merge=False)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    with plait.open(tmp_path / "index", create=True, spec=plait.EmbeddingSpec(dense=2)) as index:
        add(index, 400)
        index.compact()
    return tmp_path / "index"


def as_spelled(query: str, analyser: Analyser = DEFAULT_ANALYSER) -> list[str] | None:
    return normalize_terms(list(analyser.query_terms(query).values()), analyser)


def both(
    path: Path, monkeypatch: pytest.MonkeyPatch, query: str, k: int, allowed: NDArray[np.int64] | None = None
) -> list[tuple[NDArray[np.int64], NDArray[np.float32]]]:
    """What the words find, and what SQLite does."""
    with Store.open(path, read_only=True).snapshot() as snapshot:
        assert bm25_of(snapshot).text_segment is not None
        by_words = bm25_search(snapshot, query, k, doc_filter=allowed)
        monkeypatch.setattr(bm25_of(snapshot), "segment_index", None)
        return [by_words, bm25_search(snapshot, query, k, doc_filter=allowed)]


def test_a_compaction_of_many_documents_writes_the_file(path: Path) -> None:
    assert len(list(path.glob("segments/*/text_index.plait"))) == 1
    assert check(path).ok


@pytest.mark.parametrize("query", QUERIES)
@pytest.mark.parametrize("k", [3, 1000])
def test_scores_and_order_equal_those_of_fts5(path: Path, monkeypatch: pytest.MonkeyPatch, query: str, k: int) -> None:
    (docs, scores), (own_docs, own_scores) = both(path, monkeypatch, query, k)
    np.testing.assert_allclose(scores, own_scores, rtol=1e-6)
    assert docs.tolist() == own_docs.tolist()


@pytest.mark.parametrize("n_allowed", [5, 200])
def test_only_allowed_documents_are_found(path: Path, monkeypatch: pytest.MonkeyPatch, n_allowed: int) -> None:
    allowed = np.sort(np.random.default_rng(1).permutation(400)[:n_allowed]) + 1
    (docs, scores), (own_docs, own_scores) = both(path, monkeypatch, "river flood history", 1000, allowed)
    assert docs.tolist() == own_docs.tolist()
    np.testing.assert_allclose(scores, own_scores, rtol=1e-6)


def test_a_prefix_query_uses_fts5(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert as_spelled("茶") is None
    (docs, _), (own_docs, _) = both(path, monkeypatch, "茶", 1000)
    assert len(docs)
    assert docs.tolist() == own_docs.tolist()


@pytest.mark.parametrize("most_later", [5, 20])  # by SQLite, and by words in memory
def test_later_documents_are_found_and_deleted_ones_are_not(
    path: Path, monkeypatch: pytest.MonkeyPatch, most_later: int
) -> None:
    monkeypatch.setattr(bm25, "MAX_RECENT_DOCUMENTS", most_later)
    with plait.open(path) as index:
        add(index, 20, 400)
        index.delete(["1", "2", "3"], merge=False)
        found = {hit.id for hit in index.search("river floods history", 1000, mode="bm25")}
        later = {id for id in found if int(id) >= 400}
        assert later
        assert not found & {"1", "2", "3"}
        index.delete(sorted(later)[:1], merge=False)
        assert {hit.id for hit in index.search("river floods history", 1000, mode="bm25")} == found - {min(later)}
        chosen = {hit.id for hit in index.search("river floods history", 1000, mode="bm25", filter="n >= 398")}
        assert chosen == {id for id in found - {min(later)} if int(id) >= 398}
        assert index.search("unheard", mode="bm25") == []


def test_a_later_document_scores_as_its_twin_in_the_segment(path: Path) -> None:
    with plait.open(path) as index:
        rng = np.random.default_rng(0)
        share = 1 / np.arange(1, len(WORDS) + 1)
        twins = []
        for number in range(20):  # as `add` makes the first ones
            title = " ".join(rng.choice(WORDS, rng.integers(0, 3)))
            text = " ".join(rng.choice(WORDS, rng.integers(1, 60), p=share / share.sum()))
            twins.append({"id": f"1{number:03}", "title": title, "text": text, "n": number})
        index.add_embeddings(twins, plait.Embeddings(dense=np.ones((20, 2), np.float32)), merge=False)
    with Store.open(path, read_only=True).snapshot() as snapshot:
        assert bm25_of(snapshot).recent_index is not None
        for query in QUERIES:
            docs, scores = bm25_search(snapshot, query, 1000)
            found = dict(zip(snapshot.fetch_ids(docs.tolist()), scores.tolist(), strict=True))
            for number in range(20):
                assert found.get(f"1{number:03}") == found.get(str(number))


def test_a_word_that_only_later_documents_hold_is_found(path: Path) -> None:
    later = [{"id": "new", "text": "a quokka by the river"}, {"id": "other", "text": "the river"}]
    with plait.open(path) as index:
        index.add_embeddings(later, plait.Embeddings(dense=np.ones((2, 2), np.float32)), merge=False)
        found = index.search("quokka", mode="bm25", explain=True)
        assert [hit.id for hit in found] == ["new"]
        assert index.search("quokka river", 3, mode="bm25")[0].id == "new"


def test_after_many_changes_fts5_answers_alone(path: Path) -> None:
    with plait.open(path) as index:
        add(index, 100, 400)
    with Store.open(path).snapshot() as snapshot:
        assert bm25_of(snapshot).text_segment is None
    with plait.open(path) as index:
        index.compact()
    with Store.open(path).snapshot() as snapshot:
        assert bm25_of(snapshot).text_segment is not None


def test_every_word_has_its_number_and_other_words_have_none(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(words_file, "LANDMARK_STEP", 3)
    with Store.open(path, read_only=True).snapshot() as snapshot:
        words = snapshot.segments[0].text_index
        assert words is not None
        held = [words.word(place).decode() for place in range(len(words.impacts.offsets) - 1)]
        assert len(held) > 10
        assert [words.word_number(word) for word in held] == list(range(len(held)))
        others = ["", "!", *(word + "~" for word in held), "\U0010ffff"]
        assert [words.word_number(word) for word in others] == [None] * len(others)


@pytest.mark.parametrize("query", QUERIES)
def test_the_scores_of_words_add_up_to_that_of_the_document(path: Path, query: str) -> None:
    with plait.open(path) as index:
        add(index, 20, 400)
        index.delete(["1", "2"], merge=False)
    with Store.open(path, read_only=True).snapshot() as snapshot:
        assert bm25_of(snapshot).text_segment is not None
        for doc, score in zip(*bm25_search(snapshot, query, 1000), strict=True):
            parts = bm25_word_scores(snapshot, query, int(doc)).values()
            assert sum(part.score for _, part in parts) == pytest.approx(score, rel=1e-5)


def test_the_text_index_has_no_words_of_deleted_documents(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with plait.open(path) as index:
        add(index, 100, 400)
        index.delete([str(number) for number in range(0, 300, 2)], merge=False)
        index.compact()
    assert check(path).ok
    (docs, scores), (own_docs, own_scores) = both(path, monkeypatch, "river flood the", 1000)
    assert docs.tolist() == own_docs.tolist()
    np.testing.assert_allclose(scores, own_scores, rtol=1e-6)


def test_an_index_with_a_language_has_stemmed_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "german"
    with plait.open(path, create=True, spec=plait.EmbeddingSpec(dense=2), language="de") as index:
        add(index, 100)
        index.compact()
    (docs, scores), (own_docs, own_scores) = both(path, monkeypatch, "Überfahrten Cafés 茶道", 1000)
    assert len(docs) > 10
    assert docs.tolist() == own_docs.tolist()
    np.testing.assert_allclose(scores, own_scores, rtol=1e-6)


def test_a_text_index_with_outdated_stems_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "german"
    with (
        monkeypatch.context() as before,
        plait.open(path, create=True, spec=plait.EmbeddingSpec(dense=2), language="de") as index,
    ):
        before.setattr("plait.text.fts_table.stemmer_version", lambda: "snowball 0")
        add(index, 100)
        index.compact()
    Store.open(path).writer().close()  # rebuilds the words of the catalogue
    with Store.open(path).snapshot() as snapshot:
        assert bm25_of(snapshot).text_segment is None
    with plait.open(path) as index:
        index.compact()
    with Store.open(path).snapshot() as snapshot:
        assert bm25_of(snapshot).text_segment is not None


def test_a_lone_accent_is_a_word_without_letters(tmp_path: Path) -> None:
    path = tmp_path / "accents"
    with plait.open(path, create=True, spec=plait.EmbeddingSpec(dense=2)) as index:
        documents = [{"id": str(number), "text": f"w{number} \u0301 tea"} for number in range(60)]
        index.add_embeddings(documents, plait.Embeddings(dense=np.ones((60, 2), np.float32)))
        index.compact()
        assert [hit.id for hit in index.search("w7", 3, mode="bm25")] == ["7"]
    assert check(path).ok


def test_a_changed_byte_is_found(path: Path) -> None:
    (file,) = path.glob("segments/*/text_index.plait")
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)
    assert any("text_index.plait" in problem for problem in check(path).problems)


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("counts", 9, "match the counts"),
        ("rows", 5000, "names row 5000"),
        ("docs", 3, "do not ascend"),
        ("offsets", 7, "offsets must ascend"),
    ],
)
def test_invalid_values_are_named(path: Path, name: str, value: int, says: str) -> None:
    (file,) = path.glob("segments/*/text_index.plait")
    opened = SegmentFile.open(file)
    place = next(place for place in opened._entries if place.name == name)
    spoiled = np.frombuffer(opened._data, np.uint8).copy()
    spoiled[place.offset :][: place.nbytes].view(place.dtype)[-1] = value
    opened._data = memoryview(spoiled.data)
    with pytest.raises(CorruptIndexError, match=says):
        words_file.TextIndexFile(opened).check_values(np.arange(1, 401))

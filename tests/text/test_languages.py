"""An index with a language: it is stored, and searches, updates and repairs use it."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

import plait
from plait.embeddings import Embeddings
from plait.errors import ConfigError, CorruptIndexError
from plait.storage.check import check
from plait.storage.repair import repair
from plait.storage.store import Store
from plait.text import fts_table

GERMAN = [
    {"id": "1", "text": "Die Häuser der Altstadt wurden im Krieg zerstört."},
    {"id": "2", "text": "Das Museum zeigt Gemälde aus drei Jahrhunderten.", "title": "Museen"},
    {"id": "3", "text": "東京の博物館は月曜日に休みです。"},
    {"id": "4", "text": "พิพิธภัณฑ์ปิดวันจันทร์"},
]


def german(path: Path) -> plait.Index:
    index = plait.open(path, create=True, spec=plait.EmbeddingSpec(), language="de")
    index.add_embeddings(GERMAN, Embeddings())
    return index


def hit_ids(index: plait.Index, query: str) -> list[str]:
    return [hit.id for hit in index.search(query, 10, mode="bm25")]


def set_meta(path: Path, key: str, value: object) -> None:
    connection = sqlite3.connect(path / "catalogue.sqlite")
    connection.execute("UPDATE meta SET value = ? WHERE key = ?", [value, key])
    connection.commit()
    connection.close()


def test_words_are_found_in_other_forms_and_other_scripts(tmp_path: Path) -> None:
    with german(tmp_path / "index") as index:
        assert hit_ids(index, "Haus") == ["1"]
        assert hit_ids(index, "gemalde") == ["2"]
        assert hit_ids(index, "博物館") == ["3"]
        assert hit_ids(index, "วันจันทร์") == ["4"]


def test_the_language_is_stored_and_another_is_refused(tmp_path: Path) -> None:
    german(tmp_path / "index").close()
    with plait.open(tmp_path / "index") as index:
        assert (hit_ids(index, "Haus"), index.info().language) == (["1"], "de")
    plait.open(tmp_path / "index", language="de-CH").close()
    for other in ("fr", "en"):
        with pytest.raises(ConfigError, match=r"made for the language 'de', but was opened for"):
            plait.open(tmp_path / "index", language=other)


def test_an_index_without_a_language_is_not_opened_for_one(tmp_path: Path) -> None:
    plait.open(tmp_path / "index", create=True, spec=plait.EmbeddingSpec()).close()
    plait.open(tmp_path / "index", language="en").close()  # which it stems
    with pytest.raises(ConfigError, match=r"made without a language, but was opened for 'ru'"):
        plait.open(tmp_path / "index", language="ru")


def test_documents_are_replaced_and_deleted_with_their_stems(tmp_path: Path) -> None:
    with german(tmp_path / "index") as index:
        index.add_embeddings([{"id": "1", "text": "Hier steht nun ein Baum."}], Embeddings())
        index.delete(["2", "3"])
        assert [hit_ids(index, query) for query in ("Haus", "Bäume", "Museum", "博物館")] == [[], ["1"], [], []]
    assert check(tmp_path / "index").problems == []
    connection = sqlite3.connect(tmp_path / "index" / "catalogue.sqlite")
    connection.execute("CREATE VIRTUAL TABLE temp.vocabulary USING fts5vocab (main, words, row)")
    left = {term for (term,) in connection.execute("SELECT term FROM vocabulary")}
    connection.close()
    assert "baum" in left
    assert not left & {"haus", "krieg", "gemald", "博物"}


def test_the_next_writer_rebuilds_stems_of_another_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as before:
        before.setattr("plait.text.analyser.stem_words", lambda text, _: text.lower())  # stems nothing
        before.setattr(fts_table, "stemmer_version", lambda: "snowball 0")
        german(tmp_path / "index").close()
    with plait.open(tmp_path / "index") as index:
        assert "1" not in hit_ids(index, "Hauses")
        index.delete(["4"])
        assert (hit_ids(index, "Hauses"), hit_ids(index, "วันจันทร์")) == (["1"], [])
    assert check(tmp_path / "index").problems == []


def test_a_repair_keeps_the_language(tmp_path: Path) -> None:
    german(tmp_path / "index").close()
    connection = sqlite3.connect(tmp_path / "index" / "catalogue.sqlite")
    connection.execute("INSERT INTO words (words) VALUES ('delete-all')")
    connection.commit()
    connection.close()
    assert repair(tmp_path / "index").n_kept == 4
    with plait.open(tmp_path / "index") as index:
        assert hit_ids(index, "Haus") == ["1"]


@pytest.mark.parametrize(("key", "value"), [("language", "xx"), ("analyser", 0), ("language", None)])
def test_a_damaged_language_is_reported(tmp_path: Path, key: str, value: object) -> None:
    german(tmp_path / "index").close()
    set_meta(tmp_path / "index", key, value)
    with pytest.raises(CorruptIndexError, match="language"):
        Store.open(tmp_path / "index")


def test_explanations_name_the_words_of_the_query(tmp_path: Path) -> None:
    with german(tmp_path / "index") as index:
        (hit,) = index.search("Hauses haus haus", 10, mode="bm25", explain=True)
        assert hit.explanation is not None
        assert hit.explanation.bm25 is not None
        assert [(match.word, match.count) for match in hit.explanation.bm25] == [("haus", 1), ("Hauses", 1)]
        assert sum(match.score for match in hit.explanation.bm25) == pytest.approx(hit.score, rel=1e-5)

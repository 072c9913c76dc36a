"""Opening, adding, deleting and asking through `plait.open`, with every kind of bad input that text can be."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

import plait
import plait.errors
from encoders import WordEncoder
from plait.embeddings import Embeddings
from plait.encode.load import LazyEncoder, find_model
from plait.errors import (
    ConfigError,
    DocumentError,
    EncoderMismatchError,
    InputError,
    ModelError,
    NotAnIndexError,
    QueryError,
)
from plait.evaluate import search_fingerprint


@pytest.fixture
def index(tmp_path: Path) -> plait.Index:
    return plait.open(tmp_path / "index", create=True, encoder=WordEncoder())


def test_added_documents_are_found_after_reopening(tmp_path: Path) -> None:
    with plait.open(tmp_path / "index", create=True, encoder=WordEncoder()) as index:
        index.add([{"id": "1", "text": "Vectors are woven.", "title": "Weaving", "year": 2024}])
    with plait.open(tmp_path / "index", encoder=WordEncoder()) as index:
        hit = index.search("woven vectors", k=5, filter="year >= 2020")[0]
    assert (hit.id, hit.title, hit.text, hit.metadata) == ("1", "Weaving", "Vectors are woven.", {"year": 2024})


def test_a_missing_index_is_created_only_with_create(tmp_path: Path) -> None:
    with pytest.raises(NotAnIndexError):
        plait.open(tmp_path / "nowhere")
    assert not (tmp_path / "nowhere").exists()


def test_an_index_remembers_its_encoder_and_refuses_another(tmp_path: Path) -> None:
    plait.open(tmp_path / "index", create=True, encoder=WordEncoder()).close()
    with pytest.raises(EncoderMismatchError, match=r"built with encoder 'words-16'.*'other-8'"):
        plait.open(tmp_path / "index", encoder=WordEncoder(dim=8, name="other"))


def test_an_index_does_not_load_a_model_folder_that_only_it_names(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    shutil.copytree(find_model(), folder)
    with plait.open(tmp_path / "index", create=True, model=folder) as index:
        index.add([{"id": "a", "text": "a loom"}])
    (folder / "plait.json").write_text("not even read")
    with plait.open(tmp_path / "index") as index:
        assert [hit.id for hit in index.search("loom", mode="bm25")] == ["a"]
        assert index.info().documents == 1
        index.delete(["a"])
        for use in (lambda: index.search("loom"), lambda: index.add([{"id": "b", "text": "a shuttle"}])):
            with pytest.raises(ModelError, match=r"names the model .*/model'.*pass model=.*--model .*if you trust it"):
                use()
    shutil.copy(find_model() / "plait.json", folder / "plait.json")
    with plait.open(tmp_path / "index", model=folder) as index:
        index.add([{"id": "b", "text": "a shuttle"}])
        assert [hit.id for hit in index.search("shuttle")] == ["b"]


@pytest.mark.parametrize("model", ["../plait-small", "/", "", ["plait-small"], {"a": 1}, 7, "x" * 100_000])
def test_a_model_name_that_nobody_installed_is_not_a_path(tmp_path: Path, model: object) -> None:
    source = LazyEncoder(None, None, precision=None, n_threads=1)
    source.bind(tmp_path, fingerprint="x", model=model)
    with pytest.raises(ModelError, match="if you trust it"):
        source.get()


def test_only_one_source_of_vectors_may_be_given(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="give one of"):
        plait.open(tmp_path / "index", create=True, encoder=WordEncoder(), spec=plait.EmbeddingSpec(dense=4))


def test_adding_reports_what_is_new_changed_and_unchanged(index: plait.Index) -> None:
    index.add([{"id": "a", "text": "one"}, {"id": "b", "text": "two"}])
    report = index.add([{"id": "a", "text": "one"}, {"id": "b", "text": "two!"}, {"id": "c", "text": "three"}])
    assert (report.added, report.updated, report.unchanged) == (1, 1, 1)
    assert len(index) == 3


def test_unchanged_documents_are_not_encoded_again(tmp_path: Path) -> None:
    encoder = WordEncoder()
    with plait.open(tmp_path / "index", create=True, encoder=encoder) as index:
        index.add([{"id": "a", "text": "one"}])
        index.add([{"id": "a", "text": "one"}])
    assert encoder.n_encoded == 1


def test_the_last_of_repeated_ids_wins_and_the_report_says_so(index: plait.Index) -> None:
    report = index.add([{"id": "a", "text": "first"}, {"id": "b", "text": "other"}, {"id": "a", "text": "second"}])
    assert report.repeated == ["a"]
    assert index.search("second", k=1, mode="bm25")[0].text == "second"
    assert len(index) == 2


def test_a_generator_of_documents_is_committed_batch_by_batch(index: plait.Index) -> None:
    seen = []
    index.add(
        ({"id": str(n), "text": f"number {n}"} for n in range(25)),
        commit_every=10,
        on_progress=lambda progress: seen.append((progress.documents, progress.committed)),
    )
    assert seen == [(10, 0), (10, 10), (20, 10), (20, 20), (25, 20), (25, 25)]


def test_an_error_in_the_middle_keeps_the_batches_before_it(index: plait.Index) -> None:
    good = [{"id": str(n), "text": f"number {n}"} for n in range(15)]
    with pytest.raises(DocumentError):
        index.add([*good, {"id": "bad", "text": ""}], commit_every=10)
    assert len(index) == 10


def test_deleted_documents_are_not_found(index: plait.Index) -> None:
    index.add([{"id": "a", "text": "apple"}, {"id": "b", "text": "bread"}])
    assert index.delete(["a", "nobody"]) == 1
    assert [hit.id for hit in index.search("apple", k=10)] == ["b"]


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({"id": "a", "text": ""}, "blank"),
        ({"id": "a", "text": "  \n\t "}, "blank"),
        ({"id": 7, "text": "x"}, "string"),
        ({"id": None, "text": "x"}, "string"),
        ({"id": "", "text": "x"}, "empty"),
        ({"text": "x"}, "id"),
        ({"id": "a"}, "text"),
        ({"id": "a", "text": "nul \0 here"}, "NUL"),
        ({"id": "a", "text": "lone \ud800 surrogate"}, "surrogate"),
        ({"id": "a\ud800", "text": "x"}, "surrogate"),
        ({"id": "a", "text": b"bytes"}, "text"),
        ({"id": "a", "text": "x", "score": float("nan")}, "NaN|nan"),
        ("just a string", "document"),
    ],
)
def test_a_bad_document_is_refused_and_nothing_is_lost(index: plait.Index, document: Any, message: str) -> None:
    index.add([{"id": "kept", "text": "kept text"}])
    with pytest.raises(DocumentError, match=message):
        index.add([document])
    assert [hit.id for hit in index.search("kept")] == ["kept"]


@pytest.mark.parametrize(
    ("query", "message"), [("", "empty"), ("   ", "empty"), (None, "must be text"), ("\ud800", "surrogate")]
)
def test_a_bad_query_is_refused(index: plait.Index, query: Any, message: str) -> None:
    with pytest.raises(QueryError, match=message):
        index.search(query)


def test_a_query_of_punctuation_or_nul_finds_something_or_nothing_but_does_not_fail(index: plait.Index) -> None:
    index.add([{"id": "a", "text": "apple"}])
    for query in ["?!", '" OR "', "a\0b", "*", "NEAR(", "'; drop table documents; --"]:
        index.search(query)
    assert len(index) == 1


def test_a_single_document_or_id_outside_a_list_is_refused(index: plait.Index) -> None:
    with pytest.raises(ConfigError, match="list"):
        index.add(cast(Any, {"id": "a", "text": "x"}))
    with pytest.raises(ConfigError, match="list"):
        index.delete("a")


def test_a_document_of_ten_megabytes_is_found_by_its_passage(tmp_path: Path) -> None:
    words = "lorem ipsum dolor sit amet " * 400_000
    text = words[:5_000_000] + " a heron stands on the lake " + words[:5_000_000]
    with plait.open(tmp_path / "index", create=True, encoder=WordEncoder(dim=8, window=2000, overlap=100)) as index:
        index.add([{"id": "huge", "text": text}])
        hit = index.search("heron lake", mode="multi")[0]
    assert hit.id == "huge"
    assert "heron stands on the lake" in hit.passage


def test_an_index_of_embeddings_has_no_encoder_for_texts(tmp_path: Path) -> None:
    with plait.open(tmp_path / "index", create=True, spec=plait.EmbeddingSpec(dense=3)) as index:
        index.add_embeddings(
            [{"id": "x", "text": "first"}, {"id": "y", "text": "second"}],
            Embeddings(dense=np.eye(2, 3, dtype=np.float32)),
        )
        assert index.search_embeddings(Embeddings(dense=np.eye(1, 3, dtype=np.float32)), mode="dense")[0][0].id == "x"
        assert index.search("second", mode="bm25")[0].id == "y"
        with pytest.raises(ConfigError, match="made elsewhere"):
            index.search("second", mode="dense")


def test_embeddings_of_the_wrong_shape_are_refused(tmp_path: Path) -> None:
    with plait.open(tmp_path / "index", create=True, spec=plait.EmbeddingSpec(dense=3)) as index:
        with pytest.raises(InputError):
            index.add_embeddings([{"id": "x", "text": "t"}], Embeddings(dense=np.ones((1, 4), np.float32)))
        with pytest.raises(InputError):
            index.add_embeddings([{"id": "x", "text": "t"}], Embeddings(dense=np.ones((2, 3), np.float32)))
        with pytest.raises(InputError):
            index.add_embeddings([{"id": "x", "text": "t"}], Embeddings(dense=np.full((1, 3), np.nan, np.float32)))
        assert len(index) == 0


def test_refresh_shows_what_another_handle_wrote(tmp_path: Path) -> None:
    first = plait.open(tmp_path / "index", create=True, encoder=WordEncoder())
    second = plait.open(tmp_path / "index", encoder=WordEncoder())
    assert second.search("apple") == []
    first.add([{"id": "a", "text": "apple"}])
    assert second.search("apple") == []
    second.refresh()
    assert [hit.id for hit in second.search("apple")] == ["a"]


def test_the_search_fingerprint_changes_with_writes_and_modes(tmp_path: Path) -> None:
    with plait.open(tmp_path / "index", create=True, encoder=WordEncoder()) as index:
        index.add([{"id": "a", "text": "one"}])
        before = search_fingerprint(index, mode="bm25")
        assert before != search_fingerprint(index, mode="hybrid")
        index.add([{"id": "b", "text": "two"}])
        after = search_fingerprint(index, mode="bm25")
        assert before != after
    with plait.open(tmp_path / "index", encoder=WordEncoder(), read_only=True) as again:
        assert search_fingerprint(again, mode="bm25") == after
        with pytest.raises(ConfigError, match="no mode"):
            search_fingerprint(again, mode="nonsense")


def test_the_search_fingerprint_changes_with_the_default_weights(
    index: plait.Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = search_fingerprint(index, mode="hybrid")
    monkeypatch.setattr("plait.search.hybrid.DEFAULT_WEIGHTS", {"dense": 0.3, "multi": 1.0, "bm25": 0.1})
    assert search_fingerprint(index, mode="hybrid") != before


def test_documents_are_deleted_by_a_filter_and_small_segments_merged(index: plait.Index) -> None:
    for number in range(20):
        index.add([{"id": f"n{number}", "text": f"number {number}", "n": number}])
    assert index.info().segments < 8
    assert index.delete(filter="n >= 5 and n < 15") == 10
    assert {hit.id for hit in index.search("number", k=50, mode="bm25")} == {
        f"n{n}" for n in (*range(5), *range(15, 20))
    }
    with pytest.raises(ConfigError, match="one of the two"):
        index.delete()
    with pytest.raises(ConfigError, match="one of the two"):
        index.delete(["n1"], filter="n = 1")
    assert index.info().deleted_passages <= 10


def test_merging_can_be_turned_off(index: plait.Index) -> None:
    before = index.info().segments
    for number in range(20):
        index.add([{"id": f"n{number}", "text": f"number {number}"}], merge=False)
    assert index.info().segments == before + 20


def test_create_makes_a_new_index_and_open_opens_one_that_exists(tmp_path: Path) -> None:
    path = tmp_path / "index"
    with pytest.raises(NotAnIndexError):
        plait.Index.open(path)
    with plait.Index.create(path, encoder=WordEncoder()) as index:
        index.add([{"id": "a", "text": "one"}])
    with pytest.raises(plait.StoreError, match="holds an index already"):
        plait.Index.create(path, encoder=WordEncoder())
    with plait.Index.open(path, encoder=WordEncoder(), read_only=True) as index:
        assert len(index) == 1


def test_every_error_is_exported() -> None:
    errors = {name for name, value in vars(plait.errors).items() if isinstance(value, type)}
    assert errors <= set(plait.__all__)

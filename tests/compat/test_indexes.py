"""Indexes behind the compatible classes: written, changed, opened again, compressed, and searched."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import plait
from compat.calls import CHECKPOINTS, short_texts, texts
from compat.conftest import Converted, origin
from convert.parity import golden_of, same_best
from plait.compat import compression
from plait.compat.pylate import indexes, models, rank, retrieve
from plait.compat.ragatouille import RAGPretrainedModel
from plait.errors import ConfigError, ModelError

DOCUMENTS = ["A loom weaves cloth.", "Bread is baked in an oven.", "A kiln fires clay pots."]
STORED = 0.02  # of scores, because vectors are stored as float16
QUERY = "how is cloth made"


@pytest.fixture(scope="module")
def model() -> models.ColBERT:
    return models.ColBERT("plait-small")


def test_the_best_documents_of_plaid_are_those_of_the_golden_outputs(converted: Converted, tmp_path: Path) -> None:
    """All texts of the checkpoint, against MaxSim as PyLate computed it."""
    both = json.loads((CHECKPOINTS / "texts.json").read_text(encoding="utf-8"))
    colbert = models.ColBERT(converted("pylate-bert"))
    index = indexes.PLAID(str(tmp_path), override=True)
    index.add_documents(list(range(len(both["documents"]))), colbert.encode(both["documents"], is_query=False))
    queries = colbert.encode(both["queries"], is_query=True)
    results = retrieve.ColBERT(index=index).retrieve(queries, k=len(both["documents"]))
    for expected, hits in zip(golden_of("pylate-bert").arrays["multi.scores"], results, strict=True):
        scores = np.zeros(len(expected))
        for hit in hits:
            scores[int(hit["id"])] = hit["score"]
        np.testing.assert_allclose(scores, expected, atol=0.02)
        assert same_best(np.round(expected, 2), scores)


def test_an_index_is_changed_and_opened_again(model: models.ColBERT, tmp_path: Path) -> None:
    rows, query = model.encode(DOCUMENTS, is_query=False), model.encode([QUERY])
    index = indexes.PLAID(str(tmp_path), "crafts", override=True)
    assert index.add_documents(["loom", "oven", "kiln"], rows) is index
    assert index(query, k=2)[0][0]["id"] == "loom"
    assert [hit["id"] for hit in index(query, k=2, subset=["oven", "gone"])[0]] == ["oven"]
    assert index([query[0], query[0]], k=1, subset=[["kiln"], []])[1] == []
    index.remove_documents(["loom", "no such id"])
    assert "loom" not in [hit["id"] for hit in index(query)[0]]
    index.update_documents(["oven"], [rows[0]])
    reopened = indexes.PLAID(str(tmp_path), "crafts")
    assert reopened(query)[0] == index(query)[0]
    assert reopened(query)[0][0]["id"] == "oven"
    np.testing.assert_allclose(reopened.get_documents_embeddings([["oven"]])[0][0], rows[0], atol=1e-3)
    with plait.open(tmp_path / "crafts") as stored:
        assert len(stored) == 2


def test_numbers_stay_numbers_and_both_indexes_agree(model: models.ColBERT, tmp_path: Path) -> None:
    rows, query = model.encode(DOCUMENTS, is_query=False), model.encode(QUERY)
    plaid = indexes.PLAID(str(tmp_path), "plaid").add_documents(range(3), rows)
    voyager = indexes.Voyager(str(tmp_path), "voyager").add_documents([0, 1, 2], rows, batch_size=2)
    results = [retrieve.ColBERT(index).retrieve(query, k=3) for index in (plaid, voyager)]
    assert results[0] == results[1]
    exact = rank.rerank([[0, 1, 2]], [query], [rows])
    assert [hit["id"] for hit in results[0][0]] == [hit["id"] for hit in exact[0]]


def test_xtr_scores_by_the_vectors_that_were_retrieved(model: models.ColBERT, tmp_path: Path) -> None:
    rows, query = model.encode(DOCUMENTS, is_query=False), model.encode(QUERY)
    voyager = indexes.Voyager(str(tmp_path), "voyager", embedding_size=rows[0].shape[1])
    retriever = retrieve.XTR(voyager.add_documents(["loom", "oven", "kiln"], rows))
    (exact,) = rank.rerank([["loom", "oven", "kiln"]], [query], [rows])
    (every,) = retriever.retrieve(query, k=3)  # more vectors than there are, so that no score is imputed
    assert [hit["id"] for hit in every] == [hit["id"] for hit in exact]
    np.testing.assert_allclose([hit["score"] for hit in every], [hit["score"] for hit in exact], atol=STORED)
    (few,) = retriever.retrieve(query, k=3, k_token=4)
    best = [np.sort(query @ item.T, axis=1)[:, ::-1] for item in rows]
    fourth = np.sort(np.concatenate(best, axis=1), axis=1)[:, -4]
    expected = {
        id: float(np.maximum(item[:, 0], fourth).sum()) for id, item in zip(("loom", "oven", "kiln"), best, strict=True)
    }
    assert {hit["id"]: hit["score"] for hit in few} == pytest.approx(
        {hit["id"]: expected[str(hit["id"])] for hit in few}, abs=STORED
    )
    full = {hit["id"]: hit["score"] for hit in every}
    assert any(hit["score"] > full[hit["id"]] + STORED for hit in few)  # what was imputed is more
    with pytest.raises(ConfigError, match=r"subset.*use retrieve\.ColBERT"):
        retriever.retrieve(query, subset=["loom"])
    plaid = indexes.PLAID(str(tmp_path), "plaid").add_documents(["loom", "oven", "kiln"], rows)
    assert retrieve.XTR(plaid).retrieve(query, k=2) == retrieve.ColBERT(plaid).retrieve(query, k=2)


def test_many_vectors_are_compressed_to_nbits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compression, "MIN_COMPRESSED_VECTORS", 2000)
    random = np.random.default_rng(0)
    rows = random.standard_normal((120, 40, 32)).astype(np.float32)
    rows /= np.linalg.norm(rows, axis=2, keepdims=True)
    index = indexes.PLAID(str(tmp_path), nbits=2)
    index.add_documents([str(n) for n in range(40)], list(rows[:40]))
    with plait.open(tmp_path / "colbert") as stored:
        assert stored.snapshot.segments[0].coded is None
    index.add_documents([str(n) for n in range(40, 120)], list(rows[40:]))
    with plait.open(tmp_path / "colbert") as stored:
        (segment,) = stored.snapshot.segments
        assert segment.coded is not None
        assert segment.coded.codec.bits == 2
    hits = index(list(rows[:20]), k=1)
    assert [one[0]["id"] for one in hits] == [str(n) for n in range(20)]
    wide = indexes.PLAID(str(tmp_path), n_ivf_probe=2, n_full_scores=5)
    assert wide(list(rows[:1]), k=1)[0][0]["id"] == "0"


def test_ragatouille_makes_changes_and_finds_its_index(tmp_path: Path) -> None:
    rag = RAGPretrainedModel.from_pretrained("plait-small", index_root=str(tmp_path))
    path = rag.index(DOCUMENTS, ["loom", "oven", "kiln"], [{"n": n} for n in range(3)], index_name="crafts")
    (first, *_) = rag.search(QUERY, k=2)
    assert first == {
        "content": DOCUMENTS[0],
        "score": pytest.approx(first["score"]),
        "rank": 1,
        "document_id": "loom",
        "passage_id": 0,
        "document_metadata": {"n": 0},
    }
    both = rag.search([QUERY, "pots"], k=1, zero_index_ranks=True)
    assert [[hit["document_id"], hit["rank"]] for (hit,) in both] == [["loom", 0], ["kiln", 0]]
    assert [hit["document_id"] for hit in rag.search(QUERY, doc_ids=["oven", 'no "such" id'])] == ["oven"]
    rag.add_to_index(["Silk is cloth of silkworms.", "ignored"], ["silk", "loom"])
    rag.delete_from_index(["loom"])
    reopened = RAGPretrainedModel.from_index(path)
    assert [hit["document_id"] for hit in reopened.search(QUERY, k=1)] == ["silk"]
    assert "document_metadata" not in reopened.search(QUERY, k=1)[0]
    other = RAGPretrainedModel.from_pretrained("plait-small", index_root=str(tmp_path))
    assert len(other.search(QUERY, index_name="crafts")) == 3
    with pytest.raises(ConfigError, match="overwrite_index is False"):
        other.index(DOCUMENTS, index_name="crafts", overwrite_index=False)


def test_long_documents_become_passages_and_functions_of_the_caller_are_used(tmp_path: Path) -> None:
    rag = RAGPretrainedModel.from_pretrained("plait-small", index_root=str(tmp_path))
    long = " ".join(f"Sentence number {n} is about looms." for n in range(40))
    rag.index([long], ["long"], index_name="long", max_document_length=64)
    contents = [hit["content"] for hit in rag.search("looms", k=50)]
    assert len(contents) > 3
    assert all(content.startswith("Sentence") and content.endswith("looms.") for content in contents)

    def halves(documents: list[str], document_ids: list[str], chunk_size: int) -> list[dict[str, str]]:
        assert chunk_size == 256
        parts = [(text[: len(text) // 2], text[len(text) // 2 :]) for text in documents]
        return [
            {"document_id": id, "content": one} for id, both in zip(document_ids, parts, strict=True) for one in both
        ]

    def upper(parts: Any, document_ids: list[str]) -> Any:
        assert document_ids == ["long"]
        return [{**part, "content": part["content"].upper()} for part in parts]

    rag.index([long], ["long"], index_name="halves", document_splitter_fn=halves, preprocessing_fn=upper)
    assert sorted(hit["content"] for hit in rag.search("looms")) == sorted(
        [long[: len(long) // 2].upper(), long[len(long) // 2 :].upper()]
    )


def test_the_best_passages_of_ragatouille_are_those_of_its_origin(converted: Converted, tmp_path: Path) -> None:
    """A search in the index against the scores that RAGatouille computed in memory."""
    rag = RAGPretrainedModel.from_pretrained(converted("stanford"), index_root=str(tmp_path))
    documents = short_texts()
    rag.index(documents, [str(n) for n in range(len(documents))], index_name="golden")
    expected = origin("ragatouille")["results"]["all"]["list"]
    for query, ranked in zip(texts()[0], expected, strict=True):
        best = [hit["dict"] for hit in ranked["list"]]
        results = rag.search(query, k=len(documents))
        assert [result["rank"] for result in results] == list(range(1, len(documents) + 1))
        given = {int(result["document_id"]): result["score"] for result in results}
        scores = [hit["score"]["number"] for hit in best]
        np.testing.assert_allclose([given[hit["result_index"]] for hit in best], scores, atol=STORED)
    with pytest.raises(ModelError, match="from_pretrained"):
        RAGPretrainedModel.from_index(tmp_path / "colbert" / "indexes" / "golden")


def test_a_local_checkpoint_is_converted_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLAIT_HOME", str(tmp_path))
    settings: dict[str, Any] = {"model_kwargs": {"dtype": "float32"}}
    first = models.ColBERT(str(CHECKPOINTS / "pylate-bert"), **settings).encode(QUERY)

    def convert_again(*_: object, **__: object) -> None:
        raise AssertionError("converted twice")

    monkeypatch.setattr("plait.convert.convert.convert", convert_again)
    again = models.ColBERT(str(CHECKPOINTS / "pylate-bert"), **settings).encode(QUERY)
    np.testing.assert_array_equal(first, again)


def test_nothing_imports_torch() -> None:
    code = (
        "import sys; from plait.compat import flagembedding, pylate, ragatouille; "
        "pylate.models.ColBERT('plait-small').encode('a'); print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"

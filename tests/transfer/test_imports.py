"""Indexes that other libraries wrote (make_fixtures has the scripts) become plait indexes."""

from __future__ import annotations

import json
import pickle
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from numpy.typing import NDArray

import plait
from plait.encode.load import load_model
from plait.errors import ConfigError, EncoderMismatchError, SourceError
from plait.transfer import ImportOptions, import_index
from transfer.conftest import FIXTURES
from transfer.make_fixtures.corpus import QUERIES, dense_vector, documents, multi_vectors, sparse_vector
from transfer.same import by_id, imported

CORPUS = documents()


def maxsim(query: NDArray[np.float32], vectors: NDArray[np.floating]) -> float:
    return float((query @ vectors.astype(np.float32).T).max(axis=1).sum())


@pytest.mark.parametrize(
    ("name", "n_documents"), [("fast-plaid", 120), ("fast-plaid-searched", 120), ("fast-plaid-small", 20)]
)
def test_vectors_and_fields_of_fast_plaid_come_along(tmp_path: Path, name: str, n_documents: int) -> None:
    batch = imported(FIXTURES / name, tmp_path / "new", id_field="name")
    assert [one.id for one in batch.documents] == [one["id"] for one in CORPUS[:n_documents]]
    assert [one.text for one in batch.documents] == [one["text"] for one in CORPUS[:n_documents]]
    assert batch.documents[3].metadata == {"year": 1993}
    for id, vectors in by_id(batch, "multi").items():
        given = multi_vectors(str(CORPUS[int(id.split("-")[1])]["text"]))
        assert vectors.shape == given.shape
        assert np.einsum("ij,ij->i", vectors.astype(np.float32), given).mean() > 0.9


def test_scores_are_those_that_fast_plaid_gave(tmp_path: Path) -> None:
    vectors = by_id(imported(FIXTURES / "fast-plaid-searched", tmp_path / "new", id_field="name"), "multi")
    for query, hits in zip(QUERIES, json.loads((FIXTURES / "fast-plaid-searched.hits.json").read_text()), strict=True):
        scores = {id: maxsim(multi_vectors(query), item) for id, item in vectors.items()}
        for number, score in hits:
            assert scores[f"doc-{number}"] == pytest.approx(score, abs=5e-3)


def test_the_best_of_warp_stays_the_best(tmp_path: Path) -> None:
    vectors = by_id(imported(FIXTURES / "warp", tmp_path / "new"), "multi")
    assert len(vectors) == len(CORPUS)
    for query, hits in zip(QUERIES, json.loads((FIXTURES / "warp.hits.json").read_text()), strict=True):
        scores = {id: maxsim(multi_vectors(query), item) for id, item in vectors.items()}
        ranked = sorted(scores, key=lambda id: -scores[id])
        assert len({str(number) for number, _ in hits} & set(ranked[:10])) >= 8
        number, score = hits[0]
        assert scores[str(number)] == pytest.approx(score, abs=2e-2)


def test_a_compressed_source_is_coded_again_with_its_bits(tmp_path: Path) -> None:
    report = import_index(FIXTURES / "fast-plaid", tmp_path / "new", options=ImportOptions(id_field="name"))
    assert report.bits == 4
    assert report.mean_cosine is not None
    assert report.mean_cosine > 0.98
    with plait.open(tmp_path / "new") as index:
        assert index.search(str(CORPUS[8]["text"]), mode="bm25")[0].id == "doc-8"


def test_a_fast_plaid_index_with_additions_and_deletions(tmp_path: Path) -> None:
    """Documents that were added later are in a buffer too, a pickle, which is not read."""
    vectors = by_id(imported(FIXTURES / "fast-plaid-updated", tmp_path / "new", id_field="name"), "multi")
    assert list(vectors) == [f"doc-{number}" for number in range(90) if number not in (0, 5, 61)]
    for number in (1, 60, 89):
        given = multi_vectors(str(CORPUS[number]["text"]))
        assert np.einsum("ij,ij->i", vectors[f"doc-{number}"].astype(np.float32), given).mean() > 0.9


def test_a_plaid_index_of_several_chunks_has_its_vectors(tmp_path: Path) -> None:
    batch = imported(FIXTURES / "plaid", tmp_path / "new")
    vectors = by_id(batch, "multi")
    assert list(vectors) == [str(number) for number in range(len(CORPUS))]
    for number, one in enumerate(CORPUS):
        given = multi_vectors(str(one["text"]))
        assert np.einsum("ij,ij->i", vectors[str(number)].astype(np.float32), given).mean() > 0.85  # 2 bits
    with pytest.raises(plait.PlaitError, match=r"example/words-32"), plait.open(tmp_path / "new") as index:
        index.search("loom", mode="multi")


def test_scores_are_those_that_plaid_gave(tmp_path: Path) -> None:
    vectors = by_id(imported(FIXTURES / "plaid", tmp_path / "new"), "multi")
    for query, hits in zip(QUERIES, json.loads((FIXTURES / "plaid.hits.json").read_text()), strict=True):
        scores = {id: maxsim(multi_vectors(query), item) for id, item in vectors.items()}
        for number, score in hits:
            assert scores[str(number)] == pytest.approx(score, abs=5e-3)


def test_texts_of_ragatouille_come_along(tmp_path: Path) -> None:
    """RAGatouille adds three JSON files to a PLAID index."""
    folder = tmp_path / "plaid"
    shutil.copytree(FIXTURES / "plaid", folder)
    owners = {str(number): one["id"] for number, one in enumerate(CORPUS)} | {"1": "doc-0"}
    (folder / "collection.json").write_text(json.dumps([one["text"] for one in CORPUS]))
    (folder / "pid_docid_map.json").write_text(json.dumps(owners))
    (folder / "docid_metadata_map.json").write_text(json.dumps({"doc-0": {"year": 1990}}))
    batch = imported(folder, tmp_path / "new")
    assert [one.id for one in batch.documents[:3]] == ["doc-0", "doc-0#1", "doc-2"]
    assert batch.documents[1].metadata == {"year": 1990, "document_id": "doc-0"}
    assert batch.documents[2].text == CORPUS[2]["text"]


@pytest.mark.parametrize(("name", "step"), [("flat-ip", 1), ("ivf", 10), ("idmap", 10)])
def test_faiss_files_give_their_vectors_back(tmp_path: Path, name: str, step: int) -> None:
    vectors = by_id(imported(FIXTURES / f"{name}.faiss", tmp_path / "new"), "dense")
    assert len(vectors) == len(CORPUS)
    for number, one in enumerate(CORPUS):
        stored = vectors[str(number * step + (5 if step > 1 else 0))]
        assert np.allclose(stored, dense_vector(str(one["text"])), atol=1e-3)


def test_texts_are_matched_by_position_and_l2_is_noted(tmp_path: Path) -> None:
    lines = [json.dumps({"id": one["id"], "text": one["text"]}) for one in CORPUS]
    (tmp_path / "corpus.jsonl").write_text("\n".join(lines) + "\n")
    report = import_index(FIXTURES / "flat-l2.faiss", tmp_path / "new", texts=tmp_path / "corpus.jsonl")
    assert "L2 distance" in " ".join(report.notes)
    with plait.open(tmp_path / "new") as index:
        assert [one.id for one in index] == [one["id"] for one in CORPUS]
    (tmp_path / "short.jsonl").write_text("\n".join(lines[:9]) + "\n")
    with pytest.raises(SourceError, match="positions cannot match"):
        import_index(FIXTURES / "flat-l2.faiss", tmp_path / "third", texts=tmp_path / "short.jsonl")
    assert not (tmp_path / "third").exists()


def test_a_qdrant_folder_has_all_kinds_of_vectors(tmp_path: Path) -> None:
    batch = imported(FIXTURES / "qdrant", tmp_path / "new", collection="mixed", id_field=None)
    assert len(batch.documents) == 12
    texts = {document.id: document.text for document in batch.documents}
    for id, vector in by_id(batch, "dense").items():
        assert np.allclose(vector, dense_vector(texts[id]), atol=1e-3)
    for id, (terms, weights) in by_id(batch, "sparse").items():
        given = sparse_vector(texts[id])
        step = max(given.values()) / 255  # plait stores the weights of a passage in 8 bits
        assert dict(zip(terms.tolist(), weights.tolist(), strict=True)) == pytest.approx(given, abs=step / 2)
    for id, vectors in by_id(batch, "multi").items():
        assert np.allclose(vectors, multi_vectors(texts[id]), atol=1e-3)
    assert {document.metadata["year"] for document in batch.documents} == set(range(1990, 2002))
    with pytest.raises(ConfigError, match="2 collections"):
        import_index(FIXTURES / "qdrant", tmp_path / "other")


def sparse_table(file: Path, items: list[dict[int, float]], texts: list[str]) -> None:
    kind = pa.struct({"indices": pa.list_(pa.int64()), "values": pa.list_(pa.float32())})
    vectors = [{"indices": list(item), "values": list(item.values())} for item in items]
    pa.parquet.write_table(pa.table({"text": texts, "terms": pa.array(vectors, kind)}), file)


def test_hashed_terms_may_have_any_number(tmp_path: Path) -> None:
    """BM25 of fastembed, which Qdrant's users have, makes terms of 31 bits."""
    items = [{7: 1.0, 2**31 - 2: 0.5}, {1_500_000_000: 1.0}]
    sparse_table(tmp_path / "in.parquet", items, ["a", "b"])
    lines = [json.dumps({"id": str(n), "vector": item}) + "\n" for n, item in enumerate(items)]
    (tmp_path / "in.jsonl").write_text("".join(lines))
    for source in ("in.parquet", "in.jsonl"):
        report = import_index(tmp_path / source, tmp_path / f"{source}-index")
        assert "to search them with texts, import with --model" in " ".join(report.notes)
        with plait.open(tmp_path / f"{source}-index") as index:
            query = plait.Embeddings(sparse=plait.SparseVectors.from_items([{2**31 - 2: 1.0}]))
            assert [hit.id for hit in index.search_embeddings(query, mode="sparse")[0]] == ["0"]


def test_a_model_is_compared_with_sparse_vectors_and_names_their_vocabulary(tmp_path: Path) -> None:
    texts = [str(one["text"]) for one in CORPUS[:8]]
    encoder = load_model("plait-small")
    vectors = encoder.encode_documents(texts).sparse
    assert vectors is not None
    items = [dict(zip(*(part.tolist() for part in vectors[item]), strict=True)) for item in range(len(texts))]
    sparse_table(tmp_path / "right.parquet", items, texts)
    report = import_index(tmp_path / "right.parquet", tmp_path / "new", model="plait-small")
    assert report.model_cosine == pytest.approx(1, abs=1e-3)
    with plait.open(tmp_path / "new") as index:
        assert index.spec.sparse == encoder.spec.sparse
        assert index.search(texts[5], k=1, mode="sparse")[0].id == "5"
    sparse_table(tmp_path / "wrong.parquet", items[::-1], texts)
    with pytest.raises(EncoderMismatchError, match="plait-small did not make these vectors"):
        import_index(tmp_path / "wrong.parquet", tmp_path / "other", model="plait-small")


def test_a_chroma_collection_is_read_from_the_queue(tmp_path: Path) -> None:
    batch = imported(FIXTURES / "chroma", tmp_path / "new", collection="passages")
    assert [one.id for one in batch.documents] == [one["id"] for one in CORPUS[:12]]
    assert batch.documents[2].text == CORPUS[2]["text"]
    assert batch.documents[2].metadata == {"year": 1992, "tag": CORPUS[2]["tag"]}
    for number, vector in enumerate(by_id(batch, "dense").values()):
        assert np.allclose(vector, dense_vector(str(CORPUS[number]["text"])), atol=1e-3)


def test_a_chroma_collection_is_read_from_its_segment_and_later_writes(tmp_path: Path) -> None:
    vectors = by_id(imported(FIXTURES / "chroma", tmp_path / "new", collection="written"), "dense")
    assert set(vectors) == {f"x{number}" for number in range(70)} - {"x3", "x65"}
    assert vectors["x5"].tolist() == [9, 9, 9]
    assert vectors["x44"].tolist() == [44, 1, 0.5]


def test_ids_of_pylate_come_along(tmp_path: Path) -> None:
    shutil.copytree(FIXTURES / "fast-plaid", tmp_path / "pylate" / "fast_plaid_index")
    ids = {number: f"my-{number}" for number in range(120) if number != 4}
    (tmp_path / "pylate" / "plaid_ids_to_documents_ids.pkl").write_bytes(pickle.dumps(ids))
    batch = imported(tmp_path / "pylate", tmp_path / "new")
    assert [one.id for one in batch.documents] == list(ids.values())


def test_a_folder_of_no_known_format_is_refused(tmp_path: Path) -> None:
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "a.bin").write_bytes(b"x")
    with pytest.raises(SourceError, match=r"no format that plait recognizes. It has a\.bin"):
        import_index(tmp_path / "source", tmp_path / "new")
    with pytest.raises(ConfigError, match="no format 'excel'"):
        import_index(tmp_path / "source", tmp_path / "new", form="excel")

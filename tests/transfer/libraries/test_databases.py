"""Collections that other databases write and read themselves: LanceDB, Qdrant, Chroma and faiss."""

from __future__ import annotations

import json
import shutil
import struct
from pathlib import Path

import chromadb
import faiss
import lancedb
import numpy as np
import pytest
import seismic
from qdrant_client import QdrantClient, models

import plait
from plait.errors import SourceError, StoreError
from plait.transfer import export_index, import_index
from transfer.conftest import FIXTURES, make_index
from transfer.make_fixtures.corpus import dense_vector, documents, multi_vectors
from transfer.same import assert_same, by_id, imported, passages

CORPUS = documents()


def test_a_lancedb_table_loses_nothing(tmp_path: Path) -> None:
    with make_index(tmp_path / "index") as index:
        export_index(index, tmp_path / "lance", form="lancedb", collection="passages")
        with pytest.raises(StoreError, match="has a table 'passages' already"):
            export_index(index, tmp_path / "lance", form="lancedb", collection="passages")
        import_index(tmp_path / "lance", tmp_path / "again")
        with plait.open(tmp_path / "again") as again:
            assert_same(index, again)
            assert again.spec == index.spec
        query = passages(index).embeddings.dense
    assert query is not None
    hits = lancedb.connect(str(tmp_path / "lance")).open_table("passages").search(query[3], "dense").limit(3).to_list()
    assert hits[0]["_distance"] == pytest.approx(0, abs=1e-5)


def test_a_lancedb_table_of_its_own_has_dense_and_multi_vectors(tmp_path: Path) -> None:
    batch = imported(FIXTURES / "lancedb", tmp_path / "new")
    assert [one.id for one in batch.documents] == [one["id"] for one in CORPUS[:12]]
    for number, vectors in enumerate(by_id(batch, "multi").values()):
        assert np.allclose(vectors, multi_vectors(str(CORPUS[number]["text"])), atol=1e-3)
    assert batch.documents[0].metadata == {"year": 1990}
    table = imported(FIXTURES / "lancedb" / "passages.lance", tmp_path / "table")
    assert table.documents == batch.documents


def test_a_damaged_lancedb_table_is_refused(tmp_path: Path) -> None:
    """One that ends a thread of LanceDB's own code, and others."""
    shutil.copytree(FIXTURES / "lancedb", tmp_path / "lance")
    (manifest,) = (tmp_path / "lance").rglob("*.manifest")
    raw = manifest.read_bytes()
    for change in (struct.pack("<I", 303_762_283) + raw[4:], raw[: len(raw) // 2], b"", raw[:-16] + bytes(16)):
        manifest.write_bytes(change)
        with pytest.raises(SourceError, match="damaged"):
            import_index(tmp_path / "lance", tmp_path / "new")
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["lance"]


def test_a_local_qdrant_collection_loses_nothing(tmp_path: Path) -> None:
    with make_index(tmp_path / "index") as index:
        export_index(index, tmp_path / "qdrant", form="qdrant", collection="docs")
        with pytest.raises(StoreError, match="has a collection 'docs' already"):
            export_index(index, tmp_path / "qdrant", form="qdrant", collection="docs")
        import_index(tmp_path / "qdrant", tmp_path / "again")
        with plait.open(tmp_path / "again") as again:
            assert_same(index, again)
            assert again.spec == index.spec
        multi = passages(index).embeddings.multi
    assert multi is not None
    client = QdrantClient(path=str(tmp_path / "qdrant"))
    year = models.FieldCondition(key="year", range=models.Range(gte=2050))
    answer = client.query_points(
        "docs", query=multi[0].tolist(), using="multi", query_filter=models.Filter(must=[year]), limit=100
    )
    client.close()
    assert {point.payload["id"] for point in answer.points if point.payload} == {
        f"d{number}" for number in range(50, 60)
    }


def test_a_chroma_folder_is_read_like_chroma_reads_it(tmp_path: Path) -> None:
    client = chromadb.PersistentClient(str(tmp_path / "chroma"))
    collection = client.create_collection("docs", metadata={"hnsw:space": "ip", "hnsw:sync_threshold": 40})
    for start in range(0, 120, 30):
        part = CORPUS[start : start + 30]
        collection.add(
            ids=[str(one["id"]) for one in part],
            embeddings=[dense_vector(str(one["text"])).tolist() for one in part],
            documents=[str(one["text"]) for one in part],
            metadatas=[{"year": int(str(one["year"])), "new": one["id"] == "doc-3"} for one in part],
        )
    collection.delete(ids=["doc-7"])
    collection.update(ids=["doc-9"], documents=["changed"], embeddings=[dense_vector("changed").tolist()])
    given = collection.get(include=["embeddings", "documents", "metadatas"])
    batch = imported(tmp_path / "chroma", tmp_path / "new")
    vectors = by_id(batch, "dense")
    assert set(vectors) == set(given["ids"])
    documents = {document.id: document for document in batch.documents}
    for id, vector, text, metadata in zip(
        given["ids"], given["embeddings"], given["documents"], given["metadatas"], strict=True
    ):
        assert np.allclose(vectors[id], vector, atol=1e-6)
        assert documents[id].text == text
        assert documents[id].metadata == metadata


def test_faiss_decodes_compressed_files(tmp_path: Path) -> None:
    vectors = by_id(imported(FIXTURES / "sq8.faiss", tmp_path / "new"), "dense")
    for number, one in enumerate(CORPUS):
        assert np.allclose(vectors[str(number)], dense_vector(str(one["text"])), atol=0.01)


@pytest.mark.parametrize(
    "factory", ["Flat", "IVF4,Flat", "IDMap,Flat", "IDMap2,IVF4,Flat", "HNSW8", "IVF4,SQ8", "PQ8x4"]
)
@pytest.mark.parametrize("metric", [faiss.METRIC_INNER_PRODUCT, faiss.METRIC_L2])
def test_faiss_files_of_this_version_rank_as_faiss_does(tmp_path: Path, factory: str, metric: int) -> None:
    rows = np.array([dense_vector(str(one["text"])) for one in CORPUS])
    index = faiss.index_factory(rows.shape[1], factory, metric)
    index.train(rows)
    if factory.startswith("IDMap"):
        index.add_with_ids(rows, np.arange(len(rows)) + 1000)
    else:
        index.add(rows)
    faiss.write_index(index, str(tmp_path / "made.faiss"))
    if hasattr(faiss.downcast_index(index), "nprobe"):
        faiss.downcast_index(index).nprobe = 4
    stored = by_id(imported(tmp_path / "made.faiss", tmp_path / "new"), "dense")
    assert len(stored) == len(rows)
    _, nearest = (
        faiss.extract_index_ivf(index).search(rows[:1], 1) if "IDMap2" in factory else index.search(rows[:1], 1)
    )
    scores = {id: float(rows[0] @ vector) for id, vector in stored.items()}
    best = max(scores, key=lambda id: scores[id])
    expected = int(nearest[0, 0]) + (1000 if "IDMap2" in factory else 0)
    assert best == str(expected)


def test_a_faiss_file_that_is_cut_is_refused_by_faiss_too(tmp_path: Path) -> None:
    raw = (FIXTURES / "sq8.faiss").read_bytes()
    (tmp_path / "cut.faiss").write_bytes(raw[: len(raw) // 2])
    with pytest.raises(SourceError, match="faiss cannot give the vectors"):
        import_index(tmp_path / "cut.faiss", tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_seismic_reads_learned_sparse_lines(tmp_path: Path) -> None:
    with make_index(tmp_path / "index") as index:
        export_index(index, tmp_path / "out.jsonl", form="sparse-jsonl")
        n_lines = passages(index).n_passages
    lines = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert len(lines) == n_lines
    built = seismic.SeismicIndex.build(str(tmp_path / "out.jsonl"))
    query = lines[4]["vector"]
    hits = built.search(
        query_id="q", query_components=np.array(list(query), seismic.get_seismic_string()),
        query_values=np.array(list(query.values()), np.float32), k=1, query_cut=20, heap_factor=0.7,
    )  # fmt: skip
    assert hits[0][1] == pytest.approx(sum(weight**2 for weight in query.values()), rel=0.05)

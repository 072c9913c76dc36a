"""Makes fixtures/qdrant, fixtures/lancedb and fixtures/chroma. Needs qdrant-client, lancedb and chromadb."""

from __future__ import annotations

import shutil
import sqlite3
import sys
import uuid
from contextlib import closing
from pathlib import Path
from typing import Any

import chromadb
import lancedb
import pyarrow as pa
from qdrant_client import QdrantClient, models

from transfer.make_fixtures.corpus import DIM, dense_vector, documents, multi_vectors, sparse_vector

N_DOCUMENTS = 12


def fresh(folder: Path) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    return folder


def qdrant(folder: Path) -> None:
    client = QdrantClient(path=str(fresh(folder)))
    cosine = models.Distance.COSINE
    several = models.MultiVectorConfig(comparator=models.MultiVectorComparator.MAX_SIM)
    client.create_collection(
        "mixed",
        vectors_config={
            "dense": models.VectorParams(size=DIM, distance=cosine),
            "colbert": models.VectorParams(size=DIM, distance=cosine, multivector_config=several),
        },
        sparse_vectors_config={"terms": models.SparseVectorParams()},
    )
    points = []
    for number, one in enumerate(documents()[:N_DOCUMENTS]):
        text = str(one["text"])
        terms = sparse_vector(text)
        vector: dict[str, Any] = {
            "dense": (3 * dense_vector(text)).tolist(),  # cosine: the length does not count
            "colbert": multi_vectors(text).tolist(),
            "terms": models.SparseVector(indices=list(terms), values=list(terms.values())),
        }
        id = number if number % 2 else str(uuid.UUID(int=number))
        payload = {"page_content": text, "metadata": {"doc_id": one["id"], "year": one["year"], "tags": [one["tag"]]}}
        points.append(models.PointStruct(id=id, vector=vector, payload=payload))
    client.upsert("mixed", points)
    client.create_collection("plain", vectors_config=models.VectorParams(size=DIM, distance=models.Distance.DOT))
    plain = [
        models.PointStruct(id=number, vector=dense_vector(str(one["text"])).tolist(), payload=one)
        for number, one in enumerate(documents()[:5])
    ]
    client.upsert("plain", plain)
    client.close()


def lance(folder: Path) -> None:
    given = documents()[:N_DOCUMENTS]
    table = pa.table(
        {
            "id": [one["id"] for one in given],
            "text": [one["text"] for one in given],
            "year": [one["year"] for one in given],
            "vector": pa.array([dense_vector(str(one["text"])).tolist() for one in given], pa.list_(pa.float32(), DIM)),
            "multivector": pa.array(
                [multi_vectors(str(one["text"])).tolist() for one in given], pa.list_(pa.list_(pa.float32(), DIM))
            ),
        }
    )
    lancedb.connect(str(fresh(folder))).create_table("passages", table)


def chroma(folder: Path) -> None:
    given = documents()[:N_DOCUMENTS]
    client = chromadb.PersistentClient(str(fresh(folder)))
    collection = client.create_collection("passages", metadata={"hnsw:space": "cosine"})
    collection.add(
        ids=[str(one["id"]) for one in given],
        embeddings=[(2 * dense_vector(str(one["text"]))).tolist() for one in given],
        documents=[str(one["text"]) for one in given],
        metadatas=[{"year": int(str(one["year"])), "tag": str(one["tag"])} for one in given],
    )
    # More writes than fit the queue: most vectors are in a segment, others in the queue, some changed or deleted.
    settings = {"hnsw:space": "ip", "hnsw:sync_threshold": 50, "hnsw:batch_size": 20}
    written = client.create_collection("written", metadata=settings)
    for start in range(0, 70, 10):
        numbers = range(start, start + 10)
        vectors = [[float(number), 1.0, 0.5] for number in numbers]
        written.add(ids=[f"x{number}" for number in numbers], embeddings=vectors, documents=[f"t{n}" for n in numbers])
    written.delete(ids=["x3", "x65"])
    written.update(ids=["x5"], embeddings=[[9.0, 9.0, 9.0]])
    with closing(sqlite3.connect(folder / "chroma.sqlite3")) as database:
        database.execute("VACUUM")


def main(fixtures: Path) -> None:
    qdrant(fixtures / "qdrant")
    lance(fixtures / "lancedb")
    chroma(fixtures / "chroma")


if __name__ == "__main__":
    main(Path(sys.argv[1]))

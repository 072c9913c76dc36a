"""The tasks with Chroma, stored in a folder. Hybrid search is a call of its server and cloud editions; here `query`
finds vectors, `get` finds words, and reciprocal ranks join both."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import chromadb  # type: ignore[import-not-found,unused-ignore]

from benchmarks.calls.hook_chroma import PlaitFunction
from benchmarks.calls.records import Record

PACKAGE = "chromadb"
BY_HAND = {
    "add_folder": "no reader of files",
    "search": "`search` joins words and vectors, but not in the embedded edition",
    "page": "`query` has no offset",
    "count": "`count` takes no filter",
    "facets": "no facets",
    "similar": "the vector is fetched first, and the document is among its own hits",
}


def create(path: Path, records: Sequence[Record]) -> Any:
    collection = chromadb.PersistentClient(path).create_collection("documents", embedding_function=PlaitFunction())
    collection.add(
        ids=[record["id"] for record in records],
        documents=[record["text"] for record in records],
        metadatas=[{"year": record["year"], "topic": record["topic"]} for record in records],
    )
    return collection


def add_folder(collection: Any, folder: Path) -> None:
    files = {file.relative_to(folder).as_posix(): file for file in sorted(folder.rglob("*.txt"))}
    collection.add(ids=list(files), documents=[file.read_text(encoding="utf-8") for file in files.values()])


def _hybrid(collection: Any, query: str, where: dict[str, Any] | None, depth: int = 100) -> list[str]:
    by_vector = collection.query(query_texts=[query], n_results=depth, where=where)["ids"][0]
    words = [{"$contains": word} for word in query.split()]
    with_word = [collection.get(where=where, where_document=word, include=[])["ids"] for word in words]
    n_words = Counter(chain.from_iterable(with_word))
    scores: defaultdict[str, float] = defaultdict(float)
    for ranking in (by_vector, [id for id, _ in n_words.most_common(depth)]):
        for rank, id in enumerate(ranking):
            scores[id] += 1 / (60 + rank)
    return sorted(scores, key=scores.__getitem__, reverse=True)


def search(collection: Any, query: str, k: int) -> list[str]:
    return _hybrid(collection, query, {"year": {"$gte": 2020}})[:k]


def page(collection: Any, query: str, k: int, number: int) -> list[str]:
    return _hybrid(collection, query, None)[k * number : k * (number + 1)]


def get(collection: Any, ids: Sequence[str]) -> dict[str, str]:
    answer = collection.get(ids=list(ids))
    return dict(zip(answer["ids"], answer["documents"], strict=True))


def count(collection: Any) -> int:
    return len(collection.get(where={"year": {"$gte": 2020}}, include=[])["ids"])


def facets(collection: Any) -> dict[str, int]:
    return Counter(metadata["topic"] for metadata in collection.get(include=["metadatas"])["metadatas"])


def similar(collection: Any, id: str, k: int) -> list[str]:
    vectors = collection.get(ids=[id], include=["embeddings"])["embeddings"]
    answer = collection.query(query_embeddings=vectors, n_results=k + 1)["ids"][0]
    return [other for other in answer if other != id][:k]


def update(collection: Any, id: str, year: int) -> None:
    collection.update(ids=[id], metadatas=[{"year": year}])


def delete(collection: Any) -> None:
    collection.delete(where={"topic": "bread"})

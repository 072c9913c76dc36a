"""The tasks with Qdrant's client in local mode, stored in a folder. With fastembed the vectors are
`Document(text=..., model=...)` in the same places."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any
from uuid import NAMESPACE_URL, uuid5

from qdrant_client import QdrantClient  # type: ignore[import-not-found,unused-ignore]
from qdrant_client.models import (  # type: ignore[import-not-found,unused-ignore]
    Distance,
    FieldCondition,
    Filter,
    Fusion,
    FusionQuery,
    MatchValue,
    PointStruct,
    Prefetch,
    Range,
    TextIndexParams,
    TextQuery,
    VectorParams,
)

from benchmarks.calls.model import embed_document, embed_query, n_dims
from benchmarks.calls.records import Record

PACKAGE = "qdrant-client"
BY_HAND = {"add_folder": "no reader of files"}
NAME = "documents"


def _points(records: Iterable[Any]) -> list[Any]:
    return [PointStruct(id=_key(one["id"]), vector=embed_document(one["text"]), payload=one) for one in records]


def _key(id: str) -> str:
    return str(uuid5(NAMESPACE_URL, id))


def create(path: Path, records: Sequence[Record]) -> Any:
    client = QdrantClient(path=str(path))
    client.create_collection(NAME, vectors_config=VectorParams(size=n_dims(), distance=Distance.COSINE))
    client.create_payload_index(NAME, "text", TextIndexParams(type="text", scoring=True))
    client.upsert(NAME, _points(records))
    return client


def add_folder(client: Any, folder: Path) -> None:
    files = {file.relative_to(folder).as_posix(): file for file in sorted(folder.rglob("*.txt"))}
    client.upsert(NAME, _points({"id": id, "text": file.read_text(encoding="utf-8")} for id, file in files.items()))


def _hybrid(client: Any, query: str, k: int, offset: int = 0, filter: Any = None) -> list[str]:
    dense = Prefetch(query=embed_query(query), filter=filter, limit=100)
    words = Prefetch(query=TextQuery(text=query), using="text", filter=filter, limit=100)
    fusion = FusionQuery(fusion=Fusion.RRF)
    answer = client.query_points(NAME, prefetch=[dense, words], query=fusion, limit=k, offset=offset)
    return [point.payload["id"] for point in answer.points]


def search(client: Any, query: str, k: int) -> list[str]:
    return _hybrid(client, query, k, filter=Filter(must=[FieldCondition(key="year", range=Range(gte=2020))]))


def page(client: Any, query: str, k: int, number: int) -> list[str]:
    return _hybrid(client, query, k, offset=k * number)


def get(client: Any, ids: Sequence[str]) -> dict[str, str]:
    points = client.retrieve(NAME, [_key(id) for id in ids])
    return {point.payload["id"]: point.payload["text"] for point in points}


def count(client: Any) -> int:
    recent = Filter(must=[FieldCondition(key="year", range=Range(gte=2020))])
    return int(client.count(NAME, recent).count)


def facets(client: Any) -> dict[str, int]:
    return {hit.value: hit.count for hit in client.facet(NAME, "topic").hits}


def similar(client: Any, id: str, k: int) -> list[str]:
    return [point.payload["id"] for point in client.query_points(NAME, _key(id), limit=k).points]


def update(client: Any, id: str, year: int) -> None:
    client.set_payload(NAME, {"year": year}, points=[_key(id)])


def delete(client: Any) -> None:
    client.delete(NAME, Filter(must=[FieldCondition(key="topic", match=MatchValue(value="bread"))]))

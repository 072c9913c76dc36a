"""The tasks with txtai: content in SQLite, vectors in Faiss, its own BM25. Changes are in memory until `save`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

os.environ["ALLOW_RESOLVE_TRANSFORM"] = "True"  # names of functions as vectors are off by default

from txtai import Embeddings  # type: ignore[import-not-found,unused-ignore]

from benchmarks.calls.records import Record

PACKAGE = "txtai"
BY_HAND = {
    "add_folder": "no reader of text folders; `Textractor` reads single files",
    "update": "`upsert` encodes the text again; the row of SQLite is changed instead",
    "similar": "vectors of documents cannot be read; the text is encoded again",
    "delete": "`delete` takes ids, which a query finds first",
}

MODEL = {"method": "external", "transform": "benchmarks.calls.model.transform"}


def create(path: Path, records: Sequence[Record]) -> Any:
    embeddings = Embeddings(**MODEL, content=True, hybrid=True)
    embeddings.index((record["id"], dict(record)) for record in records)
    embeddings.save(str(path))
    return embeddings


def add_folder(embeddings: Any, folder: Path) -> None:
    files = sorted(folder.rglob("*.txt"))
    embeddings.upsert((file.relative_to(folder).as_posix(), file.read_text(encoding="utf-8")) for file in files)


def search(embeddings: Any, query: str, k: int) -> list[str]:
    sql = "SELECT id FROM txtai WHERE similar(:query) AND year >= 2020"
    return [row["id"] for row in embeddings.search(sql, k, parameters={"query": query})]


def page(embeddings: Any, query: str, k: int, number: int) -> list[str]:
    sql = f"SELECT id FROM txtai WHERE similar(:query, {k * (number + 1)}) LIMIT {k} OFFSET {k * number}"
    return [row["id"] for row in embeddings.search(sql, k, parameters={"query": query})]


def get(embeddings: Any, ids: Sequence[str]) -> dict[str, str]:
    sql = f"SELECT id, text FROM txtai WHERE id IN ({', '.join(map(repr, ids))})"
    return {row["id"]: row["text"] for row in embeddings.search(sql, len(ids))}


def count(embeddings: Any) -> int:
    return int(embeddings.search("SELECT count(*) AS n FROM txtai WHERE year >= 2020")[0]["n"])


def facets(embeddings: Any) -> dict[str, int]:
    rows = embeddings.search("SELECT topic, count(*) AS n FROM txtai GROUP BY topic", 1000)
    return {row["topic"]: row["n"] for row in rows}


def similar(embeddings: Any, id: str, k: int) -> list[str]:
    text = embeddings.search(f"SELECT text FROM txtai WHERE id = '{id}'")[0]["text"]
    return [row["id"] for row in embeddings.search(text, k + 1, weights=1.0) if row["id"] != id][:k]


def update(embeddings: Any, id: str, year: int) -> None:
    change = "UPDATE documents SET data = json_set(data, '$.year', ?) WHERE id = ?"
    embeddings.database.cursor.execute(change, [year, id])


def delete(embeddings: Any) -> None:
    rows = embeddings.search("SELECT id FROM txtai WHERE topic = 'bread'", embeddings.count())
    embeddings.delete([row["id"] for row in rows])

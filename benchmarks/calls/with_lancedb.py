"""The tasks with LanceDB, stored in a folder."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import lancedb
from lancedb.index import FTS
from lancedb.pydantic import LanceModel, Vector

from benchmarks.calls.hook_lancedb import PlaitFunction
from benchmarks.calls.records import Record

PACKAGE = "lancedb"
BY_HAND = {
    "add_folder": "no reader of files",
    "facets": "no facets; the column is read and counted",
    "similar": "the vector is fetched first",
}
MODEL = PlaitFunction.create()


class _Document(LanceModel):  # type: ignore[misc]
    id: str
    text: str = MODEL.SourceField()
    vector: Vector(MODEL.ndims()) = MODEL.VectorField()  # type: ignore[valid-type]
    year: int | None = None
    topic: str | None = None


def create(path: Path, records: Sequence[Record]) -> Any:
    table = lancedb.connect(path).create_table("documents", list(records), schema=_Document)
    table.create_index("text", config=FTS())
    return table


def add_folder(table: Any, folder: Path) -> None:
    files = sorted(folder.rglob("*.txt"))
    table.add([{"id": file.relative_to(folder).as_posix(), "text": file.read_text(encoding="utf-8")} for file in files])


def search(table: Any, query: str, k: int) -> list[str]:
    return [row["id"] for row in table.search(query, query_type="hybrid").where("year >= 2020").limit(k).to_list()]


def page(table: Any, query: str, k: int, number: int) -> list[str]:
    return [row["id"] for row in table.search(query, query_type="hybrid").limit(k).offset(k * number).to_list()]


def get(table: Any, ids: Sequence[str]) -> dict[str, str]:
    rows = table.search().where(f"id IN ({', '.join(map(repr, ids))})").to_list()
    return {row["id"]: row["text"] for row in rows}


def count(table: Any) -> int:
    return int(table.count_rows("year >= 2020"))


def facets(table: Any) -> dict[str, int]:
    return Counter(table.search().select(["topic"]).to_arrow()["topic"].to_pylist())


def similar(table: Any, id: str, k: int) -> list[str]:
    vector = table.search().where(f"id = '{id}'").to_list()[0]["vector"]
    return [row["id"] for row in table.search(vector).where(f"id != '{id}'").limit(k).to_list()]


def update(table: Any, id: str, year: int) -> None:
    table.update(where=f"id = '{id}'", values={"year": year})


def delete(table: Any) -> None:
    table.delete("topic = 'bread'")

"""LanceDB behind the smallest FastAPI application that answers as plait does: ids, scores and texts.

    python lancedb_app.py FOLDER
    PEER_FOLDER=FOLDER uvicorn lancedb_app:app

Searches run in the threads of the framework, which LanceDB leaves by releasing the interpreter lock.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import lancedb  # type: ignore[import-not-found,unused-ignore]
import numpy as np
from fastapi import FastAPI
from lancedb.index import FTS, IvfFlat  # type: ignore[import-not-found,unused-ignore]
from pydantic import BaseModel

app = FastAPI()
_opened: list[Any] = []


class Body(BaseModel):
    vector: list[float] | None = None
    text: str | None = None
    k: int = 10
    n_probes: int = 20


def build(folder: Path) -> None:
    vectors = Path(os.environ["PEER_VECTORS"])
    ids = json.loads((vectors / "ids.json").read_text(encoding="utf-8"))
    texts = json.loads((vectors / "texts.json").read_text(encoding="utf-8"))
    rows = np.load(vectors / "passages.npy")
    records = [{"id": id, "text": text, "vector": row.tolist()} for id, text, row in zip(ids, texts, rows, strict=True)]
    table = lancedb.connect(folder).create_table("passages", records)
    table.create_index("vector", config=IvfFlat(distance_type="dot", num_partitions=round(len(ids) ** 0.5)))
    table.create_index("text", config=FTS())


def table() -> Any:
    if not _opened:
        _opened.append(lancedb.connect(os.environ["PEER_FOLDER"]).open_table("passages"))
    return _opened[0]


@app.get("/health")
def health() -> dict[str, int]:
    return {"rows": table().count_rows()}


@app.post("/search")
def search(body: Body) -> dict[str, Any]:
    if body.text is not None:
        query = table().search(body.text, query_type="fts")
        score = "_score"
    else:
        query = table().search(np.array(body.vector, np.float32)).distance_type("dot").nprobes(body.n_probes)
        score = "_distance"
    rows = query.select(["id", "text", score]).limit(body.k).to_list()
    return {"hits": [{"id": row["id"], "text": row["text"], "score": row[score]} for row in rows]}


if __name__ == "__main__":
    build(Path(sys.argv[1]))

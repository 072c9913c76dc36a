"""txtai's own API over vectors that are made elsewhere. txtai asks for the vector of each text, of passages and of
queries; it is looked up, so that encoding does not count.

    python txtai_app.py FOLDER
    CONFIG=FOLDER/vectors.yml uvicorn txtai.api:app
"""

from __future__ import annotations

import json
import os
import sys
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np


def read(name: str) -> list[str]:
    texts: list[str] = json.loads((Path(os.environ["PEER_VECTORS"]) / name).read_text(encoding="utf-8"))
    return texts


@cache
def vectors() -> dict[str, Any]:
    known: dict[str, Any] = {}
    for texts, rows in (("texts.json", "passages.npy"), ("queries.json", "queries.npy")):
        known.update(zip(read(texts), np.load(Path(os.environ["PEER_VECTORS"]) / rows), strict=True))
    return known


def vectors_of(texts: list[str]) -> Any:
    """txtai calls it to encode texts."""
    return np.stack([vectors()[text] for text in texts])


def build(folder: Path) -> None:
    from txtai import Embeddings  # type: ignore[import-not-found,unused-ignore]

    passages = list(zip(read("ids.json"), read("texts.json"), strict=True))
    for name, how in (
        ("vectors", {"method": "external", "transform": "txtai_app.vectors_of"}),
        ("words", {"keyword": True}),
    ):
        index = Embeddings(content=True, format="json", **how)
        index.index((id, text, None) for id, text in passages)
        index.save(str(folder / name))
        (folder / f"{name}.yml").write_text(f"path: {folder / name}\nembeddings: {{}}\n", encoding="utf-8")


if __name__ == "__main__":
    build(Path(sys.argv[1]))

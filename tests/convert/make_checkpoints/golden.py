"""Golden outputs: `NAME.npz` beside the checkpoint folder `NAME`, and `NAME.json` that says how they were computed.

Arrays of NAME.npz, for SIDE `queries` and `documents`:

    SIDE.dense                                 (texts, dim)
    SIDE.sparse.terms, .weights, .offsets      terms ascend within a text; only weights above zero
    SIDE.multi.items, .values, .offsets        vectors of some of the texts, which `items` numbers
    multi.scores                               (30, 100) MaxSim of every query with every document
    pairs.scores                               (30 * documents,) scores of pairs, query by query; see `pair_texts`

NAME.json has the versions, the similarity, and how far the results of batches are from those of single texts.
"""

from __future__ import annotations

import json
import platform
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

CHECKPOINTS = Path(__file__).parents[1] / "checkpoints"
MULTI_QUERIES, MULTI_DOCUMENTS = 3, 5  # vectors of every third query and every fifth document are stored
PAIR_DOCUMENTS = 5  # pairs are made of every query and every fifth document
PACKAGES = [
    *("torch", "transformers", "tokenizers", "sentence-transformers", "pylate", "pylate-onnx-export", "colbert-ai"),
    *("FlagEmbedding", "model2vec", "fastembed", "onnx", "onnxruntime", "numpy"),
]
MAX_BATCH_DIFFERENCE = 2e-5

Floats = NDArray[np.float32]
Encode = Callable[[Sequence[str], int], Any]  # texts, batch size


def texts() -> tuple[list[str], list[str]]:
    """The 30 queries and 100 documents."""
    both = json.loads((CHECKPOINTS / "texts.json").read_text(encoding="utf-8"))
    return both["queries"], both["documents"]


def all_texts() -> list[str]:
    queries, documents = texts()
    return queries + documents


def pair_texts() -> list[tuple[str, str]]:
    """The pairs that cross-encoders score: each query with every fifth document."""
    queries, documents = texts()
    return [(query, document) for query in queries for document in documents[::PAIR_DOCUMENTS]]


def checkpoint_folder(name: str) -> Path:
    """An empty path for a checkpoint."""
    folder = CHECKPOINTS / name
    shutil.rmtree(folder, ignore_errors=True)
    return folder


def remove_page(folder: Path) -> None:
    """Removes the page that a library writes for the hub; it names the machine and holds no setting."""
    for page in folder.rglob("README.md"):
        page.unlink()


@dataclass
class Golden:
    """Collects the outputs of one checkpoint, and writes them."""

    name: str
    layout: str  # as plait names it
    origin: str
    similarity: str
    batch: int  # texts in a batch of the run that is stored
    note: str = ""
    overrides: Mapping[str, int] = field(default_factory=dict)  # settings for plait, where its default is another one
    arrays: dict[str, NDArray[Any]] = field(default_factory=dict)
    differences: list[float] = field(default_factory=list)

    def dense(self, encode_queries: Encode, encode_documents: Encode) -> None:
        for side, side_texts, encode in self._sides(encode_queries, encode_documents):
            batched, single = (np.asarray(encode(side_texts, size), np.float32) for size in (self.batch, 1))
            self._compare(batched, single)
            self.arrays[f"{side}.dense"] = batched

    def sparse(self, encode_queries: Encode, encode_documents: Encode) -> None:
        """The encoders return one mapping of term to weight for each text."""
        for side, side_texts, encode in self._sides(encode_queries, encode_documents):
            batched, single = encode(side_texts, self.batch), encode(side_texts, 1)
            entries = [sorted(item.items()) for item in batched]
            for one, other in zip(entries, map(dict, single), strict=True):
                self._compare(
                    np.array([weight for _, weight in one]), np.array([other.get(term, 0) for term, _ in one])
                )
            flat = [entry for item in entries for entry in item]
            self.arrays[f"{side}.sparse.terms"] = np.array([term for term, _ in flat], np.int32)
            self.arrays[f"{side}.sparse.weights"] = np.array([weight for _, weight in flat], np.float32)
            self.arrays[f"{side}.sparse.offsets"] = np.cumsum([0, *map(len, entries)]).astype(np.int64)

    def multi(
        self,
        encode_queries: Encode,
        encode_documents: Encode,
        *,
        every: tuple[int, int] = (MULTI_QUERIES, MULTI_DOCUMENTS),
    ) -> None:
        """The encoders return one (rows, dim) array for each text; `every` chooses the texts whose rows are stored."""
        vectors: dict[str, list[Floats]] = {}
        for side, side_texts, encode in self._sides(encode_queries, encode_documents):
            batched, single = (
                [np.asarray(item, np.float32) for item in encode(side_texts, size)] for size in (self.batch, 1)
            )
            for one, other in zip(batched, single, strict=True):
                self._compare(one, other)
            vectors[side] = batched
            items = np.arange(0, len(batched), every[side == "documents"])
            if side == "documents":  # the edge cases are at the end
                items = np.union1d(items, np.arange(len(batched) - 6, len(batched)))
            stored = [batched[item] for item in items]
            self.arrays[f"{side}.multi.items"] = items.astype(np.int64)
            self.arrays[f"{side}.multi.values"] = np.concatenate(stored)
            self.arrays[f"{side}.multi.offsets"] = np.cumsum([0, *map(len, stored)]).astype(np.int64)
        scores = [[float((q @ d.T).max(axis=1).sum()) for d in vectors["documents"]] for q in vectors["queries"]]
        self.arrays["multi.scores"] = np.array(scores, np.float32)

    def pairs(self, score: Callable[[Sequence[tuple[str, str]], int], Any]) -> None:
        batched, single = (np.asarray(score(pair_texts(), size), np.float32).ravel() for size in (self.batch, 1))
        self._compare(batched, single)
        self.arrays["pairs.scores"] = batched

    def write(self) -> None:
        remove_page(CHECKPOINTS / self.name)
        np.savez_compressed(CHECKPOINTS / f"{self.name}.npz", **self.arrays)  # type: ignore[arg-type]
        about = {
            "layout": self.layout,
            "origin": self.origin,
            "similarity": self.similarity,
            "batch": self.batch,
            "difference to batches of one": float(f"{max(self.differences, default=0.0):.1e}"),
            "versions": versions(),
        }
        about |= {"overrides": dict(self.overrides)} if self.overrides else {}
        about |= {"note": self.note} if self.note else {}
        text = json.dumps(about, indent=2, ensure_ascii=False) + "\n"
        (CHECKPOINTS / f"{self.name}.json").write_text(text, encoding="utf-8")
        size = sum(file.stat().st_size for file in (CHECKPOINTS / self.name).rglob("*") if file.is_file())
        golden = (CHECKPOINTS / f"{self.name}.npz").stat().st_size
        print(f"{self.name:32} {size / 1000:6.0f} kB {golden / 1000:5.0f} kB  {describe(self.arrays)}")

    def _sides(self, encode_queries: Encode, encode_documents: Encode) -> list[tuple[str, list[str], Encode]]:
        queries, documents = texts()
        return [("queries", queries, encode_queries), ("documents", documents, encode_documents)]

    def _compare(self, batched: NDArray[Any], single: NDArray[Any]) -> None:
        """Results must not depend on the batch; else there is no right answer to compare with."""
        assert batched.shape == single.shape, f"{self.name}: {batched.shape} in a batch, {single.shape} alone"
        assert np.isfinite(batched).all(), f"{self.name} has values that are not finite"
        difference = float(np.abs(batched - single).max(initial=0.0))
        scale = max(1.0, float(np.abs(single).max(initial=0.0)))
        assert difference <= MAX_BATCH_DIFFERENCE * scale, f"{self.name}: batches differ by {difference}"
        self.differences.append(difference)


def versions() -> dict[str, str]:
    known = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            known[package] = version(package).split("+")[0]
        except PackageNotFoundError:
            continue
    return known


def describe(arrays: Mapping[str, NDArray[Any]]) -> str:
    """How much the outputs vary; outputs that are all alike would let a wrong model pass."""
    parts = []
    if (dense := arrays.get("documents.dense")) is not None:
        unit = dense / np.maximum(np.linalg.norm(dense, axis=1, keepdims=True), 1e-9)
        parts.append(f"dense {dense.shape}, mean cosine {(unit @ unit.T).mean():.3f}")
    if (terms := arrays.get("documents.sparse.terms")) is not None:
        parts.append(f"sparse {len(terms) / 100:.1f} terms a text")
    if (scores := arrays.get("multi.scores")) is not None:
        values = arrays["documents.multi.values"]
        parts.append(f"multi {values.shape}, scores {scores.mean():.2f} +- {scores.std(axis=1).mean():.3f}")
    if (scores := arrays.get("pairs.scores")) is not None:
        parts.append(f"pairs {scores.shape}, {scores.mean():.3f} +- {scores.std():.3f}")
    return "; ".join(parts)

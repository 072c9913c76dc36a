"""Makes fixtures/fast-plaid and those that begin with fast-plaid-. Needs fast-plaid 1.7."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import torch
from fast_plaid.search import FastPlaid

from transfer.make_fixtures.corpus import QUERIES, documents, multi_vectors


def build(folder: Path, *, start_from_scratch: int, nbits: int = 4, n_documents: int = 1000) -> FastPlaid:
    shutil.rmtree(folder, ignore_errors=True)
    given = documents()[:n_documents]
    index = FastPlaid(index=str(folder), device="cpu")
    index.create(**as_arguments(given), nbits=nbits, start_from_scratch=start_from_scratch)
    return index


def as_arguments(given: list[dict[str, object]]) -> dict[str, Any]:
    """Vectors and metadata of documents."""
    return {
        "documents_embeddings": [torch.from_numpy(multi_vectors(str(one["text"]))) for one in given],
        "metadata": [{"name": one["id"], "text": one["text"], "year": one["year"]} for one in given],
    }


def main(fixtures: Path) -> None:
    build(fixtures / "fast-plaid", start_from_scratch=0)
    build(fixtures / "fast-plaid-small", start_from_scratch=1000, n_documents=20)
    updated = build(fixtures / "fast-plaid-updated", start_from_scratch=0, n_documents=60)
    updated.update(**as_arguments(documents()[60:90]), start_from_scratch=0)
    updated.delete(subset=[0, 5, 61])
    searched = build(fixtures / "fast-plaid-searched", start_from_scratch=0, nbits=2)
    queries = [torch.from_numpy(multi_vectors(query)) for query in QUERIES]
    hits = [searched.search(query[None], top_k=10, n_ivf_probe=32, show_progress=False)[0] for query in queries]
    (fixtures / "fast-plaid-searched.hits.json").write_text(json.dumps(hits) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))

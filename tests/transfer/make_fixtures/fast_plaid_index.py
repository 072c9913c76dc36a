"""Makes fixtures/fast-plaid, fast-plaid-searched and fast-plaid-small. Needs fast-plaid 1.7."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import torch
from corpus import QUERIES, documents, multi_vectors
from fast_plaid.search import FastPlaid


def build(folder: Path, *, start_from_scratch: int, nbits: int = 4, n_documents: int = 1000) -> FastPlaid:
    shutil.rmtree(folder, ignore_errors=True)
    given = documents()[:n_documents]
    index = FastPlaid(index=str(folder), device="cpu")
    index.create(
        [torch.from_numpy(multi_vectors(str(one["text"]))) for one in given],
        nbits=nbits,
        metadata=[{"name": one["id"], "text": one["text"], "year": one["year"]} for one in given],
        start_from_scratch=start_from_scratch,
    )
    return index


def main(fixtures: Path) -> None:
    build(fixtures / "fast-plaid", start_from_scratch=0)
    build(fixtures / "fast-plaid-small", start_from_scratch=1000, n_documents=20)
    searched = build(fixtures / "fast-plaid-searched", start_from_scratch=0, nbits=2)
    queries = [torch.from_numpy(multi_vectors(query)) for query in QUERIES]
    hits = [searched.search(query[None], top_k=10, n_ivf_probe=32, show_progress=False)[0] for query in queries]
    (fixtures / "fast-plaid-searched.hits.json").write_text(json.dumps(hits) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))

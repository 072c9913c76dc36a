"""Makes fixtures/warp and warp.hits.json. Needs xtr-warp-rs 2.1."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import torch
from xtr_warp import XTRWarp

from transfer.make_fixtures.corpus import QUERIES, documents, multi_vectors


def main(fixtures: Path) -> None:
    folder = fixtures / "warp"
    shutil.rmtree(folder, ignore_errors=True)
    index = XTRWarp(index=str(folder), device="cpu")
    vectors = [torch.from_numpy(multi_vectors(str(one["text"]))) for one in documents()]
    index.create(vectors, device="cpu", nbits=4, show_progress=False)
    index = XTRWarp(index=str(folder), device="cpu")
    index.load()
    queries = [torch.from_numpy(multi_vectors(query)) for query in QUERIES]
    hits = [index.search(query[None], top_k=10, nprobe=32, show_progress=False)[0] for query in queries]
    (fixtures / "warp.hits.json").write_text(json.dumps(hits) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))

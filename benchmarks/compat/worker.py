"""One library in a process of its own: builds an index, then answers batches of queries, a line of JSON each.

Started by `benchmarks.compat.run`. Runs as a file, in an environment that has the library and numpy.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import time
from typing import Any

import numpy as np


def main(library: str, index_class: str, data: str, folder: str, n_threads: int) -> None:
    answers, sys.stdout = sys.stdout, sys.stderr  # libraries print to standard output
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    if library == "pylate":
        import torch

        torch.set_num_threads(n_threads)
    modules = {name: importlib.import_module(f"{library}.{name}") for name in ("indexes", "retrieve")}
    with np.load(data) as arrays:
        documents, queries = arrays["documents"], arrays["queries"]
    options: dict[str, Any] = {"embedding_size": documents.shape[2]} if index_class == "Voyager" else {}
    if index_class == "PLAID":
        options = {"show_progress": False, "num_threads": n_threads, "device": "cpu"}
    index = getattr(modules["indexes"], index_class)(folder, "index", override=True, **options)
    start = time.perf_counter()
    index.add_documents(documents_ids=[str(n) for n in range(len(documents))], documents_embeddings=list(documents))
    retriever = modules["retrieve"].ColBERT(index=index)
    print(json.dumps({"built": time.perf_counter() - start}), file=answers, flush=True)
    for line in sys.stdin:
        first, last, k = json.loads(line)
        batch = list(queries[first:last])
        start = time.perf_counter()
        hits = retriever.retrieve(queries_embeddings=batch, k=k)
        seconds = time.perf_counter() - start
        ids = [[hit["id"] for hit in one] for one in hits]
        print(json.dumps({"seconds": seconds, "ids": ids}), file=answers, flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4], int(sys.argv[5]))

"""Writes tests/compat/origin/LIBRARY.json: signatures and results of a library, each in its own environment.

    HF_HUB_OFFLINE=1 PYTHONPATH=tests python -m compat.make_origin pylate
    HF_HUB_OFFLINE=1 PYTHONPATH=tests python -m compat.make_origin flagembedding
    HF_HUB_OFFLINE=1 PYTHONPATH=tests python -m compat.make_origin ragatouille

with pylate 1.6.0 (sentence-transformers 5.3.0, transformers 5.3.0, voyager 2.1.0: later ones do not take what PyLate
gives them), FlagEmbedding 1.4.2 (transformers 5.23.0) and ragatouille 0.0.9.post2 (langchain<1, transformers<5,
datasets 3.6.0, psutil); torch 2.13.0 in each.
"""

from __future__ import annotations

import importlib
import json
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import Any

from compat.calls import CHECKPOINTS, flag_calls, pooled_documents, pylate_calls, ragatouille_calls
from compat.described import describe
from compat.signatures import CALLS, signatures

ORIGIN = Path(__file__).parents[1] / "origin"
NAMES = {"pylate": "pylate", "flagembedding": "FlagEmbedding", "ragatouille": "ragatouille"}
PACKAGES = {
    "pylate": ("pylate", "sentence-transformers", "transformers", "torch", "voyager"),
    "flagembedding": ("FlagEmbedding", "transformers", "torch"),
    "ragatouille": ("ragatouille", "colbert-ai", "transformers", "torch"),
}


def results_of(library: str, root: Any) -> dict[str, Any]:
    if library == "pylate":
        checkpoint = str(CHECKPOINTS / "pylate-bert")
        with tempfile.TemporaryDirectory() as folder:
            results = pylate_calls(root, checkpoint, folder, {})
        return results | {"pooled": pooled_documents(root, checkpoint, {})}
    if library == "flagembedding":
        names = {"bge-m3": "bge-m3", "dense": "st-bert-cls", "bge-reranker": "bge-reranker"}
        checkpoints = {name: str(CHECKPOINTS / folder) for name, folder in names.items()}
        return flag_calls(root, checkpoints, {"use_fp16": False})
    return ragatouille_calls(root.RAGPretrainedModel, str(CHECKPOINTS / "stanford"))


def main(library: str) -> None:
    root = importlib.import_module(NAMES[library])
    for name in ("models", "indexes", "retrieve", "rank") if library == "pylate" else ():
        importlib.import_module(f"pylate.{name}")
    content = {
        "versions": {name: version(name) for name in PACKAGES[library]},
        "signatures": signatures(root, CALLS[library]),
        "results": {name: describe(value) for name, value in results_of(library, root).items()},
    }
    ORIGIN.mkdir(exist_ok=True)
    (ORIGIN / f"{library}.json").write_text(json.dumps(content, ensure_ascii=False), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1])

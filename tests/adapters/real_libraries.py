"""Checks the adapters with the libraries themselves, on small checkpoints. Run by hand in an environment that has plait
and one of sentence-transformers, PyLate and FlagEmbedding:

    python tests/adapters/real_libraries.py tests/convert/checkpoints/*/

For each checkpoint that the environment can load: the adapter's embeddings equal the library's own, a document added to
an index is found in every mode that its kinds allow, the index opens again with the model loaded again in another
process, and a model with other weights or another prompt is refused.
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np

import plait
from plait import adapters

LIBRARIES = ("sentence-transformers", "pylate", "FlagEmbedding", "transformers", "torch")
TEXTS = [
    "The heart pumps blood through the body.",
    "Bread is baked from flour, water and yeast.",
    "A library lends books; a shop sells them!",
    "Python's pip installs packages.",
]
QUERY = "which organ pumps blood"
MODES = {"dense": "dense", "sparse": "sparse", "multi": "multi"}


def load(folder: Path) -> Any:
    """The model of a checkpoint in its own library; None if the library is not here."""
    name = folder.name
    if name.startswith("pylate"):
        return _pylate(folder) if _has("pylate") else None
    if name.startswith("bge-"):
        return _flag(folder) if _has("FlagEmbedding") else None
    if name.startswith("st-") and _has("sentence_transformers") and not _has("pylate"):
        return _sentence_transformer(folder)
    return None


def wrap(model: Any) -> Any:
    """The adapter of a model."""
    names = [cls.__name__ for cls in type(model).__mro__]
    if "ColBERT" in names:
        return adapters.PyLateEncoder(model)
    if "CrossEncoder" in names:
        return adapters.CrossEncoderScorer(model)
    if hasattr(model, "compute_score") and not hasattr(model, "encode_corpus"):
        return adapters.FlagRerankerScorer(model)
    return (
        adapters.BGEM3Encoder(model) if hasattr(model, "encode_corpus") else adapters.SentenceTransformerEncoder(model)
    )


def check(folder: Path) -> str:
    """Checks one checkpoint; returns what was checked."""
    model = load(folder)
    if model is None:
        return "not loaded: no library for it here"
    adapter = wrap(model)
    other = subprocess.run(
        [sys.executable, __file__, "--fingerprint", str(folder)], capture_output=True, text=True, check=True
    )
    assert other.stdout.split()[-1] == adapter.fingerprint, "another process has another fingerprint"
    if hasattr(adapter, "score"):
        return check_scorer(model, adapter)
    compare(model, adapter)
    modes = check_index(adapter)
    refusals = check_refusals(folder, adapter)
    readers = [reader for reader in ("tokens", "term") if hasattr(adapter, reader)]
    return f"{adapter.spec.sizes()}, modes {' '.join(modes)}, readers {readers}, refuses {' '.join(refusals)}"


def compare(model: Any, adapter: Any) -> None:
    """The adapter gives what the library gives, text by text."""
    for is_query in (True, False):
        mine = adapter.encode_queries(TEXTS) if is_query else adapter.encode_documents(TEXTS)
        for number, text in enumerate(TEXTS):
            for kind, rows in library_rows(model, text, is_query).items():
                got = item_rows(mine, kind, number, rows.shape[-1])
                assert got.shape == rows.shape, (kind, got.shape, rows.shape)
                np.testing.assert_allclose(got, rows, atol=2e-5, rtol=1e-4)
            if hasattr(adapter, "tokens"):
                tokens = adapter.tokens(text, is_query=is_query)
                assert len(tokens) == len(mine.multi[number])
                assert any(text[span.start : span.end] == token for token, span in tokens if span.end > span.start)


def library_rows(model: Any, text: str, is_query: bool) -> dict[str, Any]:
    """The embeddings of one text, called as the library's documentation does, as (rows, dim) arrays."""
    names = [cls.__name__ for cls in type(model).__mro__]
    if "ColBERT" in names:
        return {"multi": np.asarray(model.encode([text], is_query=is_query)[0])}
    if hasattr(model, "encode_corpus"):
        call = model.encode_queries if is_query else model.encode_corpus
        output = call([text], return_dense=True, return_sparse=True, return_colbert_vecs=True)
        weights = np.zeros((1, len(model.tokenizer)))
        for term, weight in output["lexical_weights"][0].items():
            weights[0, int(term)] = weight
        return {"dense": output["dense_vecs"], "sparse": weights, "multi": output["colbert_vecs"][0]}
    rows = (model.encode_query if is_query else model.encode_document)([text])[0]
    if "MultiVectorEncoder" in names:
        return {"multi": rows.float().cpu().numpy()}
    kind = "sparse" if "SparseEncoder" in names else "dense"
    vector = np.asarray(rows.to_dense().cpu() if kind == "sparse" else rows)[None]
    return {kind: vector / np.linalg.norm(vector) if model.similarity_fn_name == "cosine" else vector}


def item_rows(embeddings: plait.Embeddings, kind: str, number: int, width: int) -> Any:
    if kind == "sparse":
        assert embeddings.sparse is not None
        terms, weights = embeddings.sparse[number]
        row = np.zeros((1, width), np.float32)
        row[0, terms] = weights
        return row
    rows: Any = embeddings.multi[number] if kind == "multi" and embeddings.multi else embeddings.dense
    return rows if kind == "multi" else rows[number : number + 1]


def check_index(adapter: Any) -> list[str]:
    """Adds and finds documents, in a new index and after opening it again."""
    modes = ["bm25", "hybrid", *(MODES[kind] for kind in adapter.spec.sizes())]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "index")
        with plait.open(path, encoder=adapter, create=True) as index:
            long_text = " ".join(f"{text} Number {number}." for number in range(40) for text in TEXTS)
            documents = [{"id": str(number), "text": text} for number, text in enumerate([*TEXTS, long_text])]
            report = index.add(documents)
            assert report.passages > len(documents), "the long document is one passage"
            assert report.truncated == 0, report
        with plait.open(path, encoder=adapter) as index:
            for mode in modes:
                assert index.search(TEXTS[1], k=3, mode=mode, explain=True)[0].id in ("1", "4"), mode
        with plait.open(path) as index:
            assert index.search("flour yeast", mode="bm25")[0].id in ("1", "4")
    return modes


def check_refusals(folder: Path, adapter: Any) -> list[str]:
    """A model with other weights, and one with another prompt, has another fingerprint."""
    changed = load(folder)
    module = changed.model if hasattr(changed, "encode_corpus") else changed
    weight = next(parameter for parameter in module.parameters() if parameter.ndim == 2)
    weight.data[0, 0] += 0.5
    refused = ["other weights"]
    assert not wrap(changed).matches(adapter.fingerprint)
    prompted = load(folder)
    if isinstance(getattr(prompted, "prompts", None), dict):
        prompted.prompts = {**prompted.prompts, "query": "find: "}
        if "ColBERT" in [cls.__name__ for cls in type(prompted).__mro__]:
            assert wrap(prompted).matches(adapter.fingerprint), "PyLate uses the default prompt only"
            prompted.default_prompt_name = "query"
        refused.append("another prompt")
        assert not wrap(prompted).matches(adapter.fingerprint)
    if hasattr(prompted, "query_instruction_for_retrieval"):
        prompted.query_instruction_for_retrieval = "find: "
        refused.append("another instruction")
        assert not wrap(prompted).matches(adapter.fingerprint)
    return refused


def check_scorer(model: Any, adapter: Any) -> str:
    pairs = [(QUERY, text) for text in TEXTS]
    call = model.predict if hasattr(model, "predict") else model.compute_score
    np.testing.assert_allclose(adapter.score(pairs), np.asarray(call(pairs)), atol=1e-5)
    with (
        tempfile.TemporaryDirectory() as folder,
        plait.open(Path(folder, "index"), create=True, encoder=_words()) as index,
    ):
        index.add([{"id": str(number), "text": text} for number, text in enumerate(TEXTS)])
        hits = index.search(QUERY, k=4, mode="dense", rerank=adapter)
        best = int(np.argmax(adapter.score(pairs)))
        assert hits[0].id == str(best)
    return f"scores {len(pairs)} pairs as the library does, and reranks"


def _words() -> adapters.FunctionEncoder:
    def encode(texts: list[str]) -> Any:
        return [[float(len(text)), float(text.count("o")), 1.0] for text in texts]

    return adapters.FunctionEncoder(encode, name="letters")


def _sentence_transformer(folder: Path) -> Any:
    import sentence_transformers  # type: ignore[import-not-found,unused-ignore]

    config = json.loads((folder / "config_sentence_transformers.json").read_text(encoding="utf-8"))
    kind = config.get("model_type", "SentenceTransformer")
    return getattr(sentence_transformers, kind)(str(folder), device="cpu")


def _pylate(folder: Path) -> Any:
    from pylate import models  # type: ignore[import-not-found,unused-ignore]

    return models.ColBERT(str(folder), device="cpu")


def _flag(folder: Path) -> Any:
    from FlagEmbedding import BGEM3FlagModel, FlagReranker  # type: ignore[import-not-found,unused-ignore]

    if (folder / "sparse_linear.pt").exists():
        import torch

        dim = len(torch.load(folder / "colbert_linear.pt", weights_only=True)["weight"])
        lengths = {"query_max_length": 64, "passage_max_length": 64}
        return BGEM3FlagModel(str(folder), use_fp16=False, devices=["cpu"], colbert_dim=dim, **lengths)
    return FlagReranker(str(folder), use_fp16=False, devices=["cpu"])


def _has(package: str) -> bool:
    return importlib.util.find_spec(package) is not None


def _versions() -> str:
    known = []
    for name in LIBRARIES:
        try:
            known.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            continue
    return ", ".join(known)


def main(arguments: list[str], check_one: Callable[[Path], str] = check) -> int:
    if arguments[:1] == ["--fingerprint"]:
        print(wrap(load(Path(arguments[1]))).fingerprint)
        return 0
    print(f"plait {plait.__version__}, {_versions()}")
    n_failed = 0
    for folder in map(Path, arguments):
        try:
            print(f"{folder.name}: {check_one(folder)}", flush=True)
        except Exception as error:  # the other checkpoints are checked all the same
            n_failed += 1
            print(f"{folder.name}: FAILED: {type(error).__name__}: {error}", flush=True)
    return 1 if n_failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

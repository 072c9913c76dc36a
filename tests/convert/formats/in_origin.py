"""Checks with the origin libraries themselves that they load what `plait export --format` writes, and encode alike.

    PYTHONPATH=tests python -m convert.formats.in_origin write FOLDER              with plait installed
    HF_HUB_OFFLINE=1 python tests/convert/formats/in_origin.py check FOLDER LIBRARY

`write` starts a run from each small checkpoint, exports it to plait (fp32) and to the formats, and stores the
embeddings of plait. `check` runs in an environment with one of the libraries: sentence-transformers 6.2.0,
pylate 1.6.0, colbert-ai 0.2.22 or FlagEmbedding 1.4.2 (with transformers 4.57.6: with version 5 its reranker tokenizes
decoded texts). It prints a line for each folder and fails below a cosine of 0.9999 or if there are other numbers of
vectors.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

CHECKPOINTS = Path(__file__).parents[1] / "checkpoints"
MIN_COSINE = 0.9999
N_DOCUMENTS = 40
LENGTH = 64  # of the small BGE-M3
# Library -> the checkpoints to export, with the kinds that are dropped.
CASES: dict[str, list[tuple[str, tuple[str, ...]]]] = {
    "sentence-transformers": [
        ("st-bert-mean", ()),
        ("st-bert-cls", ()),
        ("st-bert-cls-mean", ()),
        ("st-bert-prompts", ()),
        ("st-bert-dense", ()),
        ("st-bert-matryoshka", ()),
        ("st-t5", ()),
        ("st-modernbert", ()),
        ("bge-m3", ("sparse", "multi")),
        ("st-multi-markers", ()),
        ("st-multi-minimum", ()),
        ("stanford", ()),
        ("pylate-bert", ()),
        ("pylate-modernbert-residual", ()),
        ("xtr", ()),
        ("st-cross-bert", ()),
        ("st-cross-bert-sigmoid", ()),
        ("st-cross-modernbert", ()),
        ("st-cross-xlm-roberta", ()),
        ("st-cross-distilbert", ()),
        ("st-cross-deberta-v3", ()),
    ],
    "pylate": [
        ("pylate-bert", ()),
        ("pylate-bert-attended", ()),
        ("pylate-modernbert-residual", ()),
        ("pylate-without-prefix", ()),
        ("pylate-xlm-roberta", ()),
        ("stanford", ()),
        ("xtr", ()),
    ],
    "stanford": [("stanford", ()), ("stanford-attended", ()), ("pylate-bert", ())],
    "flagembedding": [
        ("bge-m3", ()),
        ("bge-m3-narrow", ()),
        ("bge-reranker", ()),
        ("st-cross-bert", ()),
        ("st-cross-distilbert", ()),
    ],
}


def texts() -> tuple[list[str], list[str]]:
    both = json.loads((CHECKPOINTS / "texts.json").read_text(encoding="utf-8"))
    # PyLate strips texts and an encoder of plait need not.
    return [text.strip() for text in both["queries"]], [text.strip() for text in both["documents"][:N_DOCUMENTS]]


def pairs() -> list[tuple[str, str]]:
    queries, documents = texts()
    # Beginnings of texts beside whole ones, so that pairs fit into the small models.
    chosen = [*(document[:30] for document in documents[::5]), *documents[::10]]
    return [(query[:20], document) for query in queries[:10] for document in chosen]


def write(folder: Path) -> None:
    """Exports every case, and stores plait's embeddings beside it."""
    import shutil

    from convert.started import saved_model
    from plait.convert.formats.export import export_checkpoint

    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for form, cases in CASES.items():
        for name, drop in cases:
            saved = folder / f"{name}.saved"
            if not saved.exists():
                saved_model(CHECKPOINTS / name, saved)
                np.savez(folder / f"{name}.npz", **_plait_outputs(saved, folder / f"{name}.plait"))
            made = export_checkpoint(saved, folder / f"{name}.{form}", form, drop=drop)
            print(f"{name:28} {form:22} {made.layout}")


def _plait_outputs(saved: Path, model: Path) -> dict[str, Any]:
    from plait.encode.load import load_model
    from plait.rerank.cross_encoder import load_cross
    from plait.train.cross.export import cross_source, export_cross
    from plait.train.export.export import ExportConfig, export_run

    queries, documents = texts()
    if cross_source(saved) is not None:
        export_cross(saved, model)
        return {"pairs": load_cross(model, precision="fp32").score(pairs())}
    export_run(saved, model, ExportConfig(precision="fp32"))
    encoder = load_model(model)
    outputs: dict[str, Any] = {}
    for side, embeddings in (
        ("queries", encoder.encode_queries(queries)),
        ("documents", encoder.encode_documents(documents)),
    ):
        if embeddings.dense is not None:
            outputs[f"{side}.dense"] = embeddings.dense
        if embeddings.sparse is not None:
            outputs |= {f"{side}.{name}": getattr(embeddings.sparse, name) for name in ("terms", "weights", "offsets")}
        if embeddings.multi is not None:
            outputs[f"{side}.multi"] = np.asarray(embeddings.multi.values, np.float32)
            outputs[f"{side}.multi.offsets"] = embeddings.multi.offsets
    return outputs


def check(folder: Path, form: str) -> None:
    """Loads every folder of a format with its library, and compares."""
    run: Callable[[Path, dict[str, Any]], dict[str, float]] = {
        "sentence-transformers": _in_sentence_transformers,
        "pylate": _in_pylate,
        "stanford": _in_colbert,
        "flagembedding": _in_flag_embedding,
    }[form]
    worst = 1.0
    for name, _ in CASES[form]:
        with np.load(folder / f"{name}.npz") as stored:
            cosines = run(folder / f"{name}.{form}", dict(stored))
        assert cosines, f"{name}: nothing was compared"
        worst = min(worst, *cosines.values())
        print(f"{name:28} {form:22} " + ", ".join(f"{kind} {value:.8f}" for kind, value in cosines.items()))
    assert worst >= MIN_COSINE, f"the lowest cosine is {worst}"


def _in_sentence_transformers(folder: Path, stored: dict[str, Any]) -> dict[str, float]:
    from sentence_transformers import CrossEncoder, MultiVectorEncoder, SentenceTransformer

    kind = json.loads((folder / "config_sentence_transformers.json").read_text())["model_type"]
    queries, documents = texts()
    if kind == "CrossEncoder":
        return {"score": _scores(stored, CrossEncoder(str(folder), device="cpu").predict(pairs()))}
    if kind == "SentenceTransformer":
        model = SentenceTransformer(str(folder), device="cpu")
        return {"dense": _dense(stored, model.encode_query(queries), model.encode_document(documents))}
    model = MultiVectorEncoder(str(folder), device="cpu")
    return {"multi": _multi(stored, model.encode_query(queries), model.encode_document(documents))}


def _in_pylate(folder: Path, stored: dict[str, Any]) -> dict[str, float]:
    from pylate import models

    model, (queries, documents) = models.ColBERT(str(folder), device="cpu"), texts()
    answers = [
        model.encode(side, is_query=is_query, show_progress_bar=False)
        for side, is_query in ((queries, True), (documents, False))
    ]
    return {"multi": _multi(stored, *answers)}


def _in_colbert(folder: Path, stored: dict[str, Any]) -> dict[str, float]:
    from colbert.infra import ColBERTConfig
    from colbert.modeling.checkpoint import Checkpoint
    from colbert.modeling.colbert import ColBERT

    ColBERT.loaded_extensions = True  # its compiled search is not needed to encode
    model, (queries, documents) = Checkpoint(str(folder), ColBERTConfig(checkpoint=str(folder)), verbose=0), texts()
    encoded_queries = list(model.queryFromText(queries, bsize=32).numpy())
    encoded_documents = [rows.numpy() for rows in model.docFromText(documents, bsize=32, keep_dims=False)[0]]
    return {"multi": _multi(stored, encoded_queries, encoded_documents)}


def _in_flag_embedding(folder: Path, stored: dict[str, Any]) -> dict[str, float]:
    from FlagEmbedding import BGEM3FlagModel, FlagReranker

    if "pairs" in stored:
        length = json.loads((folder / "tokenizer_config.json").read_text())["model_max_length"]
        reranker = FlagReranker(str(folder), use_fp16=False, devices=["cpu"], max_length=length)
        # Longer pairs are truncated in a way of the library's own.
        fitting = [len(reranker.tokenizer(*pair)["input_ids"]) <= length for pair in pairs()]
        assert sum(fitting) > 20
        scores = np.asarray(reranker.compute_score([pair for pair, fits in zip(pairs(), fitting, strict=True) if fits]))
        activation = json.loads((folder / "config.json").read_text())["sentence_transformers"]["activation_fn"]
        if activation.endswith("Sigmoid"):  # which plait applies, and the library only if it is asked to
            scores = 1 / (1 + np.exp(-scores))
        return {"score": _lowest(stored["pairs"][fitting][None], scores[None])}
    dim = stored["queries.multi"].shape[1]
    hidden = stored["queries.dense"].shape[1]
    model = BGEM3FlagModel(str(folder), use_fp16=False, devices=["cpu"], colbert_dim=-1 if dim == hidden else dim)
    flags = {"return_dense": True, "return_sparse": True, "return_colbert_vecs": True, "max_length": LENGTH}
    queries, documents = (model.encode(side, **flags) for side in texts())
    return {
        "dense": _dense(stored, queries["dense_vecs"], documents["dense_vecs"]),
        "sparse": min(
            _sparse(stored, side, answer["lexical_weights"])
            for side, answer in (("queries", queries), ("documents", documents))
        ),
        "multi": _multi(stored, queries["colbert_vecs"], documents["colbert_vecs"]),
    }


def _dense(stored: dict[str, Any], queries: Any, documents: Any) -> float:
    sides = (("queries", queries), ("documents", documents))
    return min(_lowest(stored[f"{side}.dense"], np.asarray(values)) for side, values in sides)


def _multi(stored: dict[str, Any], queries: Any, documents: Any) -> float:
    lowest = 1.0
    for side, answers in (("queries", queries), ("documents", documents)):
        offsets, values = stored[f"{side}.multi.offsets"], stored[f"{side}.multi"]
        for item, answer in enumerate(answers):
            rows, other = values[offsets[item] : offsets[item + 1]], np.asarray(answer)
            assert rows.shape == other.shape, f"{side} {item}: plait has {rows.shape}, the library {other.shape}"
            lowest = min(lowest, _lowest(rows, other))
    return lowest


def _sparse(stored: dict[str, Any], side: str, answers: Any) -> float:
    terms, weights, offsets = (stored[f"{side}.{name}"] for name in ("terms", "weights", "offsets"))
    lowest = 1.0
    for item, answer in enumerate(answers):
        span = slice(offsets[item], offsets[item + 1])
        mine = {int(term): float(weight) for term, weight in zip(terms[span], weights[span], strict=True)}
        other = {int(term): float(weight) for term, weight in answer.items()}
        both = sorted(set(mine) | set(other))
        rows = [np.array([[vector.get(term, 0.0) for term in both]]) for vector in (mine, other)]
        lowest = min(lowest, _lowest(*rows)) if both else lowest
    return lowest


def _scores(stored: dict[str, Any], scores: Any) -> float:
    return _lowest(stored["pairs"][None], np.asarray(scores)[None])


def _lowest(one: Any, other: Any) -> float:
    """The lowest cosine of the rows."""
    one, other = np.asarray(one, np.float64), np.asarray(other, np.float64)
    lengths = np.linalg.norm(one, axis=1) * np.linalg.norm(other, axis=1)
    return float(((one * other).sum(axis=1) / np.where(lengths == 0, 1, lengths)).min(initial=1.0))


if __name__ == "__main__":
    if sys.argv[1] == "write":
        write(Path(sys.argv[2]))
    else:
        check(Path(sys.argv[2]), sys.argv[3])

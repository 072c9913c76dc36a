"""The card of a converted model, and the hash of its weights."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import asdict, fields, is_dataclass
from typing import Any

import numpy as np

from plait.convert.checkpoint import Checkpoint
from plait.convert.source import Source
from plait.encode.model_card import CROSS_KIND, FORMAT, FileRecord, GraphRecord
from plait.graphs.config import resolve_config
from plait.graphs.heads import MCLS, DenseHead, SparseVocabulary
from plait.version import __version__


def card_of(
    checkpoint: Checkpoint, source: Source, name: str, tokenizer: FileRecord, precisions: Mapping[str, GraphRecord]
) -> dict[str, Any]:
    """The content of plait.json."""
    common = {
        "format": FORMAT,
        "name": name,
        "version": "1",
        "weights": weights_hash(checkpoint),
        "tokenizer": tokenizer.to_json(),
        "precisions": {precision: record.to_json() for precision, record in precisions.items()},
        "languages": list(checkpoint.languages),
        "licence": checkpoint.licence,
        "attribution": checkpoint.attribution,
        "source": source.origin,
        "made": f"plait convert {__version__}, from {checkpoint.layout}",
    }
    if checkpoint.pair is not None:
        activation = {"activation": checkpoint.activation} if checkpoint.activation else {}
        pair = {"head": "classifier", "pair": checkpoint.pair.to_json(), "markers": None}
        return {**common, "kind": CROSS_KIND, **pair, **activation}
    return {
        **common,
        "embeddings": _embeddings(checkpoint),
        "query": asdict(checkpoint.query),
        "document": asdict(checkpoint.document),
        "similarity": checkpoint.similarity,
    }


def _embeddings(checkpoint: Checkpoint) -> dict[str, Any]:
    heads, embeddings = checkpoint.heads, {}
    graph = checkpoint.graph
    if graph is not None and graph.kind == "dense":
        embeddings["dense"] = {"dim": checkpoint.config["hidden_size"], "pooling": graph.pooling or "mean"}
    if heads.dense is not None:
        embeddings["dense"] = _dense(checkpoint, heads.dense)
    if isinstance(heads.sparse, SparseVocabulary):
        query = {"query": "static"} if heads.sparse.query_weights is not None else {}
        embeddings["sparse"] = {
            "vocabulary": heads.sparse.head.decoder.weight.shape[1],
            "output": "vocabulary",
            **query,
        }
    elif heads.sparse is not None:
        embeddings["sparse"] = {"vocabulary": len(heads.sparse.is_kept)}
    if checkpoint.multi is not None:
        embeddings["multi"] = {**asdict(checkpoint.multi), "skip": list(checkpoint.multi.skip)}
    return embeddings


def _dense(checkpoint: Checkpoint, head: DenseHead) -> dict[str, Any]:
    layers = [layer.linear.weight.shape[1] for layer in head.layers if hasattr(layer, "linear")]
    size = layers[-1] if layers else int(resolve_config(checkpoint.config)["hidden_size"]) * len(head.poolings)
    pooling = "+".join("cls" if one == MCLS else one for one in head.poolings)
    return {"dim": head.dim or size, "pooling": pooling, **({} if head.normalize else {"normalize": False})}


def weights_hash(checkpoint: Checkpoint) -> str:
    """sha256 of all arrays before rounding; the same for every precision."""
    digest = hashlib.sha256()
    if checkpoint.graph is not None:
        with checkpoint.graph.path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    for name in sorted(checkpoint.tensors):
        _add(digest, name, checkpoint.tensors[name])
    for name, array in _arrays("heads", checkpoint.heads):
        _add(digest, name, array)
    return digest.hexdigest()


def _add(digest: Any, name: str, array: Any) -> None:
    digest.update(f"{name} {array.shape} {array.dtype}".encode())
    digest.update(np.ascontiguousarray(array).data)


def _arrays(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, np.ndarray):
        yield name, value
    elif is_dataclass(value):
        for field in fields(value):
            yield from _arrays(f"{name}.{field.name}", getattr(value, field.name))
    elif isinstance(value, tuple):
        for number, item in enumerate(value):
            yield from _arrays(f"{name}.{number}", item)

"""The format of sentence-transformers 6: SentenceTransformer, MultiVectorEncoder or CrossEncoder, by the kind of the
model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from plait.convert.checkpoint import Checkpoint
from plait.convert.formats.classifier import activation_class, write_classifier
from plait.convert.formats.common import (
    dense_layers,
    marker_of,
    strip_notes,
    write_backbone,
    write_dense,
    write_json,
    write_tokenizer,
)
from plait.convert.layouts.common import CONFIG, hidden_size
from plait.convert.layouts.sentence_transformers import MODULES, OLD_POOLINGS, ST_CONFIG
from plait.encode.model_card import DOT
from plait.errors import ConfigError
from plait.graphs.heads import DenseHead, MultiHead

NAME = "sentence-transformers"
KINDS = (("dense",), ("multi",), ("score",))  # each set of kinds that one folder can hold
SETTINGS = "sentence_bert_config.json"
VERSION = "6.2.0"
_BASE = "sentence_transformers.base.modules"
_TRANSFORMER, _DENSE, _NORMALIZE = (
    f"{_BASE}.transformer.Transformer",
    f"{_BASE}.dense.Dense",
    f"{_BASE}.normalize.Normalize",
)
_POOLING = "sentence_transformers.sentence_transformer.modules.pooling.Pooling"
_MASK = "sentence_transformers.multi_vector_encoder.modules.multi_vector_mask.MultiVectorMask"
_TOKENS, _SENTENCE = "token_embeddings", "sentence_embedding"


def write(checkpoint: Checkpoint, folder: Path) -> list[str]:
    """Writes the folder; returns what the user should know."""
    if checkpoint.heads.score is not None:
        return _write_cross(checkpoint, folder)
    if checkpoint.heads.dense is not None:
        return _write_dense(checkpoint, folder, checkpoint.heads.dense)
    assert checkpoint.heads.multi is not None
    return _write_multi(checkpoint, folder, checkpoint.heads.multi)


def _write_dense(checkpoint: Checkpoint, folder: Path, head: DenseHead) -> list[str]:
    query, document = checkpoint.query, checkpoint.document
    prompts, added = _prompts(checkpoint)
    if query.expansion is not None:
        raise ConfigError("the dense vectors are computed from expanded queries, which SentenceTransformer cannot do")
    order = list(OLD_POOLINGS.values())
    if list(head.poolings) != sorted(head.poolings, key=order.index):
        raise ConfigError(f"sentence-transformers concatenates poolings in the order {', '.join(order)}")
    write_backbone(checkpoint, folder)
    write_tokenizer(checkpoint, folder, length=max(query.length, document.length), added=added)
    write_json(folder / SETTINGS, _transformer_settings(query_length=query.length, document_length=document.length))
    modules = [("", _TRANSFORMER)]
    pooling: Any = head.poolings[0] if len(head.poolings) == 1 else list(head.poolings)
    settings = {"embedding_dimension": hidden_size(checkpoint.config), "pooling_mode": pooling, "include_prompt": True}
    modules.append(_module(folder, 1, "Pooling", _POOLING, settings))
    for layer in dense_layers(head.layers, "the dense head"):
        path = f"{len(modules)}_Dense"
        names = {"module_input_name": _SENTENCE, "module_output_name": _SENTENCE}
        write_dense(folder / path, layer, settings=names)
        modules.append((path, _DENSE))
    if head.normalize:
        names = {"module_input_name": _SENTENCE, "module_output_name": _SENTENCE}
        modules.append(_module(folder, len(modules), "Normalize", _NORMALIZE, names))
    _write_modules(folder, modules)
    similarity = "dot" if checkpoint.similarity == DOT else "cosine"
    more = {"truncate_dim": head.dim} if head.dim else {}
    _write_config(folder, "SentenceTransformer", prompts, {"similarity_fn_name": similarity, **more})
    return [] if query.length == document.length else ["use encode_query and encode_document: their lengths differ"]


def _write_multi(checkpoint: Checkpoint, folder: Path, head: MultiHead) -> list[str]:
    spec, query, document = checkpoint.multi, checkpoint.query, checkpoint.document
    assert spec is not None
    if spec.fixed or not spec.special_rows or not spec.first_row:
        what = "a fixed number of vectors" if spec.fixed else "no vectors for some of its special tokens"
        raise ConfigError(f"the model has {what}, which MultiVectorEncoder cannot hold; export it with --format plait")
    prompts, added = _prompts(checkpoint)
    expansion, lengths = query.expansion, {"query_length": query.length, "document_length": document.length}
    if expansion is not None:
        strategy = "fixed" if expansion.length == query.length else "min"
        lengths["query_length"] = max(query.length, expansion.length)
    settings: dict[str, Any] = _transformer_settings(**lengths)
    if expansion is not None:
        settings["query_expansion"] = {
            "strategy": strategy,
            "attend": expansion.attended,
            "token": expansion.token,
            "length": expansion.length,
        }
    write_backbone(checkpoint, folder)
    write_tokenizer(checkpoint, folder, length=max(lengths.values()), added=added)
    write_json(folder / SETTINGS, settings)
    modules = [("", _TRANSFORMER)]
    names = {"module_input_name": _TOKENS, "module_output_name": _TOKENS}
    for layer in dense_layers(head.layers, "the projection"):
        path = f"{len(modules)}_Dense"
        write_dense(folder / path, layer, settings=names)
        modules.append((path, _DENSE))
    tasks = ["query", "document"] if spec.skip_queries else ["document"]
    mask = {"skiplist_words": list(spec.skip), "skiplist_tasks": tasks, "keep_only_token_ids": None}
    modules.append(_module(folder, len(modules), "MultiVectorMask", _MASK, mask))
    modules.append(_module(folder, len(modules), "Normalize", _NORMALIZE, names))
    _write_modules(folder, modules)
    more = {"truncate_dim": head.dim} if head.dim else {}
    _write_config(folder, "MultiVectorEncoder", prompts, {"similarity_fn_name": None, **more})
    return strip_notes(checkpoint)


def _write_cross(checkpoint: Checkpoint, folder: Path) -> list[str]:
    notes = write_classifier(checkpoint, folder)
    settings = {
        "transformer_task": "sequence-classification",
        "modality_config": {"text": {"method": "forward", "method_output_name": "logits"}},
        "module_output_name": "scores",
    }
    write_json(folder / SETTINGS, settings)
    _write_modules(folder, [("", _TRANSFORMER)])
    _write_config(folder, "CrossEncoder", {}, {"activation_fn": activation_class(checkpoint.activation)})
    return notes


def _prompts(checkpoint: Checkpoint) -> tuple[dict[str, str], list[str]]:
    """The prompts by name, and the markers among them, which become special tokens of the tokenizer."""
    prompts, added = {}, []
    for side, given in (("query", checkpoint.query), ("document", checkpoint.document)):
        marker, prefix = marker_of(checkpoint, given)
        prompts[side] = f"{marker}{prefix}"
        added += [marker] if marker else []
    return prompts, added


def _transformer_settings(**lengths: int) -> dict[str, Any]:
    return {
        "transformer_task": "feature-extraction",
        "modality_config": {"text": {"method": "forward", "method_output_name": "last_hidden_state"}},
        "module_output_name": _TOKENS,
        **lengths,
    }


def _module(folder: Path, number: int, kind: str, cls: str, settings: dict[str, Any]) -> tuple[str, str]:
    path = f"{number}_{kind}"
    write_json(folder / path / CONFIG, settings)
    return path, cls


def _write_modules(folder: Path, modules: list[tuple[str, str]]) -> None:
    entries = [
        {"idx": number, "name": str(number), "path": path, "type": cls} for number, (path, cls) in enumerate(modules)
    ]
    write_json(folder / MODULES, entries)


def _write_config(folder: Path, kind: str, prompts: dict[str, str], more: dict[str, Any]) -> None:
    content = {
        "__version__": {"sentence_transformers": VERSION},
        "default_prompt_name": None,
        "model_type": kind,
        "prompts": prompts,
        **more,
    }
    write_json(folder / ST_CONFIG, content)

"""The weights of a backbone for its graph, from a state dict of transformers: names of one form for each family of
graphs, matrices as (in, out), and the tables that follow from the config. numpy alone."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from plait.errors import ModelError
from plait.graphs.attention import RELATIVE_BIAS, ROTARY
from plait.graphs.builder import Floats, Weights
from plait.graphs.config import position_offset, resolve_config
from plait.graphs.deberta import DISTANCES
from plait.graphs.tables import deberta_distances, relative_table, rotary_tables_of

# The prefixes of the names of the backbone in the state dict of a model with a head.
_PREFIXES = ("bert", "roberta", "distilbert", "mpnet", "electra", "deberta", "new", "gte", "nomic_bert", "model")
# Tables that are looked up, not multiplied.
_LOOKED_UP = re.compile(r"(^|\.)(\w*embeddings?|embed_tokens|shared|relative_attention_bias|rel_embeddings)\.weight$")
_MPNET_DISTANCE = 128
_RENAMES: dict[str, list[tuple[str, str]]] = {
    "distilbert": [
        (r"^transformer\.layer\.", "encoder.layer."),
        (r"attention\.q_lin\.", "attention.self.query."),
        (r"attention\.k_lin\.", "attention.self.key."),
        (r"attention\.v_lin\.", "attention.self.value."),
        (r"attention\.out_lin\.", "attention.output.dense."),
        (r"\.sa_layer_norm\.", ".attention.output.LayerNorm."),
        (r"\.ffn\.lin1\.", ".intermediate.dense."),
        (r"\.ffn\.lin2\.", ".output.dense."),
        (r"\.output_layer_norm\.", ".output.LayerNorm."),
    ],
    "nomic_bert": [
        (r"^encoder\.layers\.", "layers."),
        (r"^emb_ln\.", "embeddings.LayerNorm."),
        (r"\.attn\.out_proj\.", ".self_attn.o_proj."),
        (r"\.attn\.Wqkv\.", ".self_attn.qkv_proj."),
        (r"\.fc11\.", ".up_proj."),
        (r"\.fc12\.", ".gate_proj."),
        (r"\.fc2\.", ".down_proj."),
        (r"\.norm1\.", ".post_attention_layernorm."),
        (r"\.norm2\.", ".post_mlp_layernorm."),
    ],
    "gte": [
        (r"^encoder\.layer\.", "layers."),
        (r"\.attention\.", ".self_attn."),
        (r"\.attn_ln\.", ".post_attention_layernorm."),
        (r"\.mlp_ln\.", ".post_mlp_layernorm."),
    ],
    "t5": [(r"^encoder\.embed_tokens\.weight$", "shared.weight")],
}
_RENAMES["mt5"] = _RENAMES["t5"]


def backbone_tensors(config: Mapping[str, Any], state: Mapping[str, Floats]) -> dict[str, Floats]:
    """The tensors of the backbone in the state dict of a model with or without heads, with the names of AutoModel."""
    family = resolve_config(config)["model_type"]
    words = _WORDS[family]
    prefixes = ["", *(f"{name}." for name in _PREFIXES)]
    present = [prefix for prefix in prefixes if any(f"{prefix}{word}" in state for word in words)]
    if not present:
        seen = ", ".join(sorted(state)[:5]) or "nothing"
        raise ModelError(f"the checkpoint has no word embeddings {words[0]!r} of a {family} backbone; it has {seen}")
    prefix = present[0]
    return {name.removeprefix(prefix): value for name, value in state.items() if name.startswith(prefix)}


_BERT_WORDS = ("embeddings.word_embeddings.weight",)
_WORDS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("t5", "mt5"), ("shared.weight", "encoder.embed_tokens.weight")),
    **dict.fromkeys(("qwen3", "qwen2", "llama", "eurobert"), ("embed_tokens.weight",)),
    **dict.fromkeys(
        ("bert", "electra", "distilbert", "roberta", "xlm-roberta", "mpnet", "deberta-v2", "nomic_bert", "gte"),
        _BERT_WORDS,
    ),
    "modernbert": ("embeddings.tok_embeddings.weight",),
    "static": ("embedding.weight",),
}


def backbone_weights(config: Mapping[str, Any], tensors: Mapping[str, Floats], *, length: int) -> Weights:
    """The arrays of the graph from the tensors of a backbone, named as in AutoModel, matrices as (out, in). `length` is
    the maximum number of tokens of an input. ModelError if tensors are missing or too few positions."""
    resolved = resolve_config(config)
    family = resolved["model_type"]
    renamed = {_rename(family, name): value for name, value in tensors.items()}
    weights: Weights = {
        name: value.T if value.ndim == 2 and not _LOOKED_UP.search(name) else value for name, value in renamed.items()
    }
    if not any(word in weights for word in _WORDS[family]):
        raise ModelError(f"the backbone has no word embeddings {_WORDS[family][0]!r}; a checkpoint of another model?")
    _check_length(resolved, weights, length)
    try:
        return weights | _tables(resolved, weights, length)
    except KeyError as error:
        raise ModelError(
            f"the {family} backbone has no tensor {error.args[0]!r}; the checkpoint is not whole"
        ) from None


def _rename(family: str, name: str) -> str:
    name = re.sub(r"\.gamma$", ".weight", re.sub(r"\.beta$", ".bias", name))  # of checkpoints that began in TensorFlow
    for pattern, name_of_ours in _RENAMES.get(family, []):
        name = re.sub(pattern, name_of_ours, name)
    return name


def n_positions_of(config: Mapping[str, Any], tensors: Mapping[str, Floats]) -> int | None:
    """The number of tokens that a backbone has positions for; None if it has no table of positions."""
    resolved = resolve_config(config)
    table = tensors.get("embeddings.position_embeddings.weight")
    if table is None or (resolved["model_type"] == "deberta-v2" and not resolved.get("position_biased_input", True)):
        return None
    return len(table) - position_offset(resolved)


def _check_length(config: Mapping[str, Any], weights: Weights, length: int) -> None:
    n_positions = n_positions_of(config, weights)
    if n_positions is not None and length > n_positions:
        raise ModelError(
            f"the backbone has {n_positions} positions, and {length} tokens are wanted; take at most those"
        )


def _tables(config: Mapping[str, Any], weights: Weights, length: int) -> Weights:
    family = config["model_type"]
    if family in ("t5", "mt5"):
        bias = weights["encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight"]
        table = relative_table(bias, length, int(config["relative_attention_max_distance"]))
        return {"words": weights["shared.weight"], RELATIVE_BIAS: table}
    if family == "mpnet":
        bias = weights["encoder.relative_attention_bias.weight"]
        return {RELATIVE_BIAS: relative_table(bias, length, _MPNET_DISTANCE)}
    if family == "deberta-v2":
        return {DISTANCES: deberta_distances(config, length).astype(np.float32)}
    if family == "modernbert":
        tables: Weights = {}
        dim = int(config["hidden_size"]) // int(config["num_attention_heads"])
        for kind in sorted(set(config["layer_types"])):
            cos, sin = rotary_tables_of(config["rope_parameters"][kind], dim, length)
            tables |= {f"{ROTARY}.{kind}.cos": cos, f"{ROTARY}.{kind}.sin": sin}
        return tables
    if "rope_parameters" in config:
        dim = int(config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"])
        cos, sin = rotary_tables_of(config["rope_parameters"], dim, length)
        return {f"{ROTARY}.all.cos": cos, f"{ROTARY}.all.sin": sin}
    return {}

"""The config of a backbone with one set of names. A `config.json` leaves out what equals the default of its library,
and libraries name the same number differently; the graphs read the names that `resolve_config` gives."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from plait.errors import ModelError

# Other names of a model type.
ALIASES = {
    "camembert": "xlm-roberta",
    "new": "gte",  # Alibaba's remote code, before transformers had it
    "umt5": "",  # has a table of biases in every layer
    "deberta-v3": "deberta-v2",
    "mistral": "llama",
}
_BERT = {
    "hidden_size": 768,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "hidden_act": "gelu",
    "layer_norm_eps": 1e-12,
    "pad_token_id": 0,
}
_ROTARY = {**_BERT, "hidden_act": "gelu", "rope_theta": 10000.0}
_DECODER = {
    "hidden_size": 4096,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "hidden_act": "silu",
    "rms_norm_eps": 1e-6,
    "rope_theta": 10000.0,
    "causal": True,
    "head_dim": None,
}
DEFAULTS: dict[str, dict[str, Any]] = {
    "bert": _BERT,
    "electra": {**_BERT, "hidden_size": 256, "num_attention_heads": 4},
    "distilbert": {**_BERT, "num_hidden_layers": 6},
    "roberta": {**_BERT, "pad_token_id": 1},
    "xlm-roberta": {**_BERT, "pad_token_id": 1},
    "mpnet": {**_BERT, "pad_token_id": 1, "relative_attention_num_buckets": 32},
    "deberta-v2": {
        **_BERT,
        "hidden_size": 1536,
        "num_hidden_layers": 24,
        "num_attention_heads": 24,
        "layer_norm_eps": 1e-7,
        "max_position_embeddings": 512,
        "relative_attention": False,
        "max_relative_positions": -1,
        "position_buckets": -1,
        "norm_rel_ebd": "none",
        "share_att_key": False,
        "pos_att_type": (),
        "conv_kernel_size": 0,
    },
    "t5": {"feed_forward_proj": "relu"},
    "mt5": {"feed_forward_proj": "gated-gelu", "num_hidden_layers": 8, "num_attention_heads": 6},
    "modernbert": {
        "hidden_size": 768,
        "num_hidden_layers": 22,
        "num_attention_heads": 12,
        "hidden_activation": "gelu",
        "norm_eps": 1e-5,
        "local_attention": 128,
        "global_attn_every_n_layers": 3,
        "global_rope_theta": 160000.0,
        "local_rope_theta": 10000.0,
    },
    "nomic_bert": {**_ROTARY, "hidden_act": "silu", "rope_theta": 1000.0},
    "gte": {**_ROTARY, "rope_theta": 160000.0},
    "qwen3": {**_DECODER, "head_dim": 128},
    "qwen2": _DECODER,
    "llama": _DECODER,
    "eurobert": {
        **_DECODER,
        "hidden_size": 768,
        "num_hidden_layers": 12,
        "num_attention_heads": 12,
        "rms_norm_eps": 1e-5,
        "causal": False,
    },
    "static": {},
}
# The names of a model type for what others call by the second name.
_NAMES: dict[str, dict[str, str]] = {
    "distilbert": {
        "dim": "hidden_size",
        "n_layers": "num_hidden_layers",
        "n_heads": "num_attention_heads",
        "activation": "hidden_act",
    },
    "t5": {"d_model": "hidden_size", "num_layers": "num_hidden_layers", "num_heads": "num_attention_heads"},
    "nomic_bert": {
        "n_embd": "hidden_size",
        "n_layer": "num_hidden_layers",
        "n_head": "num_attention_heads",
        "layer_norm_epsilon": "layer_norm_eps",
        "rotary_emb_base": "rope_theta",
    },
}
_NAMES["mt5"] = _NAMES["t5"]
_T5 = {
    "hidden_size": 512,
    "num_hidden_layers": 6,
    "num_attention_heads": 8,
    "layer_norm_epsilon": 1e-6,
    "relative_attention_num_buckets": 32,
    "relative_attention_max_distance": 128,
}


def resolve_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """The config with plait's names, defaults filled in. ModelError for a model type that plait has no graph for, or a
    setting that its graph does not have."""
    kind = str(config.get("model_type"))
    family = ALIASES.get(kind, kind)
    if family not in DEFAULTS:
        raise ModelError(f"a {kind!r} backbone cannot be exported; plait exports {', '.join(sorted(DEFAULTS))}")
    values = {key: value for key, value in config.items() if value is not None}
    for theirs, ours in _NAMES.get(family, {}).items():
        if theirs in values:
            values[ours] = values[theirs]
    defaults = {**(_T5 if family in ("t5", "mt5") else {}), **DEFAULTS[family]}
    if kind == "new":
        defaults["rope_theta"] = 10000.0  # the default of the remote code
    resolved = {**defaults, **values, "model_type": family}
    _RESOLVERS.get(family, lambda _: None)(resolved)
    _check_positions(resolved)
    return resolved


def position_offset(config: Mapping[str, Any]) -> int:
    """The row of the first position in the table of positions: RoBERTa counts from the id of padding."""
    counts_from_pad = config["model_type"] in ("roberta", "xlm-roberta", "mpnet")
    return int(config["pad_token_id"]) + 1 if counts_from_pad else 0


def _t5(config: dict[str, Any]) -> None:
    kind = str(config["feed_forward_proj"])
    if "dense_act_fn" not in config:
        act = kind.removeprefix("gated-")
        config["dense_act_fn"] = "gelu_new" if kind == "gated-gelu" else act


def _modernbert(config: dict[str, Any]) -> None:
    n_layers, every = int(config["num_hidden_layers"]), int(config["global_attn_every_n_layers"])
    if "layer_types" not in config:
        config["layer_types"] = [
            "sliding_attention" if number % every else "full_attention" for number in range(n_layers)
        ]
    rope = config.get("rope_parameters") or {
        "full_attention": {"rope_theta": config["global_rope_theta"]},
        "sliding_attention": {"rope_theta": config["local_rope_theta"]},
    }
    config["rope_parameters"] = rope


def _rope(config: dict[str, Any]) -> None:
    """One dictionary with the kind and the numbers of rotary positions, from the names of several releases."""
    scaling = dict(config.get("rope_scaling") or {})
    kind = scaling.pop("type", None) or scaling.get("rope_type") or "default"
    given = config.get("rope_parameters") or {"rope_theta": config["rope_theta"], **scaling, "rope_type": kind}
    config["rope_parameters"] = {"rope_type": "default", "rope_theta": config["rope_theta"], **given}


def _nomic(config: dict[str, Any]) -> None:
    _rope(config)
    refused = {
        "prenorm": False,
        "use_rms_norm": False,
        "rotary_emb_interleaved": False,
        "moe_every_n_layers": 0,
        "rotary_emb_fraction": 1.0,
    }
    for key, wanted in refused.items():
        if config.get(key, wanted) not in (wanted, -1):
            raise ModelError(f"a nomic_bert backbone with {key} = {config[key]!r} cannot be exported, only {wanted!r}")
    activation = config.get("activation_function", "swiglu")
    if activation not in ("swiglu", "geglu"):
        raise ModelError(
            f"a nomic_bert backbone with activation {activation!r} cannot be exported, only swiglu and geglu"
        )
    if "activation_function" in config:
        config["hidden_act"] = {"swiglu": "silu", "geglu": "gelu"}[activation]
    if (factor := config.get("rotary_scaling_factor")) is not None:
        trained = int(config.get("max_trained_positions", 2048))
        config["rope_parameters"] |= {"rope_type": "dynamic", "factor": factor, "original": trained}


def _gte(config: dict[str, Any]) -> None:
    _rope(config)
    if config.get("layer_norm_type", "layer_norm") != "layer_norm" or config.get("logn_attention_scale"):
        raise ModelError("a GTE backbone with RMS norms or scaled attention logits cannot be exported")


def _decoder(config: dict[str, Any]) -> None:
    _rope(config)
    config["causal"] = bool(config.get("is_causal", config["causal"]))
    config["head_dim"] = int(config["head_dim"] or config["hidden_size"] // config["num_attention_heads"])
    config.setdefault("num_key_value_heads", config["num_attention_heads"])
    if config.get("use_sliding_window") or (config.get("sliding_window") and "use_sliding_window" not in config):
        raise ModelError(f"a {config['model_type']} backbone with sliding windows cannot be exported")


def _deberta(config: dict[str, Any]) -> None:
    kinds = config["pos_att_type"]
    config["pos_att_type"] = tuple(kinds.split("|")) if isinstance(kinds, str) else tuple(kinds)
    if config["max_relative_positions"] < 1:
        config["max_relative_positions"] = config["max_position_embeddings"]
    if int(config["conv_kernel_size"] or 0) > 0:
        raise ModelError("a DeBERTa with a convolution after its first layer (deberta-v2-xlarge) cannot be exported")


def _check_positions(config: Mapping[str, Any]) -> None:
    allowed = {"gte": "rope"}.get(config["model_type"], "absolute")
    if (seen := config.get("position_embedding_type", allowed)) != allowed:
        raise ModelError(f"position_embedding_type is {seen!r}; only {allowed} can be exported")


_RESOLVERS = {
    "t5": _t5,
    "mt5": _t5,
    "modernbert": _modernbert,
    "nomic_bert": _nomic,
    "gte": _gte,
    "qwen3": _decoder,
    "qwen2": _decoder,
    "llama": _decoder,
    "eurobert": _decoder,
    "deberta-v2": _deberta,
}

"""The graph of each family of backbones computes what transformers does in torch."""

from __future__ import annotations

import json
import math
import re
from typing import Any

import numpy as np
import pytest
import torch

from graphs.families import FAMILIES, HIDDEN, LENGTH, batch, random_model, run, state_of
from plait.errors import ModelError
from plait.graphs.build import build_graph
from plait.graphs.config import resolve_config
from plait.graphs.heads import DenseHead, DenseLayer, Heads, Linear, MultiHead
from plait.graphs.tables import rotary_tables_of
from plait.graphs.weights import backbone_tensors, backbone_weights

LENGTHS = [9, 1, 17, LENGTH, 2]
# Multi vectors without a projection are the states, normalised.
STATES = Heads(multi=MultiHead((DenseLayer(Linear(np.eye(HIDDEN, dtype=np.float32))),)))


def stored_config(model: torch.nn.Module) -> dict[str, Any]:
    """The config as a checkpoint stores it: only what differs from the defaults."""
    config: Any = model.config
    stored: dict[str, Any] = json.loads(config.to_json_string(use_diff=True))
    return stored


def torch_states(model: torch.nn.Module, lengths: list[int]) -> list[Any]:
    ids, mask = batch(lengths)
    with torch.no_grad():
        states = model(input_ids=torch.from_numpy(ids), attention_mask=torch.from_numpy(mask)).last_hidden_state
    unit = torch.nn.functional.normalize(states.float(), dim=-1).numpy()
    return [unit[row, :length] for row, length in enumerate(lengths)]


def graph_states(graph: bytes, lengths: list[int]) -> list[Any]:
    ids, mask = batch(lengths)
    states = run(graph, input_ids=ids, attention_mask=mask)["multi"]
    return [states[row, :length] for row, length in enumerate(lengths)]


def gap(one: list[Any], other: list[Any]) -> float:
    return max(float(np.abs(left - right).max()) for left, right in zip(one, other, strict=True))


@pytest.mark.parametrize("family", FAMILIES)
def test_the_graph_of_a_family_equals_torch(family: str) -> None:
    model = random_model(family)
    config = stored_config(model)
    weights = backbone_weights(config, backbone_tensors(config, state_of(model)), length=LENGTH)
    expected = torch_states(model, LENGTHS)
    assert gap(graph_states(build_graph(weights, config, STATES), LENGTHS), expected) < 1e-4
    assert gap(graph_states(build_graph(weights, config, STATES, precision="fp16"), LENGTHS), expected) < 0.02
    assert gap(graph_states(build_graph(weights, config, STATES, precision="int8"), LENGTHS), expected) < 0.25


def older_t5(config: dict[str, Any]) -> None:
    for key in ("dense_act_fn", "is_gated_act"):
        config.pop(key, None)


def older_modernbert(config: dict[str, Any]) -> None:
    rope = config.pop("rope_parameters")
    config.pop("layer_types", None)
    config["global_attn_every_n_layers"] = 3
    config["global_rope_theta"] = rope["full_attention"]["rope_theta"]
    config["local_rope_theta"] = rope["sliding_attention"]["rope_theta"]


def older_decoder(config: dict[str, Any]) -> None:
    rope = config.pop("rope_parameters")
    config["rope_theta"] = rope.pop("rope_theta")
    config["rope_scaling"] = rope if rope.get("rope_type", "default") != "default" else None


@pytest.mark.parametrize(
    ("family", "make_older"),
    [
        ("gated t5", older_t5),
        ("t5", older_t5),
        ("modernbert", older_modernbert),
        ("llama", older_decoder),
        ("qwen3", older_decoder),
    ],
)
def test_a_config_of_an_older_release_gives_the_same_states(family: str, make_older: Any) -> None:
    model = random_model(family)
    config = stored_config(model)
    weights = backbone_weights(config, state_of(model), length=LENGTH)
    expected = graph_states(build_graph(weights, config, STATES), LENGTHS)
    make_older(config)
    weights = backbone_weights(config, state_of(model), length=LENGTH)
    assert gap(graph_states(build_graph(weights, config, STATES), LENGTHS), expected) < 1e-6


def test_defaults_are_those_of_the_libraries() -> None:
    """A checkpoint leaves out what equals the default of its library."""
    from transformers import AutoConfig

    checked: tuple[str, ...] = (
        "hidden_size",
        "num_hidden_layers",
        "num_attention_heads",
        "hidden_act",
        "layer_norm_eps",
        "norm_eps",
    )
    checked += (
        "rms_norm_eps",
        "num_key_value_heads",
        "dense_act_fn",
        "hidden_activation",
        "local_attention",
        "layer_types",
    )
    checked += ("layer_norm_epsilon", "relative_attention_num_buckets", "relative_attention_max_distance", "head_dim")
    checked += ("position_buckets", "norm_rel_ebd", "share_att_key", "relative_attention", "conv_kernel_size")
    for kind in {kind for kind, _ in FAMILIES.values()}:
        config = AutoConfig.for_model(kind)
        resolved, full = resolve_config({"model_type": kind}), resolve_config(config.to_dict())
        for key in checked:
            if key in full and (key in resolved or key not in ("head_dim", "layer_types")):
                assert resolved.get(key) == full[key], (kind, key)
        if kind in ("roberta", "xlm-roberta", "camembert", "mpnet"):
            assert resolved["pad_token_id"] == full["pad_token_id"], kind
        if kind == "modernbert":
            bases = [
                [config["rope_parameters"][name]["rope_theta"] for name in ("full_attention", "sliding_attention")]
                for config in (resolved, full)
            ]
            assert bases[0] == bases[1]
        elif "rope_parameters" in resolved:
            assert resolved["rope_parameters"] == full["rope_parameters"], kind


def remote_nomic(state: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The names of nomic-embed-text-v1.5, and its config."""
    renamed = {}
    for name, value in state.items():
        for ours, theirs in [
            (r"layers.", "encoder.layers."),
            ("embeddings.LayerNorm", "emb_ln"),
            ("self_attn.o_proj", "attn.out_proj"),
            ("mlp.up_proj", "mlp.fc11"),
            ("mlp.gate_proj", "mlp.fc12"),
            ("mlp.down_proj", "mlp.fc2"),
            ("post_attention_layernorm", "norm1"),
            ("post_mlp_layernorm", "norm2"),
        ]:
            name = name.replace(ours, theirs)
        renamed[name] = value
    config = {
        "model_type": "nomic_bert",
        "n_embd": HIDDEN,
        "n_layer": 2,
        "n_head": 4,
        "n_inner": 48,
        "activation_function": "swiglu",
        "layer_norm_epsilon": 1e-12,
        "rotary_emb_base": 1000,
        "rotary_emb_fraction": 1.0,
        "rotary_scaling_factor": None,
        "prenorm": False,
    }
    return packed(renamed, "attn.Wqkv", ["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"]), config


def remote_gte(state: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The names of Alibaba's remote code, the prefix of a model with a head included, and its config."""
    renamed = {}
    for name, value in state.items():
        for ours, theirs in [
            ("layers.", "encoder.layer."),
            ("self_attn.", "attention."),
            ("post_attention_layernorm", "attn_ln"),
            ("post_mlp_layernorm", "mlp_ln"),
        ]:
            name = name.replace(ours, theirs)
        renamed[f"new.{name}"] = value
    renamed = packed(renamed, "attention.qkv_proj", [f"attention.{part}_proj" for part in "qkv"])
    renamed = packed(renamed, "mlp.up_gate_proj", ["mlp.up_proj", "mlp.gate_proj"])
    shape = {"hidden_size": HIDDEN, "num_hidden_layers": 2, "num_attention_heads": 4, "hidden_act": "gelu"}
    config = {"model_type": "new", **shape, "position_embedding_type": "rope", "rope_theta": 160000.0}
    return renamed, {**config, "pack_qkv": True, "layer_norm_type": "layer_norm", "type_vocab_size": 1}


def packed(state: dict[str, Any], target: str, parts: list[str]) -> dict[str, Any]:
    """The matrices `parts` of each layer side by side under the name `target`."""
    result = {name: value for name, value in state.items() if not any(f"{part}." in name for part in parts)}
    for name in state:
        if f"{parts[0]}." in name:
            result[name.replace(parts[0], target)] = np.concatenate([state[name.replace(parts[0], p)] for p in parts])
    return result


@pytest.mark.parametrize(("family", "rename"), [("nomic_bert", remote_nomic), ("gte", remote_gte)])
def test_checkpoints_of_remote_code_give_the_same_states(family: str, rename: Any) -> None:
    model = random_model(family)
    state, config = rename(state_of(model))
    weights = backbone_weights(config, backbone_tensors(config, state), length=LENGTH)
    graph = build_graph(weights, config, STATES)
    assert gap(graph_states(graph, LENGTHS), torch_states(model, LENGTHS)) < 1e-4


@pytest.mark.parametrize("mixed_b", [None, 0.5])
def test_the_scaled_rotary_positions_of_gte_are_those_of_its_paper(mixed_b: float | None) -> None:
    """kexue.fm/archives/9706: with `mixed_b`, frequency i is divided by exp(a * i ** b), the last by the whole
    factor; without, the base is multiplied by the factor and the rest of the factor is spread evenly."""
    dim, factor, theta = 16, 8.0, 20000.0
    rope = {"rope_type": "ntk", "rope_theta": theta, "factor": factor, "mixed_b": mixed_b}
    cos, sin = rotary_tables_of(rope, dim, 5)
    for pair in range(dim // 2):
        frequency = theta ** (-2 * pair / dim)
        if mixed_b is None:
            frequency = (theta * factor) ** (-2 * pair / dim) / factor ** (2 / dim)
        else:
            rate = math.log(factor) / (dim / 2) ** mixed_b
            frequency /= math.exp(rate * (pair + 1) ** mixed_b)
        for position in range(5):
            assert cos[position, pair] == pytest.approx(math.cos(position * frequency), abs=1e-5)
            assert sin[position, pair + dim // 2] == pytest.approx(math.sin(position * frequency), abs=1e-5)


def test_token_types_of_pairs_are_an_input() -> None:
    for family in ("bert", "electra", "nomic_bert", "deberta-v2"):
        model = random_model(family)
        config = stored_config(model)
        weights = backbone_weights(config, backbone_tensors(config, state_of(model)), length=LENGTH)
        graph = build_graph(weights, config, STATES, token_types=True)
        ids, mask = batch([9, 17])
        types = np.zeros_like(ids)
        types[:, 4:] = 1
        with torch.no_grad():
            inputs = {"input_ids": ids, "attention_mask": mask, "token_type_ids": types}
            states = model(**{name: torch.from_numpy(value) for name, value in inputs.items()}).last_hidden_state
        expected = torch.nn.functional.normalize(states, dim=-1).numpy()
        seen = run(graph, **inputs)["multi"]
        assert np.abs(seen - expected)[mask == 1].max() < 1e-4
        inputs["token_type_ids"] = np.zeros_like(ids)
        assert np.abs(run(graph, **inputs)["multi"] - expected)[mask == 1].max() > 1e-2


def test_a_graph_for_8192_tokens_has_no_square_tables() -> None:
    length = 8192
    for family in ("modernbert", "t5", "qwen3", "gte"):
        model = random_model(family)
        config = stored_config(model)
        weights = backbone_weights(config, backbone_tensors(config, state_of(model)), length=length)
        graph = build_graph(weights, config, Heads(dense=DenseHead(("cls",))))
        assert len(graph) < 4_000_000


def test_a_long_text_equals_torch() -> None:
    model = random_model("gte", max_position_embeddings=8192)
    config = stored_config(model)
    weights = backbone_weights(config, backbone_tensors(config, state_of(model)), length=8192)
    lengths = [4100]
    assert gap(graph_states(build_graph(weights, config, STATES), lengths), torch_states(model, lengths)) < 1e-3


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"model_type": "gpt_neox"}, "a 'gpt_neox' backbone cannot be exported; plait exports bert"),
        ({}, "a 'None' backbone cannot be exported"),
        ({"model_type": "bert", "position_embedding_type": "relative_key"}, "only absolute can be exported"),
        ({"model_type": "deberta-v2", "conv_kernel_size": 3}, "convolution"),
        ({"model_type": "nomic_bert", "moe_every_n_layers": 2}, "moe_every_n_layers = 2"),
        ({"model_type": "qwen2", "hidden_size": 8, "num_attention_heads": 2, "use_sliding_window": True}, "sliding"),
        ({"model_type": "gte", "layer_norm_type": "rms_norm"}, "RMS"),
    ],
)
def test_a_backbone_without_a_graph_is_refused(config: dict[str, Any], message: str) -> None:
    with pytest.raises(ModelError, match=re.escape(message)):
        resolve_config(config)


def test_more_tokens_than_positions_are_refused() -> None:
    model = random_model("roberta")
    config = stored_config(model)
    with pytest.raises(ModelError, match="the backbone has 40 positions, and 41 tokens are wanted"):
        backbone_weights(config, state_of(model), length=LENGTH + 1)


def test_a_missing_tensor_is_named() -> None:
    model = random_model("bert")
    config, state = stored_config(model), state_of(model)
    del state["encoder.layer.1.output.dense.bias"]
    weights = backbone_weights(config, state, length=LENGTH)
    with pytest.raises(ModelError, match=re.escape("no tensor 'encoder.layer.1.output.dense.bias'")):
        build_graph(weights, config, STATES)


def test_tensors_of_another_model_are_refused() -> None:
    state = state_of(random_model("bert"))
    with pytest.raises(ModelError, match="no word embeddings"):
        backbone_tensors({"model_type": "t5"}, state)
    with pytest.raises(ModelError, match="no word embeddings"):
        backbone_weights({"model_type": "modernbert"}, state, length=4)

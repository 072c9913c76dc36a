"""What several formats write alike: the backbone, the tokenizer, Dense modules, JSON files."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import AddedToken, Tokenizer

from plait.convert.checkpoint import Checkpoint
from plait.convert.layouts.common import ACTIVATION_NAMES, CONFIG, TOKENIZER_CONFIG
from plait.convert.source import SAFETENSORS, TOKENIZER
from plait.convert.tensors import Floats
from plait.encode.model_card import DocumentInput, QueryInput
from plait.errors import ConfigError
from plait.graphs.heads import DenseLayer, Layer, Linear, Norm
from plait.graphs.outputs import layers_dim

# The tokens of each role, by the names that tokenizers give them.
_ROLES = {
    "cls_token": ("[CLS]", "<s>"),
    "sep_token": ("[SEP]", "</s>"),
    "mask_token": ("[MASK]", "<mask>"),
    "pad_token": ("[PAD]", "<pad>", "<|endoftext|>"),
    "unk_token": ("[UNK]", "<unk>"),
    "bos_token": ("<s>",),
    "eos_token": ("</s>", "<|im_end|>", "<|endoftext|>"),
}
# A class of transformers 4 and 5 that does not change what tokenizer.json says. Version 5 calls it TokenizersBackend,
# a name that version 4 does not know; the classes of single families, in version 5, make a new normalizer.
GENERAL_TOKENIZER = "PreTrainedTokenizerFast"
_BERT_TOKENIZERS = ("BertTokenizer", "DistilBertTokenizer")
_NO_CLS = ("t5", "mt5", "qwen3", "qwen2", "llama", "mistral")  # their texts do not begin with a special token
# Tensors that transformers makes from another one.
_TIED = {"encoder.embed_tokens.weight": "shared.weight"}
_CLASS_NAMES = {name: cls for cls, name in ACTIVATION_NAMES.items()}
_ACTIVATION_MODULES = {"Identity": "linear"}  # where torch.nn has a class; the others are in `activation`


def write_json(path: Path, content: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def write_tensors(path: Path, tensors: Mapping[str, Floats]) -> None:
    """Writes a file of safetensors, which says that it is for torch."""
    from safetensors.numpy import save_file

    path.parent.mkdir(parents=True, exist_ok=True)
    arrays = {name: np.ascontiguousarray(value, np.float32) for name, value in tensors.items()}
    save_file(arrays, str(path), metadata={"format": "pt"})


def write_backbone(
    checkpoint: Checkpoint,
    folder: Path,
    *,
    architecture: str = "",
    prefix: str = "",
    heads: Mapping[str, Floats] | None = None,
    settings: Mapping[str, Any] | None = None,
) -> None:
    """Writes config.json and model.safetensors. `prefix` goes before the names of the backbone's tensors, as in a model
    with a head; `heads` are tensors of such a head, and `settings` are added to the config."""
    tensors = {
        f"{prefix}{name}": value
        for name, value in checkpoint.tensors.items()
        if _TIED.get(name) not in checkpoint.tensors
    }
    write_tensors(folder / SAFETENSORS, {**tensors, **(heads or {})})
    config = {key: value for key, value in checkpoint.config.items() if not key.startswith("_")}
    for key in ("auto_map", "dtype", "torch_dtype", "transformers_version"):
        config.pop(key, None)
    architecture = architecture or _base_class(str(config["model_type"]))
    write_json(folder / CONFIG, {**config, **(settings or {}), "architectures": [architecture], "dtype": "float32"})


def _base_class(model_type: str) -> str:
    """The class of transformers for a backbone alone."""
    if model_type in ("t5", "mt5"):
        return "T5EncoderModel" if model_type == "t5" else "MT5EncoderModel"
    return class_name(model_type, "Model")


def class_name(model_type: str, suffix: str) -> str:
    """The class of transformers for a task: BertForSequenceClassification."""
    from transformers import CONFIG_MAPPING

    name: str = CONFIG_MAPPING[model_type].__name__
    return name.removesuffix("Config") + suffix


def special_tokens(checkpoint: Checkpoint, tokenizer: Tokenizer) -> dict[str, str]:
    """The special tokens by role, as tokenizer_config.json names them."""
    is_special = {token.content for token in tokenizer.get_added_tokens_decoder().values() if token.special}
    names: dict[str, str] = {}
    for role, known in _ROLES.items():
        if role in ("cls_token", "sep_token") and checkpoint.config["model_type"] in _NO_CLS:
            continue
        token = next((name for name in known if name in is_special), None)
        if token is not None:
            names[role] = token
    pad = checkpoint.config.get("pad_token_id")
    if isinstance(pad, int) and (token := tokenizer.id_to_token(pad)) in is_special:
        names["pad_token"] = str(token)
    return names


def write_tokenizer(
    checkpoint: Checkpoint,
    folder: Path,
    *,
    length: int,
    added: Sequence[str] = (),
    roles: Mapping[str, str] | None = None,
    cls: str = GENERAL_TOKENIZER,
) -> dict[str, str]:
    """Writes tokenizer.json and tokenizer_config.json, for any version of transformers from 4 on. `cls` is the class;
    the general one reads all from tokenizer.json. `added` become special tokens, `roles` replace special tokens by
    role. Returns the special tokens by role."""
    tokenizer = Tokenizer.from_str(checkpoint.tokenizer)
    for token in added:
        if tokenizer.token_to_id(token) is None:
            raise ConfigError(f"the vocabulary of {checkpoint.name} has no token {token!r}")
        tokenizer.add_special_tokens([AddedToken(token, normalized=False, special=True)])
    names = special_tokens(checkpoint, tokenizer) | dict(roles or {})
    content = {**json.loads(tokenizer.to_str()), "padding": None, "truncation": None}
    (folder / TOKENIZER).write_text(json.dumps(content, ensure_ascii=False), encoding="utf-8")
    types = ["token_type_ids"] if checkpoint.token_types else []
    settings = {
        "tokenizer_class": cls,
        "model_max_length": length,
        "model_input_names": ["input_ids", *types, "attention_mask"],
        "clean_up_tokenization_spaces": False,
        **(_bert_settings(content) if cls in _BERT_TOKENIZERS else {}),
        **names,
    }
    write_json(folder / TOKENIZER_CONFIG, settings)
    write_json(folder / "special_tokens_map.json", names)
    return names


def _bert_settings(content: Mapping[str, Any]) -> dict[str, Any]:
    """What a tokenizer of BERT in transformers 4 would else replace by its defaults."""
    normalizer = content.get("normalizer") or {}
    if normalizer.get("type") != "BertNormalizer":
        raise ConfigError("the tokenizer has not the normalizer of BERT, which transformers would put in its place")
    return {
        "do_lower_case": normalizer["lowercase"],
        "strip_accents": normalizer["strip_accents"],
        "tokenize_chinese_chars": normalizer["handle_chinese_chars"],
    }


def write_dense(folder: Path, layer: DenseLayer, *, settings: Mapping[str, Any]) -> None:
    """Writes a Dense module: config.json and its weights."""
    n_in, n_out = layer.linear.weight.shape
    name = _CLASS_NAMES.get(layer.activation)
    if name is None:
        raise ConfigError(f"a layer has the activation {layer.activation!r}, which a Dense module cannot have")
    tensors = {"linear.weight": layer.linear.weight.T}
    if layer.linear.bias is not None:
        tensors["linear.bias"] = layer.linear.bias
    if layer.residual is not None:
        tensors["residual.weight"] = layer.residual.weight.T
    config = {
        "in_features": n_in,
        "out_features": n_out,
        "bias": layer.linear.bias is not None,
        "activation_function": f"torch.nn.modules.{_ACTIVATION_MODULES.get(name, 'activation')}.{name}",
        "use_residual": layer.residual is not None or layer.adds_input,
        **settings,
    }
    write_json(folder / CONFIG, config)
    write_tensors(folder / SAFETENSORS, tensors)


def dense_layers(layers: Sequence[Layer], what: str) -> list[DenseLayer]:
    """The layers, if Dense modules can hold them all."""
    for layer in layers:
        if isinstance(layer, Norm):
            raise ConfigError(f"{what} has a norm, which a Dense module cannot hold")
    return [layer for layer in layers if isinstance(layer, DenseLayer)]


def truncated(layers: tuple[Layer, ...], dim: int | None, hidden: int) -> tuple[Layer, ...]:
    """The layers with an output of only the first `dim` dimensions, for formats that cannot keep a part of them."""
    if dim is None or dim == layers_dim(layers, hidden):
        return layers
    last = layers[-1]
    if isinstance(last, Norm) or last.adds_input:
        raise ConfigError(f"the last layer cannot be truncated to {dim} dimensions")
    residual = None if last.residual is None else _columns(last.residual, dim)
    return (*layers[:-1], replace(last, linear=_columns(last.linear, dim), residual=residual))


def _columns(linear: Linear, dim: int) -> Linear:
    return Linear(linear.weight[:, :dim], None if linear.bias is None else linear.bias[:dim])


def marker_of(checkpoint: Checkpoint, given: QueryInput | DocumentInput) -> tuple[str, str]:
    """The marker and the prefix of an input. A prefix that is one token of the vocabulary and is not joined with the
    text, as recipes write ColBERT's [unused0], is a marker."""
    token = given.prefix.strip()
    is_marker = not given.marker and not given.joined and token
    if is_marker and Tokenizer.from_str(checkpoint.tokenizer).token_to_id(token) is not None:
        return token, ""
    return given.marker, given.prefix


def strip_notes(checkpoint: Checkpoint) -> list[str]:
    """A note for libraries that keep the whitespace around a text, if the model was trained without it."""
    is_stripped = checkpoint.query.strip or checkpoint.document.strip
    return ["remove the whitespace around texts yourself, as the model was trained"] if is_stripped else []


def versions() -> dict[str, str]:
    """The versions that wrote a folder."""
    known = {}
    for package in ("plait", "transformers", "torch"):
        try:
            known[package] = version(package)
        except PackageNotFoundError:
            continue
    return known

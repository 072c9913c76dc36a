"""PyLate: a Transformer and one or several Dense modules on token embeddings, settings in
config_sentence_transformers.json."""

from __future__ import annotations

import string
from collections.abc import Sequence
from typing import Any

from tokenizers import Tokenizer

from plait.convert.checkpoint import Checkpoint, Overrides
from plait.convert.layouts.common import (
    DEFAULT,
    Reader,
    about,
    backbone_config,
    chained,
    dense_layer,
    hidden_size,
    inputs,
)
from plait.convert.layouts.sentence_transformers import MODULES, ST_CONFIG, read_modules
from plait.convert.source import Source
from plait.convert.tokenizer_json import require_token, special_names, tokenizer_text
from plait.encode.model_card import Expansion, MultiSpec
from plait.errors import ModelError
from plait.graphs.heads import Heads, MultiHead
from plait.graphs.weights import backbone_tensors

LAYOUT = "pylate"


def read(source: Source, overrides: Overrides | None = None) -> Checkpoint:
    """The model in a folder of PyLate."""
    reader = Reader.open(source, overrides)
    modules = read_modules(source)
    path = modules[0].path if modules and modules[0].kind == "Transformer" else None
    dense = [module for module in modules if module.kind == "Dense"]
    if path is None or not dense:
        raise ModelError(
            f"{source.folder / MODULES} has {', '.join(module.kind for module in modules) or 'nothing'}; a model of "
            f"PyLate has a Transformer and at least one Dense. Without its Dense, PyLate would make a random projection"
        )
    config = backbone_config(reader, path)
    layers = [dense_layer(reader, module.path, default_activation="") for module in dense]
    chain = chained(layers, hidden_size(config), source.name)
    tokenizer = reader.tokenizer(path)
    settings = source.json_or_empty(ST_CONFIG)
    markers = [_marker(reader, tokenizer, side, default) for side, default in (("query", "[Q] "), ("document", "[D] "))]
    lengths = [_length(reader, settings, f"{side}_length", n) for side, n in (("query", 32), ("document", 180))]
    query, document = inputs(
        reader,
        config,
        query_length=lengths[0],
        document_length=lengths[1],
        query_prompt=_prompt(settings),
        document_prompt=_prompt(settings),
        query_marker=markers[0],
        document_marker=markers[1],
        expansion=_expansion(reader, tokenizer, path, lengths[0][0]),
        strip=True,  # the library does so with every text
    )
    size = layers[-1].linear.weight.shape[1]
    dim = reader.overrides.dims
    skip = _skip_list(reader, tokenizer, path)
    return Checkpoint(
        layout=LAYOUT,
        folder=source.folder / path,
        name=source.name,
        config=config,
        tensors=backbone_tensors(config, source.tensors(path)),
        tokenizer=tokenizer_text(tokenizer),
        heads=Heads(multi=MultiHead(chain, dim)),
        query=query,
        document=document,
        multi=MultiSpec(dim=dim or size, special_rows=True, skip=skip),
        readings=tuple(reader.readings.entries),
        **about(source),
    )


def _marker(reader: Reader, tokenizer: Tokenizer, side: str, default: str) -> str:
    """The token that is inserted after the first one; the empty string is none."""
    marker = reader.setting(f"{side} marker", ST_CONFIG, f"{side}_prefix", default)
    if marker:
        require_token(tokenizer, marker, ST_CONFIG)
    return marker


def _length(reader: Reader, settings: dict[str, Any], key: str, default: int) -> tuple[int, str]:
    value = settings.get(key)
    if value is None:
        return default, DEFAULT
    if not isinstance(value, int) or value < 4:
        raise ModelError(
            f"{reader.source.folder / ST_CONFIG}: {key!r} is {value!r:.100}; it must be a number of tokens"
        )
    return value, f"{ST_CONFIG}: {key}"


def _prompt(settings: dict[str, Any]) -> tuple[str, str]:
    """PyLate adds a prompt only if the config has the name of a default one; it is the same for both sides."""
    name, prompts = settings.get("default_prompt_name"), settings.get("prompts") or {}
    if name is None or not isinstance(prompts, dict) or name not in prompts:
        return "", DEFAULT
    return str(prompts[name]), f"{ST_CONFIG}: prompts, {name}"


def _expansion(reader: Reader, tokenizer: Tokenizer, path: str, length: int) -> Expansion | None:
    if not reader.setting("query expansion", ST_CONFIG, "do_query_expansion", True):
        return None
    attended = reader.setting("attend to expansion", ST_CONFIG, "attend_to_expansion_tokens", False)
    names = special_names(reader.source, path)
    token = next((names[name] for name in ("mask_token", "eos_token", "pad_token") if name in names), None)
    if token is None:
        raise ModelError(f"{reader.source.folder} has no mask, end or padding token for query expansion")
    require_token(tokenizer, token, "query expansion")
    return Expansion(token, length, attended)


def _skip_list(reader: Reader, tokenizer: Tokenizer, path: str) -> tuple[str, ...]:
    """The tokens without a vector in documents. As in PyLate, a word that is not in the vocabulary stands for the
    unknown token, which is then skipped too."""
    words = reader.setting("skip list", ST_CONFIG, "skiplist_words", list(string.punctuation))
    return skip_tokens(tokenizer, words, special_names(reader.source, path).get("unk_token"))


def skip_tokens(tokenizer: Tokenizer, words: Sequence[object], unknown: str | None) -> tuple[str, ...]:
    """The tokens of a skip list; `unknown` stands for words that are not in the vocabulary."""
    if not all(isinstance(word, str) for word in words):
        raise ModelError(f"'skiplist_words' must be a list of tokens; it is {words!r:.200}")
    tokens = [word if tokenizer.token_to_id(str(word)) is not None else unknown for word in words]
    return tuple(dict.fromkeys(str(token) for token in tokens if token is not None))

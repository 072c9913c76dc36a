"""Models of sentence-transformers that give dense vectors or multi vectors: modules.json lists their modules in order.

Dense: Transformer, Pooling, Dense layers, Normalize. Multi vectors: Transformer, Dense layers on token embeddings,
MultiVectorMask, Normalize. All versions up to 6 are read, the old places of settings included.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from plait.convert.checkpoint import Checkpoint, Overrides
from plait.convert.layouts.common import (
    CONFIG,
    DEFAULT,
    TOKENIZER_CONFIG,
    USER,
    Reader,
    about,
    backbone_config,
    chained,
    dense_layer,
    hidden_size,
    inputs,
    longest,
)
from plait.convert.source import Source
from plait.convert.tokenizer_json import lower_case, special_names, tokenizer_text
from plait.encode.model_card import COSINE, DOT, Expansion, MultiSpec
from plait.errors import ConfigError, ModelError
from plait.graphs.heads import DenseHead, DenseLayer, Heads, Linear, MultiHead
from plait.graphs.weights import backbone_tensors

LAYOUT = "sentence-transformers"
MODULES, ST_CONFIG = "modules.json", "config_sentence_transformers.json"
# The names of the config of the Transformer module, in the order in which the library looks for them.
TRANSFORMER_CONFIGS = tuple(
    f"sentence_{kind}_config.json"
    for kind in ("bert", "roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet")
)
# The old settings of Pooling, in the order in which the vectors are concatenated.
OLD_POOLINGS = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}
SIMILARITIES = {"cosine": COSINE, "dot": DOT, "dot_score": DOT}


@dataclass(frozen=True, slots=True)
class Module:
    """An entry of modules.json: the name of the class without its package, and the folder of its files."""

    kind: str
    path: str


def read_modules(source: Source) -> list[Module]:
    """The modules in the order in which they run."""
    modules = []
    for entry in source.json_list(MODULES):
        kind, path = entry.get("type"), entry.get("path", "")
        if not isinstance(kind, str) or not isinstance(path, str) or ".." in path or path.startswith("/"):
            raise ModelError(f"{source.folder / MODULES} has the entry {entry!r:.200}, which names no module")
        modules.append(Module(kind.rsplit(".", 1)[-1], path.strip("/")))
    return modules


def read(source: Source, overrides: Overrides | None = None) -> Checkpoint:
    """The model in a folder of sentence-transformers; dense or multi vectors, by its modules."""
    reader = Reader.open(source, overrides)
    modules = read_modules(source)
    if not modules or modules[0].kind != "Transformer":
        first = modules[0].kind if modules else "nothing"
        raise ModelError(
            f"{source.folder / MODULES} begins with {first}; plait reads models that begin with Transformer"
        )
    parts = _Parts(reader, modules[0].path)
    is_multi = source.json_or_empty(ST_CONFIG).get("model_type") == "MultiVectorEncoder"
    return _multi(parts, modules[1:]) if is_multi else _dense(parts, modules[1:])


class _Parts:
    """The parts that dense and multi-vector models have alike: backbone, tokenizer, lengths and prompts."""

    def __init__(self, reader: Reader, path: str) -> None:
        self.reader, self.path = reader, path
        self.config = backbone_config(reader, path)
        self.settings_file = next(
            (file for name in TRANSFORMER_CONFIGS if reader.source.has(file := _join(path, name))), _join(path, CONFIG)
        )
        self.settings = reader.source.json_or_empty(self.settings_file) if "sentence_" in self.settings_file else {}
        self.tokenizer = reader.tokenizer(path)
        if self.settings.get("do_lower_case") and not _lowers(self.tokenizer.to_str()):
            lower_case(self.tokenizer)
            reader.readings.add("lower case", "true", f"{self.settings_file}: do_lower_case")

    def length(self) -> tuple[int, str]:
        """The most tokens of a text, and its source."""
        length = self.settings.get("max_seq_length")
        if isinstance(length, int) and length > 0:
            return length, f"{self.settings_file}: max_seq_length"
        return longest(self.reader, self.config, self.path)

    def prompts(self) -> tuple[tuple[str, str], tuple[str, str]]:
        """The prompts of queries and documents, and their sources."""
        config = self.reader.source.json_or_empty(ST_CONFIG)
        prompts = config.get("prompts") or {}
        if not isinstance(prompts, dict) or not all(isinstance(text, str) for text in prompts.values()):
            raise ModelError(f"{self.reader.source.folder / ST_CONFIG}: 'prompts' must map names to texts")
        default = config.get("default_prompt_name")
        fallback = (prompts[default], f"{ST_CONFIG}: prompts, {default}") if default in prompts else ("", DEFAULT)
        query, document = (
            next(((prompts[name], f"{ST_CONFIG}: prompts, {name}") for name in names if name in prompts), fallback)
            for names in (("query",), ("document", "passage", "corpus"))
        )
        return query, document

    def checkpoint(self, **fields: Any) -> Checkpoint:
        reader = self.reader
        return Checkpoint(
            layout=LAYOUT,
            folder=reader.source.folder / self.path,
            name=reader.source.name,
            config=self.config,
            tensors=backbone_tensors(self.config, reader.source.tensors(self.path)),
            tokenizer=tokenizer_text(self.tokenizer),
            readings=tuple(reader.readings.entries),
            warnings=tuple(reader.warnings),
            **about(reader.source),
            **fields,
        )


def _dense(parts: _Parts, modules: list[Module]) -> Checkpoint:
    reader = parts.reader
    poolings: tuple[str, ...] = ()
    layers: list[DenseLayer] = []
    normalize = False
    for module in modules:
        if module.kind == "Pooling" and not poolings:
            poolings = _poolings(reader, module, parts.prompts())
        elif module.kind == "Dense" and poolings:
            layers.append(dense_layer(reader, module.path))
            normalize = False
        elif module.kind == "Normalize" and poolings:
            normalize = True
        elif module.kind != "Dropout":
            raise ModelError(
                f"{reader.source.folder / MODULES} has the module {module.kind}; of dense models plait reads "
                f"Transformer, Pooling, Dense, Normalize and Dropout, in this order"
            )
    if not poolings:
        raise ModelError(f"{reader.source.folder / MODULES} has no Pooling; plait cannot know the vector of a text")
    reader.readings.add("normalize", normalize, MODULES)
    hidden = hidden_size(parts.config) * len(poolings)
    chain = chained(layers, hidden, reader.source.name)
    dim = _dims(reader, layers[-1].linear.weight.shape[1] if layers else hidden)
    query_prompt, document_prompt = parts.prompts()
    length = parts.length()
    query, document = inputs(
        reader,
        parts.config,
        query_length=_side_length(parts, "query_length", length),
        document_length=_side_length(parts, "document_length", length),
        query_prompt=query_prompt,
        document_prompt=document_prompt,
    )
    similarity = _similarity(reader)
    # Normalising vectors changes no cosine, and cosine is then the dot product that an index computes. Vectors that
    # are compared by dot product keep their lengths.
    normalize = normalize or similarity == COSINE
    return parts.checkpoint(
        heads=Heads(dense=DenseHead(poolings, chain, dim, normalize)),
        query=query,
        document=document,
        similarity=similarity,
    )


def _poolings(reader: Reader, module: Module, prompts: tuple[tuple[str, str], tuple[str, str]]) -> tuple[str, ...]:
    file = _join(module.path, CONFIG)
    config = reader.source.json(file)
    modes = config.get("pooling_mode")
    source = f"{file}: pooling_mode"
    if modes is None:
        modes = [mode for key, mode in OLD_POOLINGS.items() if config.get(key)] or ["mean"]
        source = f"{file}: pooling_mode_..."
    if reader.overrides.pooling is not None:
        modes, source = reader.overrides.pooling.split("+"), USER
    modes = [modes] if isinstance(modes, str) else modes
    known = set(OLD_POOLINGS.values())
    if not isinstance(modes, list) or not modes or not set(map(str, modes)) <= known | {"mcls"}:
        raise ModelError(f"{reader.source.folder / file} has the pooling {modes!r:.100}; plait knows {sorted(known)}")
    given = (reader.overrides.query_prompt, reader.overrides.document_prompt)
    used = [read[0] if chosen is None else chosen for chosen, read in zip(given, prompts, strict=True)]
    if not config.get("include_prompt", True) and any(used):
        raise ModelError(
            f"{reader.source.folder / file} leaves the prompt out of the mean (include_prompt is false), which plait "
            f"cannot do; convert with --query-prompt '' --document-prompt '' to use the model without prompts"
        )
    reader.readings.add("pooling", "+".join(modes), source)
    return tuple(modes)


def _dims(reader: Reader, size: int) -> int | None:
    config = reader.source.json_or_empty(ST_CONFIG)
    given, source = reader.overrides.dims, USER
    if given is None:
        given, source = config.get("truncate_dim"), f"{ST_CONFIG}: truncate_dim"
    if given is None:
        return None
    if not isinstance(given, int) or not 1 <= given <= size:
        raise ConfigError(f"the vectors have {size} dimensions; {given} cannot be kept")
    reader.readings.add("dimensions", f"the first {given} of {size}", source)
    return given


def _similarity(reader: Reader) -> str:
    name = reader.setting("similarity", ST_CONFIG, "similarity_fn_name", "cosine")
    if name not in SIMILARITIES:
        raise ModelError(
            f"{reader.source.folder / ST_CONFIG}: the similarity is {name!r}; plait has {', '.join(SIMILARITIES)}"
        )
    return SIMILARITIES[name]


def _multi(parts: _Parts, modules: list[Module]) -> Checkpoint:
    reader = parts.reader
    layers: list[DenseLayer] = []
    mask: dict[str, Any] = {}
    mask_file = ""
    normalizes = False
    for module in modules:
        if module.kind == "Dense":
            layers.append(dense_layer(reader, module.path))
        elif module.kind == "MultiVectorMask":
            mask_file = _join(module.path, CONFIG)
            mask = reader.source.json(mask_file)
        elif module.kind == "Normalize":
            normalizes = True
        else:
            raise ModelError(
                f"{reader.source.folder / MODULES} has the module {module.kind}; of multi-vector models plait reads "
                f"Transformer, Dense, MultiVectorMask and Normalize"
            )
    if not normalizes:
        raise ModelError(f"{reader.source.folder / MODULES} has no Normalize; plait stores multi vectors of length 1")
    hidden = hidden_size(parts.config)
    dim = _dims(reader, layers[-1].linear.weight.shape[1] if layers else hidden)
    head = MultiHead(chained(layers, hidden, reader.source.name) or identity(hidden), dim)
    skip, skip_queries = _skip(parts, mask, mask_file)
    query_prompt, document_prompt = parts.prompts()
    length = parts.length()
    query_length = _side_length(parts, "query_length", length)
    expansion = _expansion(parts)
    strategy = (parts.settings.get("query_expansion") or {}).get("strategy")
    if expansion is not None and strategy == "fixed":
        query_length = (expansion.length, f"{parts.settings_file}: query_expansion, length")
    query, document = inputs(
        reader,
        parts.config,
        query_length=query_length,
        document_length=_side_length(parts, "document_length", length),
        query_prompt=query_prompt,
        document_prompt=document_prompt,
        expansion=expansion,
    )
    size = dim or (layers[-1].linear.weight.shape[1] if layers else hidden)
    return parts.checkpoint(
        heads=Heads(multi=head),
        query=query,
        document=document,
        multi=MultiSpec(dim=size, special_rows=True, skip=skip, skip_queries=skip_queries),
    )


def identity(hidden: int) -> tuple[DenseLayer, ...]:
    """A layer that changes nothing, for multi vectors without a projection."""
    import numpy as np

    return (DenseLayer(Linear(np.eye(hidden, dtype=np.float32))),)


def _side_length(parts: _Parts, key: str, default: tuple[int, str]) -> tuple[int, str]:
    value = parts.settings.get(key)
    return (value, f"{parts.settings_file}: {key}") if isinstance(value, int) and value > 0 else default


def _expansion(parts: _Parts) -> Expansion | None:
    raw = parts.settings.get("query_expansion")
    where = f"{parts.settings_file}: query_expansion"
    if raw is None:
        return None
    if (
        not isinstance(raw, dict)
        or raw.get("strategy") not in ("fixed", "min")
        or not isinstance(raw.get("length"), int)
    ):
        raise ModelError(f"{parts.reader.source.folder / parts.settings_file}: query_expansion is {raw!r:.200}")
    names = special_names(parts.reader.source, parts.path)
    token = raw.get("token") or names.get("mask_token") or names.get("eos_token")
    if token is None or parts.tokenizer.token_to_id(token) is None:
        raise ModelError(f"{where} needs a token, and the tokenizer has neither a mask token nor an end token")
    expansion = Expansion(token, raw["length"], bool(raw.get("attend", False)))
    attention = "attended" if expansion.attended else "not attended"
    parts.reader.readings.add("query expansion", f"{token} to {expansion.length} tokens, {attention}", where)
    return expansion


def _skip(parts: _Parts, mask: dict[str, Any], file: str) -> tuple[tuple[str, ...], bool]:
    """The tokens without a vector, and whether queries skip them too."""
    words, tasks = mask.get("skiplist_words") or [], mask.get("skiplist_tasks") or ["document"]
    if mask.get("keep_only_token_ids"):
        raise ModelError(
            f"{parts.reader.source.folder / file}: keep_only_token_ids is for images, which plait cannot read"
        )
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        raise ModelError(f"{parts.reader.source.folder / file}: 'skiplist_words' must be a list of tokens")
    unknown = special_names(parts.reader.source, parts.path).get("unk_token")
    skip = tuple(word for word in words if parts.tokenizer.token_to_id(word) is not None or word == unknown)
    if words:
        dropped = f", {len(words) - len(skip)} of them not in the vocabulary" if len(skip) < len(words) else ""
        parts.reader.readings.add("skip list", f"{len(words)} tokens{dropped}", f"{file}: skiplist_words")
    tasks = [tasks] if isinstance(tasks, str) else tasks
    if skip and "document" not in tasks:
        raise ModelError(f"{parts.reader.source.folder / file}: the skip list is for {tasks}; plait skips in documents")
    return skip, "query" in tasks and bool(skip)


def _lowers(tokenizer: str) -> bool:
    return '"Lowercase"' in tokenizer or '"lowercase": true' in tokenizer or '"lowercase":true' in tokenizer


def _join(path: str, file: str) -> str:
    return f"{path}/{file}" if path else file


__all__ = ["LAYOUT", "TOKENIZER_CONFIG", "Module", "read", "read_modules"]

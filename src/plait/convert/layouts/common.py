"""What several layouts read alike: the config of the backbone, lengths, prompts, Dense modules, licence, languages."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from tokenizers import Tokenizer

from plait.convert.checkpoint import Overrides, Readings
from plait.convert.source import Source
from plait.convert.tensors import Tensors
from plait.convert.tokenizer_json import parse_tokenizer
from plait.encode.model_card import DocumentInput, Expansion, QueryInput
from plait.errors import ConfigError, ModelError
from plait.graphs.builder import ACTIVATIONS
from plait.graphs.config import position_offset, resolve_config
from plait.graphs.heads import DenseLayer, Layer, Linear

CONFIG, TOKENIZER_CONFIG = "config.json", "tokenizer_config.json"
DEFAULT, USER = "default of the layout", "given by you"
DEFAULT_LENGTH = 512  # for a backbone that sets no limit
MAX_DEFAULT_LENGTH = 8192  # longer passages must be asked for
MAX_OVERLAP = 64
# Architectures whose code is in their hub repository, and which plait builds by itself.
BUILT_IN_REMOTE = ("nomic_bert", "new")
NO_GRAPH = ("onnx",)  # the model type of a folder whose graph is finished
ACTIVATION_NAMES = {
    "Identity": "",
    "Tanh": "tanh",
    "ReLU": "relu",
    "GELU": "gelu",
    "Sigmoid": "sigmoid",
    "SiLU": "silu",
}

T = TypeVar("T")


@dataclass(slots=True)
class Reader:
    """A checkpoint that is being read: the folder, the user's overrides, and what was read so far."""

    source: Source
    overrides: Overrides
    readings: Readings
    warnings: list[str]

    @classmethod
    def open(cls, source: Source, overrides: Overrides | None = None) -> Reader:
        return cls(source, overrides or Overrides(), Readings(), [])

    def setting(
        self, what: str, file: str, keys: str | tuple[str, ...], default: T, *, config: Mapping[str, Any] | None = None
    ) -> T:
        """A value of a JSON file, of the type of its default; the default if no key is there or it is null."""
        values = self.source.json_or_empty(file) if config is None else config
        for key in (keys,) if isinstance(keys, str) else keys:
            value = values.get(key)
            if value is None:
                continue
            wrong = not isinstance(value, type(default)) or (isinstance(value, bool) != isinstance(default, bool))
            if wrong:
                kind = type(default).__name__
                raise ModelError(f"{self.source.folder / file}: {key!r} is {value!r:.100}; it must be of type {kind}")
            self.readings.add(what, value, f"{file}: {key}")
            read: T = value
            return read
        self.readings.add(what, default, DEFAULT)
        return default

    def tokenizer(self, subfolder: str = "") -> Tokenizer:
        return parse_tokenizer(self.source.tokenizer(subfolder), str(self.source.folder / subfolder))


def backbone_config(reader: Reader, subfolder: str = "", *, may_have_code: bool = False) -> dict[str, Any]:
    """The config of the backbone; ModelError if it needs code of its repository, or if plait has no graph for it."""
    file = _join(subfolder, CONFIG)
    raw = reader.source.json(file)
    kind = raw.get("model_type")
    if not isinstance(kind, str):
        raise ModelError(f"{reader.source.folder / file} has no 'model_type'; plait cannot know the architecture")
    if raw.get("auto_map") and kind not in BUILT_IN_REMOTE and not may_have_code:
        raise ModelError(
            f"{reader.source.name} brings code of its own ({file}: auto_map), and plait runs no code of a checkpoint; "
            f"of such architectures it has {', '.join(BUILT_IN_REMOTE)} and ConstBERT built in"
        )
    resolve_config(raw)
    reader.readings.add("backbone", kind, f"{file}: model_type")
    return raw


def positions(config: Mapping[str, Any]) -> int | None:
    """How many tokens the position embeddings are for; None if the architecture sets no limit."""
    limit = config.get("max_position_embeddings") or config.get("n_positions")
    if not isinstance(limit, int) or limit < 1 or config["model_type"] in ("t5", "mt5", "static"):
        return None
    if config["model_type"] in NO_GRAPH:
        return limit
    return limit - position_offset(resolve_config(config))


def longest(reader: Reader, config: Mapping[str, Any], subfolder: str = "") -> tuple[int, str]:
    """The number of tokens that a text may have, and where it was read."""
    limit, source = DEFAULT_LENGTH, DEFAULT
    limits: list[tuple[int, str]] = []
    file = _join(subfolder, TOKENIZER_CONFIG)
    length = reader.source.json_or_empty(file).get("model_max_length")
    if isinstance(length, int | float) and 0 < length < 10**6:
        limits.append((int(length), f"{file}: model_max_length"))
    if (limit_of_positions := positions(config)) is not None:
        limits.append((limit_of_positions, f"{_join(subfolder, CONFIG)}: max_position_embeddings"))
    if limits:
        limit, source = min(limits)
    if limit > MAX_DEFAULT_LENGTH:
        return MAX_DEFAULT_LENGTH, f"limit of plait; the model has {limit:,}"
    return limit, source


def inputs(
    reader: Reader,
    config: Mapping[str, Any],
    *,
    query_length: tuple[int, str],
    document_length: tuple[int, str],
    query_prompt: tuple[str, str] = ("", DEFAULT),
    document_prompt: tuple[str, str] = ("", DEFAULT),
    query_marker: str = "",
    document_marker: str = "",
    expansion: Expansion | None = None,
    mcls: int | None = None,
    strip: bool = False,
    has_static_queries: bool = False,
) -> tuple[QueryInput, DocumentInput]:
    """How queries and documents become tokens. Each setting comes with its source; the user's come first."""
    given = reader.overrides
    limit = positions(config)
    q_length = _length(reader, None if has_static_queries else limit, "query length", given.query_length, query_length)
    d_length = _length(reader, limit, "document length", given.document_length, document_length)
    q_prompt = _prompt(reader, "query prompt", given.query_prompt, query_prompt)
    d_prompt = _prompt(reader, "document prompt", given.document_prompt, document_prompt)
    if expansion is not None and given.query_length is not None:
        expansion = Expansion(expansion.token, q_length, expansion.attended)
    query = QueryInput(length=q_length, prefix=q_prompt, expansion=expansion, marker=query_marker, strip=strip)
    overlap = min(MAX_OVERLAP, d_length // 8)
    document = DocumentInput(
        length=d_length, prefix=d_prompt, overlap=overlap, mcls=mcls, marker=document_marker, strip=strip
    )
    return query, document


def _length(reader: Reader, limit: int | None, what: str, given: int | None, read: tuple[int, str]) -> int:
    length, source = (given, USER) if given is not None else read
    if limit is not None and length > limit:
        if given is not None:
            raise ConfigError(f"the {what} is {given}; the model has positions for {limit} tokens")
        length, source = limit, f"{CONFIG}: max_position_embeddings"
    reader.readings.add(what, length, source)
    return length


def _prompt(reader: Reader, what: str, given: str | None, read: tuple[str, str]) -> str:
    prompt, source = (given, USER) if given is not None else read
    if prompt or source != DEFAULT:
        reader.readings.add(what, repr(prompt), source)
    return prompt


def dense_layer(reader: Reader, subfolder: str, *, default_activation: str = "tanh") -> DenseLayer:
    """A Dense module of sentence-transformers or PyLate: act(linear(x)), plus a residual."""
    file = _join(subfolder, CONFIG)
    settings = reader.source.json(file)
    tensors = reader.source.tensors(subfolder)
    weight = matrix(tensors, "linear.weight", reader.source, subfolder)
    expected = (settings.get("out_features"), settings.get("in_features"))
    if weight.shape != expected:
        raise ModelError(
            f"{reader.source.folder / subfolder} has a linear.weight of shape {list(weight.shape)}; its config says "
            f"{list(expected)}"
        )
    bias = tensors.get("linear.bias")
    activation = activation_of(settings.get("activation_function"), f"{subfolder}/{CONFIG}", default_activation)
    use_residual = bool(settings.get("use_residual", False))
    is_square = weight.shape[0] == weight.shape[1]
    residual = None
    if use_residual and not is_square:
        residual = Linear(matrix(tensors, "residual.weight", reader.source, subfolder).T)
    shown = f"{weight.shape[1]} to {weight.shape[0]}{f', {activation}' if activation else ''}"
    reader.readings.add("dense layer", f"{shown}{', residual' if use_residual else ''}", subfolder)
    return DenseLayer(Linear(weight.T, bias), activation, residual, adds_input=use_residual and is_square)


def matrix(tensors: Tensors, name: str, source: Source, subfolder: str = "") -> Any:
    """A tensor of two axes; ModelError if it is missing."""
    if name not in tensors:
        raise ModelError(
            f"{source.folder / subfolder} has no tensor {name!r} in {tensors.where}; it has "
            f"{', '.join(list(tensors)[:6]) or 'none'}"
        )
    value = tensors[name]
    if value.ndim != 2:
        raise ModelError(
            f"{source.folder / subfolder}: {name!r} has the shape {list(value.shape)}; it must be a matrix"
        )
    return value


def activation_of(value: object, where: str, default: str) -> str:
    """The name in plait of an activation by its class in torch; ModelError for one that plait does not have."""
    if value is None:
        return default
    name = str(value).rsplit(".", 1)[-1]
    if not str(value).startswith("torch.nn.") or name not in ACTIVATION_NAMES:
        raise ModelError(
            f"{where} has the activation {value!r:.100}; plait knows {', '.join(sorted(ACTIVATION_NAMES))} of torch.nn"
        )
    activation = ACTIVATION_NAMES[name]
    if activation and activation not in ACTIVATIONS:
        raise ModelError(f"{where} has the activation {name}, which plait's graphs do not have")
    return activation


def chained(layers: list[DenseLayer], hidden: int, where: str) -> tuple[Layer, ...]:
    """The layers, after checking that each takes the size that the one before it gives."""
    size = hidden
    for number, layer in enumerate(layers):
        if layer.linear.weight.shape[0] != size:
            raise ModelError(
                f"dense layer {number + 1} of {where} takes {layer.linear.weight.shape[0]} dimensions, and gets {size}"
            )
        size = layer.linear.weight.shape[1]
    return tuple(layers)


def hidden_size(config: Mapping[str, Any]) -> int:
    size = resolve_config(config).get("hidden_size")
    if not isinstance(size, int) or size < 1:
        raise ModelError(f"the config of the backbone has no hidden size; it has {', '.join(list(config)[:8])}")
    return size


def about(source: Source) -> dict[str, Any]:
    """Licence, languages and attribution, from the page of the model; fields of `Checkpoint`."""
    fields = front_matter(source.text("README.md")) if source.has("README.md") else {}
    licence = (fields.get("license_name") or fields.get("license") or fields.get("licence") or [""])[0]
    if licence == "other" and fields.get("license_link"):
        licence = f"other: {fields['license_link'][0]}"
    return {
        "licence": licence or "not stated",
        "languages": tuple(fields.get("language", [])),
        "attribution": f"{source.name}, converted by plait" if source.revision else f"the checkpoint {source.name}",
    }


def front_matter(page: str) -> dict[str, list[str]]:
    """The simple entries at the head of a model page: `key: value`, `key: [a, b]` and lists of `- value`."""
    lines = page.lstrip("\ufeff").splitlines()
    fields: dict[str, list[str]] = {}
    if not lines or lines[0].strip() != "---":
        return fields
    key = ""
    for line in lines[1:]:
        if line.strip() == "---":
            break
        if line.startswith(("- ", "  - ")) and key:
            fields[key].append(_plain(line.strip().removeprefix("- ")))
        elif line[:1].isalpha() and ":" in line:
            key, _, value = line.partition(":")
            value = value.strip()
            values = value[1:-1].split(",") if value.startswith("[") and value.endswith("]") else [value]
            fields[key] = [_plain(one) for one in values if _plain(one)]
    return fields


def _plain(value: str) -> str:
    return value.strip().strip("'\"").strip()


def _join(subfolder: str, file: str) -> str:
    return f"{subfolder}/{file}" if subfolder else file

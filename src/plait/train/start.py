"""Training that starts from a checkpoint of another library: its backbone, projection, heads, tokenizer, markers,
prompts and lengths become those of the model in training. The recipe may change settings and add heads; what it changes
and what it adds is reported.

The readers of checkpoints are in plait.convert, which is above this package: the command line reads the checkpoint and
passes it on. `StartingModel` is what training needs of it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

from tokenizers import Tokenizer
from torch import nn

from plait.encode.model_card import DocumentInput, MultiSpec, QueryInput
from plait.errors import ConfigError
from plait.graphs.builder import DenseLayer
from plait.graphs.heads import MCLS, DenseHead, Heads, MixerArrays, MultiHead, SparseTokens, SparseVocabulary
from plait.rerank.cross_card import PairFormat
from plait.train.backbone import Backbone, load_backbone
from plait.train.head_layers import copy_array, copy_layers, copy_linear, layer_configs
from plait.train.model import Model
from plait.train.model_config import DenseHeadConfig, FixedConfig, MultiHeadConfig, SparseHeadConfig
from plait.train.run_folder import START, write_atomically

INPUTS = ("query", "document")
_SHAPES = ("dim", "bias", "layers")  # settings of a projection that its weights decide


class Setting(Protocol):
    """A setting, and where it was read."""

    @property
    def what(self) -> str: ...

    @property
    def value(self) -> str: ...

    @property
    def source(self) -> str: ...


class StartingModel(Protocol):
    """A checkpoint to start from; `plait.convert.checkpoint.Checkpoint` is one."""

    @property
    def layout(self) -> str: ...

    @property
    def name(self) -> str: ...

    @property
    def folder(self) -> Path | None: ...

    @property
    def config(self) -> Mapping[str, Any]: ...

    @property
    def tokenizer(self) -> str: ...

    @property
    def heads(self) -> Heads: ...

    @property
    def query(self) -> QueryInput: ...

    @property
    def document(self) -> DocumentInput: ...

    @property
    def multi(self) -> MultiSpec | None: ...

    @property
    def pair(self) -> PairFormat | None: ...

    @property
    def activation(self) -> str: ...

    @property
    def similarity(self) -> str: ...

    @property
    def token_types(self) -> bool: ...

    @property
    def readings(self) -> Sequence[Setting]: ...


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a model in training comes from."""

    name: str
    layout: str
    taken: tuple[str, ...]  # what was read from the checkpoint
    changed: tuple[str, ...]  # settings of the checkpoint that the recipe changes
    new: tuple[str, ...]  # heads that the checkpoint does not have; they begin with random weights

    def lines(self) -> list[str]:
        """For the user."""
        parts = [f"start: {self.name}, layout {self.layout}"]
        parts += [f"  taken over: {line}" for line in self.taken]
        parts += [f"  changed by the recipe: {line}" for line in self.changed]
        return parts + [f"  new, with random weights: {line}" for line in self.new]

    def write(self, folder: Path) -> None:
        """Writes start.json into the folder of a run."""
        write_atomically(folder / START, json.dumps(asdict(self), indent=2, ensure_ascii=False) + "\n")


def check_can_start(start: StartingModel) -> None:
    """ConfigError if plait cannot train what the checkpoint is."""
    heads, kind = start.heads, start.config.get("model_type")
    if kind == "static":
        raise ConfigError(
            f"{start.name} is a static model: it has a table of vectors and no layers, and plait trains none; start "
            f"from a transformer"
        )
    if start.folder is None or not any((heads.dense, heads.sparse, heads.multi, heads.score)):
        raise ConfigError(
            f"{start.name} ({start.layout}) has a finished graph and no weights, which cannot be trained; start from "
            f"the checkpoint that it was exported from"
        )
    if isinstance(heads.sparse, SparseVocabulary):
        raise ConfigError(
            f"{start.name} is a SPLADE: its head weighs every term of the vocabulary, and plait trains heads that "
            f"weigh the tokens of the text. Use it as it is with plait convert, or take its backbone alone with "
            f"backbone = {start.name!r} and train a new head"
        )


def encoder_values(start: StartingModel, given: Mapping[str, Any]) -> tuple[dict[str, Any], Origin]:
    """The section `model` of a recipe with everything that the checkpoint has; `given` is the section as the recipe has
    it, without the keys that matter in training only. ConfigError if it contradicts the weights of the checkpoint."""
    check_can_start(start)
    if start.pair is not None:
        raise ConfigError(
            f"{start.name} is a cross-encoder; train it with kind = 'cross-encoder' in [model], and the loss "
            f"cross-entropy"
        )
    taken = _taken(start)
    values: dict[str, Any] = {"name": start.name.rstrip("/").rsplit("/", 1)[-1], **taken}
    changed: list[str] = []
    new: list[str] = []
    for key, value in given.items():
        if key in taken and isinstance(taken[key], dict):
            values[key] = _merged(start, key, taken[key], value, changed, new)
        else:
            new += [f"{key} head"] if key in ("dense", "sparse", "multi") else []
            new += ["token adapter"] if key == "token_adapter" else []
            if key in taken and taken[key] != value:
                changed.append(f"{key} is {value!r}, was {taken[key]!r}")
            values[key] = value
    return values, origin_of(start, changed, new)


def origin_of(start: StartingModel, changed: Sequence[str], new: Sequence[str] = ()) -> Origin:
    """What was read from the checkpoint, what the recipe changes, and what is new."""
    readings = tuple(f"{one.what}: {one.value} ({one.source})" for one in start.readings)
    return Origin(start.name, start.layout, readings, tuple(changed), tuple(new))


def _taken(start: StartingModel) -> dict[str, Any]:
    heads = start.heads
    values: dict[str, Any] = {"backbone": start.name, "similarity": start.similarity}
    values |= {"query": asdict(start.query), "document": asdict(start.document)}
    if heads.dense is not None:
        values["dense"] = asdict(_dense_config(start, heads.dense))
    if isinstance(heads.sparse, SparseTokens):
        dropped = tuple(int(number) for number in (~heads.sparse.is_kept).nonzero()[0])
        values["sparse"] = asdict(SparseHeadConfig(zero_ids=dropped))
    if heads.multi is not None and start.multi is not None:
        values["multi"] = asdict(_multi_config(heads.multi, start.multi, heads.mixture))
    return values


def _dense_config(start: StartingModel, head: DenseHead) -> DenseHeadConfig:
    if MCLS in head.poolings:
        raise ConfigError(f"{start.name} is read with MCLS, which is for long documents in search; train without it")
    return DenseHeadConfig(
        pooling="+".join(head.poolings),
        layers=layer_configs(head.layers),
        dim=head.dim or 0,
        normalize=head.normalize,
    )


def _multi_config(head: MultiHead, spec: MultiSpec, mixture: MixerArrays | None) -> MultiHeadConfig:
    fixed = None
    if mixture is not None:
        fixed = FixedConfig(
            n_vectors=mixture.n_vectors,
            mixer="flat" if mixture.flat else "positions",
            zero_pads=mixture.zero_pads,
            bias=mixture.bias is not None,
            mixes_rows=mixture.mixes_rows,
        )
    layers = layer_configs(head.layers)
    is_plain = is_one_linear(head)
    return MultiHeadConfig(
        dim=spec.dim,
        bias=layers[0].bias if is_plain else False,
        layers=() if is_plain else layers,
        special_rows=spec.special_rows,
        first_row=spec.first_row,
        skip=spec.skip,
        skip_queries=spec.skip_queries,
        fixed=fixed,
    )


def is_one_linear(head: MultiHead) -> bool:
    """Whether a projection is one linear map, whose output is used as a whole."""
    match head.layers:
        case (DenseLayer(activation="", residual=None, adds_input=False, linear=linear),):
            return head.dim in (None, linear.weight.shape[1])
    return False


def _merged(
    start: StartingModel, key: str, taken: dict[str, Any], given: object, changed: list[str], new: list[str]
) -> dict[str, Any]:
    """A table of the checkpoint with the changes of the recipe."""
    if not isinstance(given, Mapping):
        raise ConfigError(f"[model.{key}] must be a table of keys and values; got {given!r:.40}")
    for name, value in given.items():
        if key == "multi" and name in _SHAPES and value != taken[name]:
            raise ConfigError(
                f"[model.multi] {name} is {value!r:.80}, and the projection of {start.name} has {taken[name]!r:.80}; "
                f"leave it out to keep the projection, or train a new one with backbone = {start.name!r}"
            )
        if key == "dense" and name == "layers" and value:
            raise ConfigError(f"[model.dense] layers are those of {start.name}; leave them out")
        if name == "fixed" and taken.get(name) is not None:
            _check_mixer(start, taken[name], value)
            continue
        if name == "fixed" or (key == "sparse" and name in ("hidden", "idf") and value):
            new.append(f"{key} {name}")
        elif name in taken and taken[name] != value:
            changed.append(f"{key} {name} is {value!r}, was {taken[name]!r}")
    changes = {name: value for name, value in given.items() if name != "fixed" or taken.get(name) is None}
    merged = {**taken, **changes}
    if key in INPUTS:
        _follow_length(key, taken, given, merged, changed)
    return merged


def _check_mixer(start: StartingModel, taken: Mapping[str, Any], given: object) -> None:
    wrong = [name for name, value in given.items() if taken.get(name) != value] if isinstance(given, Mapping) else ["?"]
    if wrong:
        raise ConfigError(
            f"[model.multi] fixed differs in {', '.join(wrong)} from the mixer of {start.name}; leave it out to keep "
            f"that mixer"
        )


def _follow_length(
    key: str, taken: Mapping[str, Any], given: Mapping[str, Any], merged: dict[str, Any], changed: list[str]
) -> None:
    """Expansion that fills a query to its length follows a new length; the overlap of shorter documents shrinks."""
    expansion, length = taken.get("expansion"), merged["length"]
    if expansion and "expansion" not in given and expansion["length"] == taken["length"] and length != taken["length"]:
        merged["expansion"] = {**expansion, "length": length}
        changed.append(f"{key} expansion follows to {length} tokens")
    if "overlap" in taken and "overlap" not in given and isinstance(length, int):
        merged["overlap"] = min(taken["overlap"], length // 8)


def start_tokenizer(start: StartingModel) -> Tokenizer:
    """The tokenizer of the checkpoint, with the changes that its layout asks for."""
    return Tokenizer.from_str(start.tokenizer)


def start_backbone(start: StartingModel, *, dropout: float | None = None) -> Backbone:
    """The backbone of the checkpoint, run by transformers."""
    from transformers import CONFIG_MAPPING

    kind = str(start.config.get("model_type"))
    if kind not in CONFIG_MAPPING:
        raise ConfigError(
            f"{start.name} has a {kind!r} backbone, which transformers has no code for; plait can convert it, but not "
            f"train it"
        )
    assert start.folder is not None
    return load_backbone(start.folder, dropout=dropout)


def copy_heads(model: Model, heads: Heads) -> None:
    """Copies the weights of all heads that the checkpoint has."""
    if heads.dense is not None and model.dense_layers is not None:
        copy_layers(model.dense_layers, heads.dense.layers)
    if isinstance(heads.sparse, SparseTokens) and model.sparse is not None:
        copy_linear(model.sparse.weigh, heads.sparse.linear)
    if heads.multi is not None and model.multi is not None:
        project = model.multi.project
        if isinstance(project, nn.Linear):
            first = heads.multi.layers[0]
            assert isinstance(first, DenseLayer)
            copy_linear(project, first.linear)
        elif isinstance(project, nn.Sequential):
            copy_layers(project, heads.multi.layers)
    if heads.mixture is not None and model.mixer is not None:
        copy_array(model.mixer.weight, heads.mixture.weight)
        if model.mixer.bias is not None and heads.mixture.bias is not None:
            copy_array(model.mixer.bias, heads.mixture.bias)

"""The sections `model` and `loss` of a recipe for a cross-encoder, checked before anything is loaded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from plait.encode.model_card import CROSS_KIND
from plait.errors import ConfigError
from plait.rerank.cross_card import ACTIVATIONS, Markers, PairFormat
from plait.train.head_layers import layer_configs
from plait.train.model_config import N_ADAPTER_HEADS, LayerConfig, read_layers
from plait.train.recipe import Recipe, read_section
from plait.train.start import Origin, StartingModel, check_can_start, origin_of, start_tokenizer

HEADS = ("cls", "emb", "maxsim")
CLASSIFIER = "classifier"  # the head of a sequence classifier that training starts from
# What a recipe may set for a model that starts from a checkpoint; everything else is decided by its weights.
START_KEYS = (
    "kind",
    "name",
    "start",
    "length",
    "query_length",
    "document_length",
    "query_prefix",
    "document_prefix",
    "dropout",
    "backbone_dropout",
    "activation",
)
LOSS_NAME = "cross-entropy"


@dataclass(frozen=True, slots=True, kw_only=True)
class CrossConfig:
    """A cross-encoder, except the weights and the tokenizer."""

    kind: str = CROSS_KIND
    name: str = CROSS_KIND
    backbone: str  # a folder or a hub name
    head: str = (
        "cls"  # cls: linear output at the first token; emb: product of two markers' states; maxsim: of all tokens
    )
    layers: int = 0  # use only the first layers of the backbone, this many; 0: all
    split_layers: int = 0  # in the first layers, this many, the texts do not see each other; these layers are frozen
    # Below 0, a token attends to the other text only if it matches well: the model starts closer to the encoder.
    cross_attention_bias: float = 0.0  # added to attention scores between the two texts, above split_layers
    joint_dim: int = 0  # the width of small layers above the backbone, where tokens see both texts; 0: none
    joint_layers: int = 1  # the number of these layers; with two, the second can collect what the first compared
    dropout: float = 0.1  # before the output of cls
    backbone_dropout: float = -1.0  # of the backbone in training; below 0 keeps the backbone's own
    scale: float = 1.0  # the score of emb or maxsim is multiplied by this
    length: int = 256  # tokens of a pair, special tokens included
    query_length: int = 64  # tokens that a query may have even if the document is long
    document_length: int = 0  # the maximum tokens of a document, whatever the query; 0: what the query leaves
    query_prefix: str = ""
    document_prefix: str = ""  # before the document, such as "[CLS]"
    markers: tuple[str, ...] = ("[unused0]", "[unused1]")  # of emb: after the query, after the document
    # Of the head "classifier", which is that of the checkpoint: pooling, then layers to one number.
    pooling: str = "cls"
    classifier_layers: tuple[LayerConfig, ...] = ()
    token_types: bool = True  # the model is given the type of each token, if it has types
    activation: str = ""  # of the score in search, "sigmoid" or none; training uses the score without it

    def __post_init__(self) -> None:
        if self.activation not in ACTIVATIONS:
            raise ConfigError(f"activation is {self.activation!r}; choose 'sigmoid', or leave it out")
        if self.head not in HEADS and not (self.head == CLASSIFIER and self.classifier_layers):
            raise ConfigError(f"head is {self.head!r}; choose one of {', '.join(HEADS)}")
        if self.layers < 0 or self.split_layers < 0 or not 0 <= self.dropout < 1 or self.scale <= 0:
            raise ConfigError(
                f"layers is {self.layers}, split_layers is {self.split_layers}, dropout is {self.dropout} and scale is "
                f"{self.scale}; layers and split_layers must be 0 or more, dropout from 0 to below 1, scale above 0"
            )
        if self.backbone_dropout >= 1:
            raise ConfigError(f"backbone_dropout is {self.backbone_dropout}; it is a share of values, below 1")
        if self.cross_attention_bias and not self.split_layers:
            raise ConfigError(
                f"cross_attention_bias is {self.cross_attention_bias}, and split_layers is 0; it is for the layers "
                f"above split_layers"
            )
        if self.joint_dim < 0 or self.joint_dim % N_ADAPTER_HEADS:
            raise ConfigError(f"joint_dim is {self.joint_dim}; it must be 0, or a multiple of {N_ADAPTER_HEADS}")
        if self.joint_layers < 1 or self.document_length < 0:
            raise ConfigError(
                f"joint_layers is {self.joint_layers} and document_length is {self.document_length}; they must be at "
                f"least 1, and 0 or more"
            )
        if not 0 < self.query_length < self.length:
            raise ConfigError(
                f"query_length is {self.query_length} and length is {self.length}; query_length must be above 0 and "
                f"below length"
            )
        if len(self.markers) != 2 or self.markers[0] == self.markers[1]:
            raise ConfigError(f"markers are {list(self.markers)}; there must be two different ones")

    @property
    def pair_input(self) -> PairInput:
        markers = Markers(*self.markers) if self.head == "emb" else None
        pair = PairFormat(self.length, self.query_length, self.query_prefix, self.document_prefix, self.document_length)
        return PairInput(self.name, pair, markers)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> CrossConfig:
        layers = read_layers(raw.get("classifier_layers", ()), "the config of the cross-encoder")
        return cls(**{**raw, "markers": tuple(raw["markers"]), "classifier_layers": layers})


@dataclass(frozen=True, slots=True)
class PairInput:
    """How pairs are tokenized: what `plait.rerank.pairs.PairTokenizer` needs."""

    name: str
    pair: PairFormat
    markers: Markers | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CrossEntropyConfig:
    """Cross-entropy of the positive against the query's own negatives, mixed with KL to a teacher's distribution."""

    name: str = LOSS_NAME
    teacher_weight: float = 0.0  # the share of the teacher: 0 is labels alone, 1 the teacher alone
    teacher_scale: float = 1.0  # teacher scores are multiplied by this before the softmax
    microbatch: int = 0  # queries whose pairs pass the model together; 0: all of the batch

    def __post_init__(self) -> None:
        if not 0 <= self.teacher_weight <= 1 or self.teacher_scale <= 0 or self.microbatch < 0:
            raise ConfigError(
                f"teacher_weight is {self.teacher_weight}, teacher_scale is {self.teacher_scale} and microbatch is "
                f"{self.microbatch}; they must be from 0 to 1, above 0, and 0 or more"
            )


@dataclass(frozen=True, slots=True)
class CrossPlan:
    """The two sections, checked."""

    model: CrossConfig
    loss: CrossEntropyConfig
    tokenizer: str = ""
    graph: str = ""  # a model folder or bundled model whose ONNX graph computes the states of texts in training
    random: Mapping[str, Any] = field(default_factory=dict)
    start: StartingModel | None = None
    origin: Origin | None = None  # what was taken over from `start`


def is_cross(recipe: Recipe) -> bool:
    return recipe.model.get("kind") == CROSS_KIND


def read_cross_plan(recipe: Recipe, start: StartingModel | None = None) -> CrossPlan:
    """The sections `model` and `loss` of a cross-encoder; ConfigError says what is wrong with them. Loads nothing."""
    location, values = recipe.location("model"), dict(recipe.model)
    random, tokenizer, graph = values.pop("random", {}), values.pop("tokenizer", ""), values.pop("graph", "")
    if not isinstance(random, Mapping) or (random and "model_type" not in random):
        raise ConfigError(
            f"{location.where('random')}: random must be a table with model_type and other keys of a transformers "
            f"config; got {random!r:.40}"
        )
    if recipe.loss.get("name") != LOSS_NAME:
        raise ConfigError(
            f"{recipe.location('loss').where('name')}: a cross-encoder is trained with the loss {LOSS_NAME!r}; got "
            f"{recipe.loss.get('name')!r}"
        )
    loss = read_section(CrossEntropyConfig, recipe.loss, recipe.location("loss"))
    _check_data(recipe, loss)
    if values.get("start"):
        _check_start_keys(recipe, values)
        begin = str(values.pop("start"))
        # The length of queries, if the recipe has none, is that of the checkpoint; 1 fits any length of pairs.
        plain = read_section(CrossConfig, {"query_length": 1, **values, "backbone": begin}, location)
        if start is None:  # what the checkpoint has is not known yet
            return CrossPlan(plain, loss)
        started, origin = cross_config(start, plain, values)
        return CrossPlan(started, loss, start=start, origin=origin)
    values.pop("start", None)
    model = read_section(CrossConfig, values, location)
    if graph and not model.split_layers:
        raise ConfigError(f"{location.where('graph')}: graph needs split_layers; set it, or leave graph out")
    if random and model.backbone_dropout >= 0:
        raise ConfigError(
            f"{location.where('backbone_dropout')}: backbone_dropout is for a backbone that is loaded; for a random "
            f"backbone set the dropout in [model.random]"
        )
    return CrossPlan(model, loss, str(tokenizer), str(graph), random)


def _check_start_keys(recipe: Recipe, values: Mapping[str, Any]) -> None:
    for key in recipe.model:
        if key not in START_KEYS:
            raise ConfigError(
                f"{recipe.location('model').where(key)}: {key} and start are both set; start takes over the whole "
                f"cross-encoder {values['start']!r}. Beside it a recipe may set {', '.join(START_KEYS)}"
            )


def cross_config(start: StartingModel, plain: CrossConfig, given: Mapping[str, Any]) -> tuple[CrossConfig, Origin]:
    """The config of a cross-encoder that starts from a checkpoint; `given` are the keys that the recipe sets, and
    `plain` is the config with these keys alone."""
    check_can_start(start)
    if start.pair is None or start.heads.score is None:
        raise ConfigError(f"{start.name} ({start.layout}) gives vectors, and is no cross-encoder; leave out kind")
    pair = start.pair
    taken: dict[str, Any] = {
        "length": pair.length,
        "query_length": pair.query_length,
        "document_length": pair.document_length,
        "query_prefix": pair.query_prefix,
        "document_prefix": pair.document_prefix,
        "activation": start.activation,
    }
    if "length" in given and "query_length" not in given:
        # The query keeps half of the room, as in transformers.
        n_special = start_tokenizer(start).num_special_tokens_to_add(True)
        taken["query_length"] = max(1, (plain.length - n_special) // 2)
    changed = [
        f"{key} is {given[key]!r}, was {value!r}" for key, value in taken.items() if given.get(key, value) != value
    ]
    config = replace(
        plain,
        **{key: value for key, value in taken.items() if key not in given},
        name=given.get("name", start.name.rstrip("/").rsplit("/", 1)[-1]),
        head=CLASSIFIER,
        backbone=start.name,
        pooling=start.heads.score.pooling,
        classifier_layers=layer_configs(start.heads.score.layers),
        token_types=start.token_types,
    )
    return config, origin_of(start, changed)


def _check_data(recipe: Recipe, loss: CrossEntropyConfig) -> None:
    mining = recipe.mining
    if recipe.batching.n_negatives < 1:
        raise ConfigError("batching.n_negatives is 0; a cross-encoder learns from each query's own negatives only")
    searchers = [mining.first_searcher, mining.later_searcher][: min(2, mining.rounds)] if mining.corpus else []
    if "model" in searchers:
        raise ConfigError(
            "a cross-encoder cannot search for its own negatives; set mining.first_searcher (and later_searcher, for "
            "more rounds) to bm25 or to the folder of an encoder"
        )
    if loss.teacher_weight and mining.corpus and not mining.teacher:
        raise ConfigError(
            f"teacher_weight is {loss.teacher_weight}, and mining names no teacher; name one, or set it to 0"
        )

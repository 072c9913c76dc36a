"""What a recipe says of a cross-encoder: the sections model and objective, read whole before anything is loaded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from plait.encode.model_card import CROSS_KIND
from plait.errors import ConfigError
from plait.rerank.cross_card import Markers, PairFormat
from plait.train.recipe import Recipe, read_section

HEADS = ("cls", "emb", "maxsim")
OBJECTIVE = "cross-entropy"


@dataclass(frozen=True, slots=True, kw_only=True)
class CrossConfig:
    """A cross-encoder, but for the weights and the tokeniser."""

    kind: str = CROSS_KIND
    name: str = CROSS_KIND
    backbone: str  # a folder or a hub name
    # cls: a pooler and one output at the first token; emb: inner product of two markers' outputs; maxsim: each token
    # of the query with the nearest of the document
    head: str = "cls"
    layers: int = 0  # only the first so many layers of the backbone; 0 is all
    apart: int = 0  # the first so many layers read each text by itself, and are not trained
    # What is added to attention from one text to the other in the backbone's upper layers. Below 0 a token looks at the
    # other text only where that has something for it, and the model begins nearer to the encoder it was
    bridge: float = 0.0
    joint: int = 0  # the width of small layers above the backbone, where tokens see both texts; 0 is none
    joint_layers: int = 1  # how many of them; two can compare tokens first and gather what they found after
    dropout: float = 0.1  # before the output of cls
    backbone_dropout: float = -1.0  # of the backbone while it learns; below 0 leaves it as its makers had it
    scale: float = 1.0  # what the score of emb or maxsim is multiplied by
    length: int = 256  # of a pair, special tokens included
    query_length: int = 64  # tokens that the query may always have
    document_length: int = 0  # tokens that the document has at most, whatever the query; 0 is all the rest
    document_prefix: str = ""  # put before the document, such as "[CLS]"
    markers: tuple[str, ...] = ("[unused0]", "[unused1]")  # of emb: after the query, after the document

    def __post_init__(self) -> None:
        if self.head not in HEADS:
            raise ConfigError(f"head is {self.head!r}; choose one of {', '.join(HEADS)}")
        if self.layers < 0 or self.apart < 0 or not 0 <= self.dropout < 1 or self.scale <= 0:
            raise ConfigError(
                f"layers is {self.layers}, apart is {self.apart}, dropout is {self.dropout} and scale is {self.scale}; "
                f"the first two must be 0 or more, then from 0 to below 1, and above 0"
            )
        if self.backbone_dropout >= 1:
            raise ConfigError(f"backbone_dropout is {self.backbone_dropout}; it is a share of values, below 1")
        if self.bridge and not self.apart:
            raise ConfigError(f"bridge is {self.bridge}, and apart is 0; it is for layers above those that read apart")
        if self.joint < 0 or self.joint % 4:
            raise ConfigError(f"joint is {self.joint}; it must be 0, or a multiple of 4")
        if self.joint_layers < 1 or self.document_length < 0:
            raise ConfigError(
                f"joint_layers is {self.joint_layers} and document_length is {self.document_length}; they must be at "
                f"least 1, and 0 or more"
            )
        if not 0 < self.query_length < self.length:
            raise ConfigError(f"query_length is {self.query_length} of a length of {self.length}; documents need some")
        if len(self.markers) != 2 or self.markers[0] == self.markers[1]:
            raise ConfigError(f"markers are {list(self.markers)}; two different ones are needed")

    @property
    def frame(self) -> Frame:
        markers = Markers(*self.markers) if self.head == "emb" else None
        pair = PairFormat(self.length, self.query_length, "", self.document_prefix, self.document_length)
        return Frame(self.name, pair, markers)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> CrossConfig:
        return cls(**{**raw, "markers": tuple(raw["markers"])})


@dataclass(frozen=True, slots=True)
class Frame:
    """How pairs are read: what `plait.rerank.pairs.PairTokenizer` asks for."""

    name: str
    pair: PairFormat
    markers: Markers | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CrossEntropyConfig:
    """Cross-entropy of the positive against the query's own negatives, mixed with a teacher's distribution."""

    name: str = OBJECTIVE
    distil: float = 0.0  # the share of the teacher: 0 is labels alone, 1 the teacher alone
    alpha: float = 1.0  # what teacher scores are multiplied by
    part: int = 0  # queries whose pairs go through the model together; 0 is all of the batch

    def __post_init__(self) -> None:
        if not 0 <= self.distil <= 1 or self.alpha <= 0 or self.part < 0:
            raise ConfigError(
                f"distil is {self.distil}, alpha is {self.alpha} and part is {self.part}; they must be a share, above "
                f"0, and 0 or more"
            )


@dataclass(frozen=True, slots=True)
class CrossPlan:
    """The two sections, checked."""

    model: CrossConfig
    objective: CrossEntropyConfig
    tokenizer: str = ""
    graph: str = ""  # a model folder, or a bundled model, whose graph gives the states of texts in training
    random: Mapping[str, Any] = field(default_factory=dict)


def is_cross(recipe: Recipe) -> bool:
    return recipe.model.get("kind") == CROSS_KIND


def read_cross_plan(recipe: Recipe) -> CrossPlan:
    """Checks the sections model and objective of a recipe for a cross-encoder. Loads nothing."""
    place, values = recipe.place("model"), dict(recipe.model)
    random, tokenizer, graph = values.pop("random", {}), values.pop("tokenizer", ""), values.pop("graph", "")
    if not isinstance(random, Mapping) or (random and "model_type" not in random):
        raise ConfigError(f"{place.of('random')}: random must be a table with model_type, as transformers has it")
    if recipe.objective.get("name") != OBJECTIVE:
        raise ConfigError(
            f"{recipe.place('objective').of('name')}: a cross-encoder is trained with the objective {OBJECTIVE!r}; got "
            f"{recipe.objective.get('name')!r}"
        )
    objective = read_section(CrossEntropyConfig, recipe.objective, recipe.place("objective"))
    _check_data(recipe, objective)
    model = read_section(CrossConfig, values, place)
    if graph and not model.apart:
        raise ConfigError(
            f"{place.of('graph')}: graph is for a model that reads texts apart; set apart, or leave it out"
        )
    if random and model.backbone_dropout >= 0:
        raise ConfigError(
            f"{place.of('backbone_dropout')}: it is set for a backbone that is loaded; for one at random write the "
            f"dropout of its config into random"
        )
    return CrossPlan(model, objective, str(tokenizer), str(graph), random)


def _check_data(recipe: Recipe, objective: CrossEntropyConfig) -> None:
    mining = recipe.mining
    if recipe.batching.n_negatives < 1:
        raise ConfigError("batching.n_negatives is 0; a cross-encoder learns from each query's own negatives alone")
    searchers = [mining.first, mining.later][: min(2, mining.rounds)] if mining.corpus else []
    if "model" in searchers:
        raise ConfigError(
            "a cross-encoder cannot search for its own negatives; set mining.first (and later, for more rounds) to "
            "bm25 or to the folder of an encoder"
        )
    if objective.distil and mining.corpus and not mining.teacher:
        raise ConfigError(f"distil is {objective.distil}, and mining names no teacher; name one, or set it to 0")

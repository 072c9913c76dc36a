"""`Checkpoint`: what the reader of every layout returns, whatever library wrote the folder. `plait.convert.convert`
makes a model folder of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from plait.convert.tensors import Floats
from plait.encode.model_card import COSINE, DocumentInput, MultiSpec, QueryInput
from plait.errors import ConfigError
from plait.graphs.heads import POOLINGS, Heads
from plait.rerank.cross_card import PairFormat


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """A setting, and where it was read."""

    what: str  # "query length"
    value: str  # "32"
    source: str  # "artifact.metadata: query_maxlen", or "default of the layout"

    def __str__(self) -> str:
        return f"{self.what}: {self.value} ({self.source})"


@dataclass(slots=True)
class Readings:
    """Collects the settings while a layout is read."""

    entries: list[Reading] = field(default_factory=list)

    def add(self, what: str, value: object, source: str) -> None:
        shown = value if isinstance(value, str) else repr(value)
        self.entries.append(Reading(what=what, value=shown, source=source))


@dataclass(frozen=True, slots=True, kw_only=True)
class Overrides:
    """Settings of the user, which replace those of the checkpoint. None keeps what the checkpoint has."""

    pooling: str | None = None
    dims: int | None = None  # the dimensions of dense vectors that are kept (Matryoshka)
    query_prompt: str | None = None
    document_prompt: str | None = None
    query_length: int | None = None  # in tokens
    document_length: int | None = None
    mcls: int | None = None  # BGE-M3: a [CLS] after every `mcls` tokens; the dense vector is their mean
    token_states: bool = False  # of a dense model: its token states are multi vectors; see `plait.convert.token_states`

    def __post_init__(self) -> None:
        for name in ("dims", "query_length", "document_length", "mcls"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ConfigError(f"{name} is {value}; it must be at least 1")
        if self.pooling is not None:
            for one in self.pooling.split("+"):
                if one not in POOLINGS:
                    raise ConfigError(f"pooling is {self.pooling!r}; plait knows {', '.join(POOLINGS)}")


@dataclass(frozen=True, slots=True)
class ForeignGraph:
    """An ONNX graph that another program exported. Its output becomes an output of plait's, after pooling and
    normalisation where the graph has none."""

    path: Path
    output: str  # of the graph: token states, or the finished vectors
    kind: str  # "dense", "multi", or "score" of a reranker
    pooling: str = ""  # of token states to a dense vector; empty if the output is finished
    normalize: bool = True
    precision: str = "fp32"  # of the graph
    token_states: bool = False  # the output also becomes multi vectors, before it is pooled


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Checkpoint:
    """A model as it is in its folder: the backbone, the heads, and how texts become tokens."""

    layout: str
    name: str
    config: Mapping[str, Any]  # the transformers config of the backbone; `model_type` decides the graph
    tensors: Mapping[str, Floats]  # the backbone's weights, named as in transformers' AutoModel
    tokenizer: str  # the content of tokenizer.json
    heads: Heads
    query: QueryInput
    document: DocumentInput
    multi: MultiSpec | None = None  # for a model with multi vectors
    pair: PairFormat | None = None  # for a cross-encoder
    activation: str = ""  # of a cross-encoder's score
    similarity: str = COSINE
    graph: ForeignGraph | None = None  # for a folder that has a graph instead of weights
    token_types: bool = False  # a cross-encoder that is given the type of each token
    folder: Path | None = None  # of the backbone, for the comparison with transformers
    readings: tuple[Reading, ...] = ()
    warnings: tuple[str, ...] = ()  # decisions that the user should check
    licence: str = ""
    languages: tuple[str, ...] = ()
    attribution: str = ""

    @property
    def is_cross(self) -> bool:
        """Whether it scores pairs of texts, and gives no vectors."""
        return self.pair is not None

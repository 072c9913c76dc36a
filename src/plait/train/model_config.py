"""The config of an encoder: backbone, heads, and how texts are tokenized. It is saved as JSON beside the weights, so
that the same model can be built again. This module does not import torch."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, TypeVar

from plait.encode.model_card import COSINE, POOLINGS, SIMILARITIES, DocumentInput, Expansion, QueryInput
from plait.errors import ConfigError
from plait.text.stemming import ENGLISH_STEMMER
from plait.text.stemming import STEMMERS as OTHER_STEMMERS

STEMMERS = OTHER_STEMMERS | ENGLISH_STEMMER
MIXERS = ("positions", "flat")
N_ADAPTER_HEADS = 4  # attention heads of the layers that plait adds above a backbone
# Names of transformers; plait.graphs.builder can export them all.
ACTIVATIONS = ("gelu", "gelu_new", "gelu_pytorch_tanh", "relu", "tanh", "sigmoid", "silu")
RESIDUALS = NO_RESIDUAL, OF_INPUT, OF_LINEAR = ("", "input", "linear")
DEFAULT_QUERY = QueryInput(length=32, prefix="", expansion=None)
DEFAULT_DOCUMENT = DocumentInput(length=180, prefix="", overlap=32)

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerConfig:
    """A layer of a head: activation(linear(x)), plus a residual if it has one. Or a layer norm."""

    dim: int  # of its output; a norm does not change it
    bias: bool = True
    activation: str = ""  # a name of transformers, such as "gelu"; empty: none
    residual: str = NO_RESIDUAL  # "input": the input is added; "linear": another linear map of the input is added
    norm: float = 0.0  # above 0: the layer is a layer norm with this epsilon

    def __post_init__(self) -> None:
        if self.dim < 1:
            raise ConfigError(f"dim of a layer is {self.dim}; it must be at least 1")
        if self.activation and self.activation not in ACTIVATIONS:
            raise ConfigError(
                f"activation of a layer is {self.activation!r}; choose one of {', '.join(ACTIVATIONS)}, or leave it out"
            )
        if self.residual not in RESIDUALS:
            raise ConfigError(f"residual of a layer is {self.residual!r}; choose 'input' or 'linear', or leave it out")
        if self.norm < 0:
            raise ConfigError(f"norm of a layer is {self.norm}; it must be 0, or the epsilon of a layer norm")


def check_pooling(pooling: str, known: tuple[str, ...] = POOLINGS) -> None:
    """ConfigError for a pooling that plait does not know."""
    for one in pooling.split("+"):
        if one not in known:
            raise ConfigError(f"pooling is {pooling!r}; choose one of {', '.join(known)}, or several joined with +")


@dataclass(frozen=True, slots=True, kw_only=True)
class DenseHeadConfig:
    """One vector for each text: pooling, layers, truncation, normalisation, in this order."""

    pooling: str = "mean"  # a name of sentence-transformers; several, joined with "+", are concatenated
    layers: tuple[LayerConfig, ...] = ()  # most models have none
    dim: int = 0  # keep only the first dimensions (Matryoshka); 0: all
    normalize: bool = True  # to length 1; without it the similarity is "dot"

    def __post_init__(self) -> None:
        check_pooling(self.pooling)
        if self.dim < 0:
            raise ConfigError(f"dim is {self.dim}; it must be 0 or more")


@dataclass(frozen=True, slots=True, kw_only=True)
class SparseHeadConfig:
    """One weight for each token."""

    zero_ids: tuple[int, ...] = ()  # ids whose weight is always 0: [CLS], [SEP], [PAD], [UNK], [MASK]
    hidden: int = 0  # hidden units between state and weight; 0: a linear map alone, as in M3
    idf: bool = False  # add the IDF of the id to the weight; the recipe's idf_corpora say where it is counted
    idf_gain: float = 1.0  # the initial factor of the IDF; scores grow with its square, so fit it to the temperature
    stemming: str = ""  # a language such as "en": words with one stem are one term. Empty: each id is a term
    # Used in search, not in training; see SparseSpec in plait.encode.model_card.
    length_norm: float = 0.0
    query_tf: float = 0.0

    def __post_init__(self) -> None:
        if self.hidden < 0:
            raise ConfigError(f"hidden is {self.hidden}; it must be 0 or more")
        if not self.idf_gain > 0:
            raise ConfigError(f"idf_gain is {self.idf_gain}; it must be above 0")
        for name, value in (("length_norm", self.length_norm), ("query_tf", self.query_tf)):
            if not 0 <= value <= 1:
                raise ConfigError(f"{name} is {value}; it must be from 0 to 1")
        if self.stemming and self.stemming not in STEMMERS:
            raise ConfigError(
                f"stemming is {self.stemming!r}; choose one of {', '.join(sorted(STEMMERS))}, or leave it out"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class FixedConfig:
    """A fixed number of vectors for every document, each a learned mixture of its positions (ConstBERT)."""

    n_vectors: int = 32
    mixer: str = "positions"  # or "flat": one weight for each pair of (position, dimension) and (vector, dimension)
    zero_pads: bool = True  # whether padding is excluded from the mixture
    bias: bool = False  # added to the mixture before it is normalised
    mixes_rows: bool = False  # the mixer "positions" mixes projected rows; else it mixes states, and projects them
    noise: float = 0.01  # of the initial weights, relative to the mean weight of a segment

    def __post_init__(self) -> None:
        if self.n_vectors < 1:
            raise ConfigError(f"n_vectors is {self.n_vectors}; a document needs at least one vector")
        if self.mixer not in MIXERS:
            raise ConfigError(f"mixer is {self.mixer!r}; choose one of {', '.join(MIXERS)}")
        if self.noise < 0:
            raise ConfigError(f"noise is {self.noise}; it must be 0 or more")


@dataclass(frozen=True, slots=True, kw_only=True)
class MultiHeadConfig:
    """One vector for each token, or a fixed number for each document."""

    dim: int = 128
    bias: bool = False  # ColBERT and XTR have none, M3 has one
    special_rows: bool = True  # whether [CLS], [SEP] and other special tokens give a row
    first_row: bool = True  # False drops the first position only, as in M3
    skip: tuple[str, ...] = ()  # tokens that give no row in documents, such as punctuation
    skip_queries: bool = False  # the tokens of `skip` give no row in queries either
    layers: tuple[LayerConfig, ...] = ()  # the projection if it is several layers; the first `dim` dimensions are kept
    fixed: FixedConfig | None = None

    def __post_init__(self) -> None:
        if self.dim < 1:
            raise ConfigError(f"dim is {self.dim}; a row needs at least one dimension")
        if self.layers and self.dim > self.layers[-1].dim:
            raise ConfigError(f"dim is {self.dim}, and the last layer has {self.layers[-1].dim}; it cannot be more")
        if self.fixed is not None and self.skip:
            raise ConfigError(
                f"skip names {len(self.skip)} tokens, but with a fixed number of vectors no row belongs to a token; "
                "leave skip empty"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenAdapterConfig:
    """Small layers between the backbone and the sparse and multi heads; the dense head does not see them."""

    n_layers: int = 1
    dim: int = 256  # usually smaller than the hidden size; a multiple of the 4 attention heads

    def __post_init__(self) -> None:
        if self.n_layers < 1:
            raise ConfigError(f"n_layers is {self.n_layers}; it must be at least 1. For none, leave token_adapter out")
        if self.dim < N_ADAPTER_HEADS or self.dim % N_ADAPTER_HEADS:
            raise ConfigError(f"dim is {self.dim}; it must be a multiple of {N_ADAPTER_HEADS}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelConfig:
    """All that is needed to build a model, except the weights and the tokenizer."""

    name: str = "model"
    backbone: str  # a folder or a hub name: the origin of the weights
    dense: DenseHeadConfig | None = None
    sparse: SparseHeadConfig | None = None
    multi: MultiHeadConfig | None = None
    token_adapter: TokenAdapterConfig | None = None
    query: QueryInput = DEFAULT_QUERY
    document: DocumentInput = DEFAULT_DOCUMENT
    similarity: str = COSINE  # of dense vectors; "dot" for those that are not normalised

    def __post_init__(self) -> None:
        if self.similarity not in SIMILARITIES:
            raise ConfigError(f"similarity is {self.similarity!r}; choose one of {', '.join(SIMILARITIES)}")
        if self.dense is not None and not self.dense.normalize and self.similarity == COSINE:
            raise ConfigError(
                "the dense vectors are not normalised, and the similarity is 'cosine'; set similarity to 'dot', or "
                "normalize to true"
            )
        if self.dense is None and self.sparse is None and self.multi is None:
            raise ConfigError("the model has no head; add dense, sparse or multi, or several of them")
        if self.token_adapter is not None and self.sparse is None and self.multi is None:
            raise ConfigError("token_adapter is for the sparse and the multi head, and the model has neither")
        for side, length in (("query", self.query.length), ("document", self.document.length)):
            if length < 1:
                raise ConfigError(f"{side} length is {length}; it must be at least 1")
        fixed = self.multi.fixed if self.multi else None
        if fixed is not None and fixed.n_vectors > self.document.length:
            raise ConfigError(
                f"n_vectors is {fixed.n_vectors}, and a document has {self.document.length} positions; lower "
                "n_vectors, or raise the document's length"
            )

    @property
    def heads(self) -> tuple[str, ...]:
        """The kinds of embeddings that the model gives."""
        return tuple(kind for kind in ("dense", "sparse", "multi") if getattr(self, kind) is not None)

    def to_json(self) -> dict[str, Any]:
        """JSON values; `from_json` reads them back."""
        return asdict(self)

    @classmethod
    def from_json(cls, raw: object, where: str = "the model's config") -> ModelConfig:
        """The config in `raw`; ConfigError for a key that is unknown, missing or of the wrong type."""
        values = _keys(cls, raw, where)
        heads = {
            "dense": DenseHeadConfig,
            "sparse": SparseHeadConfig,
            "multi": MultiHeadConfig,
            "token_adapter": TokenAdapterConfig,
        }
        for key, kind in heads.items():
            if values.get(key) is not None:
                values[key] = _head(kind, values[key], f"{where}, {key}")
        if "query" in values:
            query = {"joined": False} | _keys(QueryInput, values["query"], f"{where}, query")
            if query.get("expansion") is not None:
                query["expansion"] = _construct(Expansion, query["expansion"], f"{where}, expansion")
            values["query"] = _construct(QueryInput, query, f"{where}, query")
        if "document" in values:
            document = {"joined": False} | _keys(DocumentInput, values["document"], f"{where}, document")
            values["document"] = _construct(DocumentInput, document, f"{where}, document")
        return _construct(cls, values, where)


def _head(kind: type[T], raw: object, where: str) -> T:
    values = _keys(kind, raw, where)
    for key in ("skip", "zero_ids"):
        if key in values:
            values[key] = tuple(values[key])
    if "layers" in values:
        values["layers"] = read_layers(values["layers"], where)
    if values.get("fixed") is not None:
        values["fixed"] = _construct(FixedConfig, values["fixed"], f"{where}, fixed")
    return _construct(kind, values, where)


def read_layers(raw: object, where: str) -> tuple[LayerConfig, ...]:
    """The layers of a head, from a list of tables."""
    if not isinstance(raw, list | tuple):
        raise ConfigError(f"{where}: layers must be a list of tables; got {raw!r:.40}")
    return tuple(_construct(LayerConfig, one, f"{where}, layers") for one in raw)


def _construct(kind: type[T], raw: object, where: str) -> T:
    try:
        return kind(**_keys(kind, raw, where))
    except TypeError as error:
        raise ConfigError(f"{where} lacks a key: {error}") from None


def _keys(kind: type[Any], raw: object, where: str) -> dict[str, Any]:
    if not isinstance(raw, Mapping):
        raise ConfigError(f"{where} must be a table of keys and values; got {type(raw).__name__}")
    known = [field.name for field in fields(kind)]
    for key in raw:
        if key not in known:
            near = difflib.get_close_matches(str(key), known, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"known keys: {', '.join(known)}"
            raise ConfigError(f"{where} has the unknown key {key!r}; {hint}")
    return dict(raw)

"""What a model is made of, in words: backbone, heads and the reading of text. Frozen, checked when made, and written
as JSON beside the weights, so that the same model can be built again. No torch here."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, TypeVar

from plait.encode.model_card import POOLINGS, DocumentInput, Expansion, QueryInput
from plait.errors import ConfigError
from plait.text.stemming import ENGLISH_STEMMER
from plait.text.stemming import STEMMERS as OTHER_STEMMERS

STEMMERS = OTHER_STEMMERS | ENGLISH_STEMMER
MIXERS = ("positions", "flat")
N_SMALL_HEADS = 4  # of attention in the layers that plait puts above a backbone
DEFAULT_QUERY = QueryInput(length=32, prefix="", expansion=None)
DEFAULT_DOCUMENT = DocumentInput(length=180, prefix="", overlap=32)

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class DenseHeadConfig:
    """One vector a text."""

    pooling: str = "mean"  # "mean" over attended positions, or "cls": the first position

    def __post_init__(self) -> None:
        if self.pooling not in POOLINGS:
            raise ConfigError(f"pooling is {self.pooling!r}; plait knows {', '.join(POOLINGS)}")


@dataclass(frozen=True, slots=True, kw_only=True)
class SparseHeadConfig:
    """One weight a token."""

    zero_ids: tuple[int, ...] = ()  # ids that never weigh anything: [CLS], [SEP], [PAD], [UNK], [MASK]
    hidden: int = 0  # units between state and weight; 0 is M3's linear map alone
    prior: bool = False  # whether how rare an id is counts beside its state; the recipe says where that is counted
    forms: str = ""  # a language, "en": words of one stem are one term. Empty: every id is its own
    gain: float = 1.0  # how much at first: scores go with its square, and should suit the temperature
    # What the trained model is searched with, not trained with; see SparseSpec in plait.encode.model_card.
    length_norm: float = 0.0
    query_tf: float = 0.0

    def __post_init__(self) -> None:
        if self.hidden < 0:
            raise ConfigError(f"hidden is {self.hidden}; it must be 0 or more")
        if not self.gain > 0:
            raise ConfigError(f"gain is {self.gain}; it must be above 0")
        for name, value in (("length_norm", self.length_norm), ("query_tf", self.query_tf)):
            if not 0 <= value <= 1:
                raise ConfigError(f"{name} is {value}; it must be from 0 to 1")
        if self.forms and self.forms not in STEMMERS:
            raise ConfigError(f"forms is {self.forms!r}; choose one of {', '.join(sorted(STEMMERS))}, or leave it out")


@dataclass(frozen=True, slots=True, kw_only=True)
class FixedConfig:
    """The same number of vectors for every document, mixed from its positions (ConstBERT)."""

    n_vectors: int = 32
    mixer: str = "positions"  # or "flat": one weight for each pair of (position, dimension) and (vector, dimension)
    zero_pads: bool = True  # whether padding is kept out of the mixture
    noise: float = 0.01  # of the first weights, as a part of the mean weight of a segment

    def __post_init__(self) -> None:
        if self.n_vectors < 1:
            raise ConfigError(f"n_vectors is {self.n_vectors}; a document needs at least one vector")
        if self.mixer not in MIXERS:
            raise ConfigError(f"mixer is {self.mixer!r}; plait knows {', '.join(MIXERS)}")
        if self.noise < 0:
            raise ConfigError(f"noise is {self.noise}; it must be 0 or more")


@dataclass(frozen=True, slots=True, kw_only=True)
class MultiHeadConfig:
    """One vector a token, or a fixed number a document."""

    dim: int = 128
    bias: bool = False  # ColBERT and XTR have none, M3 has one
    special_rows: bool = True  # whether the rows of [CLS], [SEP] and their like are kept
    first_row: bool = True  # False drops the first position alone, as M3 does
    skip: tuple[str, ...] = ()  # tokens whose rows are left out of documents: punctuation, mostly
    fixed: FixedConfig | None = None

    def __post_init__(self) -> None:
        if self.dim < 1:
            raise ConfigError(f"dim is {self.dim}; a row needs at least one dimension")
        if self.fixed is not None and self.skip:
            raise ConfigError(
                f"skip names {len(self.skip)} tokens, but a fixed number of vectors mixes all positions, and no row "
                "belongs to a token; leave skip empty"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class LateConfig:
    """Small layers above the backbone, for sparse and multi alone."""

    n_layers: int = 1
    dim: int = 256  # narrower than a state is, as a rule; a multiple of the four heads

    def __post_init__(self) -> None:
        if self.n_layers < 1:
            raise ConfigError(f"n_layers of late is {self.n_layers}; leave late out for none")
        if self.dim < N_SMALL_HEADS or self.dim % N_SMALL_HEADS:
            raise ConfigError(f"dim of late is {self.dim}; it must be a multiple of {N_SMALL_HEADS}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelConfig:
    """All that is needed to build a model, but for the weights and the tokeniser."""

    name: str = "model"
    backbone: str  # a folder or a hub name; where the weights came from first
    dense: DenseHeadConfig | None = None
    sparse: SparseHeadConfig | None = None
    multi: MultiHeadConfig | None = None
    late: LateConfig | None = None
    query: QueryInput = DEFAULT_QUERY
    document: DocumentInput = DEFAULT_DOCUMENT

    def __post_init__(self) -> None:
        if self.dense is None and self.sparse is None and self.multi is None:
            raise ConfigError("the model has no head; give it dense, sparse, multi, or several of them")
        if self.late is not None and self.sparse is None and self.multi is None:
            raise ConfigError("late layers are for the sparse and the multi strand, and the model has neither")
        for side, length in (("query", self.query.length), ("document", self.document.length)):
            if length < 1:
                raise ConfigError(f"{side} length is {length}; it must be at least 1")
        fixed = self.multi.fixed if self.multi else None
        if fixed is not None and fixed.n_vectors > self.document.length:
            raise ConfigError(
                f"n_vectors is {fixed.n_vectors}, more than the {self.document.length} positions of a document; "
                "give fewer vectors or longer documents"
            )

    def to_json(self) -> dict[str, Any]:
        """Plain values; `from_json` reads them back."""
        return asdict(self)

    @classmethod
    def from_json(cls, raw: object, where: str = "the model's description") -> ModelConfig:
        """The config in `raw`; ConfigError for a key that is unknown, missing or not an object where it must be."""
        given = _keys(cls, raw, where)
        heads = {"dense": DenseHeadConfig, "sparse": SparseHeadConfig, "multi": MultiHeadConfig, "late": LateConfig}
        for key, kind in heads.items():
            if given.get(key) is not None:
                given[key] = _head(kind, given[key], f"{where}, {key}")
        if "query" in given:
            query = _keys(QueryInput, given["query"], f"{where}, query")
            if query.get("expansion") is not None:
                query["expansion"] = _made(Expansion, query["expansion"], f"{where}, expansion")
            given["query"] = _made(QueryInput, query, f"{where}, query")
        if "document" in given:
            given["document"] = _made(DocumentInput, given["document"], f"{where}, document")
        return _made(cls, given, where)


def _head(kind: type[T], raw: object, where: str) -> T:
    given = _keys(kind, raw, where)
    for key in ("skip", "zero_ids"):
        if key in given:
            given[key] = tuple(given[key])
    if given.get("fixed") is not None:
        given["fixed"] = _made(FixedConfig, given["fixed"], f"{where}, fixed")
    return _made(kind, given, where)


def _made(kind: type[T], raw: object, where: str) -> T:
    try:
        return kind(**_keys(kind, raw, where))
    except TypeError as error:
        raise ConfigError(f"{where} is not complete: {error}") from None


def _keys(kind: type[Any], raw: object, where: str) -> dict[str, Any]:
    if not isinstance(raw, Mapping):
        raise ConfigError(f"{where} must be an object of names and values; it is {type(raw).__name__}")
    known = [field.name for field in fields(kind)]
    for key in raw:
        if key not in known:
            near = difflib.get_close_matches(str(key), known, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"known keys: {', '.join(known)}"
            raise ConfigError(f"{where} has the unknown key {key!r}; {hint}")
    return dict(raw)

"""`plait.json`: what a model folder says of itself. Parsed once into frozen records; an unknown key is an error,
because a setting that is misspelt would otherwise be a setting that is silently not used."""

from __future__ import annotations

import difflib
import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

from plait.encode.protocol import EmbeddingSpec
from plait.errors import ModelError

CARD_NAME = "plait.json"
FORMAT = 1
CROSS_KIND = "cross-encoder"  # the `kind` of cards that plait.rerank reads
POOLINGS = ("mean", "cls")
SIMILARITIES = ("cosine",)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class FileRecord:
    """A file of the folder, with what it must measure."""

    file: str
    sha256: str
    bytes: int


@dataclass(frozen=True, slots=True)
class DenseSpec:
    """One vector a text; pooled and brought to length one inside the graph."""

    dim: int
    pooling: str


@dataclass(frozen=True, slots=True)
class SparseSpec:
    """Weighted terms: the graph's output `sparse` of (texts, length) has a weight of 0 or more for each token, and 0
    for tokens that are no terms, [CLS] and its like."""

    vocabulary: int  # ids of terms are below this
    forms: bool = False  # whether forms of a word are one term: the graph's output `terms` then says which a token is
    exclude_from_hybrid: bool = False  # hybrid search leaves the sparse vector out unless it is given a weight
    # The power of a passage's sum of weights that they are divided by: a long one shares more terms with any query.
    length_norm: float = 0.0
    # The share that a query's repeated term has by the sum of its weights, and not by the largest of them alone.
    query_tf: float = 0.0


@dataclass(frozen=True, slots=True)
class MultiSpec:
    """One vector a token; projected and brought to length one inside the graph."""

    dim: int
    special_rows: bool  # whether the rows of special tokens such as [CLS] are kept
    skip: tuple[str, ...]  # tokens whose rows are left out of documents: punctuation, mostly
    # Rows of every document, where the graph gives always as many (ConstBERT's way): documents then take the graph's
    # output `fixed` of (texts, rows, dim). None is a row a token; queries have that in any case.
    fixed: int | None = None
    first_row: bool = True  # False drops the row of the first token alone, as BGE-M3 does


@dataclass(frozen=True, slots=True)
class Expansion:
    """Queries shorter than `length` tokens are filled up with `token`, and its rows are kept (ColBERT's way)."""

    token: str
    length: int
    attended: bool  # whether the other tokens may look at the filling


@dataclass(frozen=True, slots=True)
class QueryInput:
    """How a query is read."""

    length: int  # in tokens, special ones included
    prefix: str
    expansion: Expansion | None


@dataclass(frozen=True, slots=True)
class DocumentInput:
    """How a document is read; a longer one is split into passages that overlap."""

    length: int  # in tokens, special ones included
    prefix: str
    overlap: int  # tokens that a passage shares with the one before it
    # Tokens between one first token ([CLS]) and the next that is put into a long passage; the dense vector is the mean
    # at all of them (BGE-M3's MCLS). None: only the one at the beginning.
    mcls: int | None = None


@dataclass(frozen=True, slots=True)
class ModelCard:
    """All of `plait.json`."""

    name: str
    version: str
    dense: DenseSpec | None
    sparse: SparseSpec | None
    multi: MultiSpec | None
    query: QueryInput
    document: DocumentInput
    similarity: str
    weights: str  # sha256 of the weights before any rounding, so that every precision has the same
    tokenizer: FileRecord
    precisions: Mapping[str, FileRecord]
    languages: tuple[str, ...]
    licence: str
    attribution: str
    source: str
    made: str

    @property
    def spec(self) -> EmbeddingSpec:
        return EmbeddingSpec(
            dense=self.dense.dim if self.dense else None,
            sparse=self.sparse.vocabulary if self.sparse else None,
            multi=self.multi.dim if self.multi else None,
            fixed=self.multi.fixed if self.multi else None,
        )

    @property
    def fingerprint(self) -> str:
        """The name and a short hash of the weights, the tokeniser and the reading of text. Not of the precision: an
        index made with one precision may be searched with another."""
        identity = {
            "weights": self.weights,
            "tokenizer": self.tokenizer.sha256,
            "dense": asdict(self.dense) if self.dense else None,
            "multi": _identity_of(self.multi) if self.multi else None,
            "query": asdict(self.query),
            "document": {key: value for key, value in asdict(self.document).items() if (key, value) != ("mcls", None)},
        }
        if self.sparse is not None:  # left out where there is none: models from before it keep their names
            identity["sparse"] = _identity_of(self.sparse)
        text = json.dumps(identity, sort_keys=True, ensure_ascii=True)
        return f"{self.name}:{hashlib.sha256(text.encode()).hexdigest()[:12]}"


def read_card(folder: Path) -> ModelCard:
    """The card of a model folder; ModelError if there is none or it cannot be understood."""
    path = folder / CARD_NAME
    if not folder.is_dir():
        raise ModelError(f"there is no model folder {folder}; give the path of a folder that holds {CARD_NAME}")
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        seen = ", ".join(sorted(entry.name for entry in folder.iterdir())[:8]) or "nothing"
        raise ModelError(f"{folder} is not a model folder: it has no {CARD_NAME}, only {seen}") from None
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise ModelError(f"{path} cannot be read: {error}; fetch or build the model again") from error
    return parse_card(raw, str(path))


def parse_card(raw: object, where: str) -> ModelCard:
    """The card in `raw`, which json.loads gave; `where` names it in messages."""
    if isinstance(raw, dict) and raw.get("kind") == CROSS_KIND:
        raise ModelError(
            f"{where} is the card of a {CROSS_KIND}, which gives no vectors; rerank with it (--rerank-model)"
        )
    top = Section(raw, where)
    number = top.take("format", int)
    if number != FORMAT:
        raise ModelError(
            f"{where} has format {number}, and this plait reads format {FORMAT}; "
            f"{'upgrade plait' if number > FORMAT else 'build the model again'}"
        )
    embeddings = top.section("embeddings")
    dense, sparse, multi = (embeddings.section_or_none(name) for name in ("dense", "sparse", "multi"))
    embeddings.close()
    if dense is None and sparse is None and multi is None:
        raise ModelError(f"{where} names no strand; a model gives dense, sparse, multi, or several of them")
    query, document = top.section("query"), top.section("document")
    expansion = query.section_or_none("expansion")
    card = ModelCard(
        name=top.take("name", str),
        version=top.take("version", str),
        dense=_dense(dense) if dense else None,
        sparse=_sparse(sparse) if sparse else None,
        multi=_multi(multi) if multi else None,
        query=QueryInput(
            length=query.take_count("length"),
            prefix=query.take("prefix", str),
            expansion=_expansion(expansion) if expansion else None,
        ),
        document=DocumentInput(
            length=document.take_count("length"),
            prefix=document.take("prefix", str),
            overlap=document.take("overlap", int),
            mcls=document.take_count_or_none("mcls"),
        ),
        similarity=top.take_one_of("similarity", SIMILARITIES),
        weights=top.take("weights", str),
        tokenizer=file_record(top.section("tokenizer")),
        precisions=top.each_section("precisions", file_record),
        languages=top.take_strings("languages"),
        licence=top.take("licence", str),
        attribution=top.take("attribution", str),
        source=top.take("source", str),
        made=top.take("made", str),
    )
    for section in (query, document, top):
        section.close()
    if not 0 <= card.document.overlap < card.document.length // 2:
        raise ModelError(
            f"{where} has an overlap of {card.document.overlap} tokens in passages of {card.document.length}; "
            "it must be less than half"
        )
    if card.document.mcls is not None and (card.dense is None or card.dense.pooling != "cls"):
        raise ModelError(f"{where} has 'mcls', which is for a dense strand that is pooled as 'cls'; leave it out")
    return card


def _dense(section: Section) -> DenseSpec:
    kind = DenseSpec(dim=section.take_count("dim"), pooling=section.take_one_of("pooling", POOLINGS))
    section.close()
    return kind


def _sparse(section: Section) -> SparseSpec:
    kind = SparseSpec(
        vocabulary=section.take_count("vocabulary"),
        forms=section.take_or("forms", default=False),
        exclude_from_hybrid=section.take_or("exclude_from_hybrid", default=False),
        length_norm=section.take_share_or("length_norm", default=0.0),
        query_tf=section.take_share_or("query_tf", default=0.0),
    )
    section.close()
    return kind


def _multi(section: Section) -> MultiSpec:
    kind = MultiSpec(
        dim=section.take_count("dim"),
        special_rows=section.take("special_rows", bool),
        skip=section.take_strings("skip"),
        fixed=section.take_count_or_none("fixed"),
        first_row=section.take_or("first_row", default=True),
    )
    section.close()
    return kind


def _identity_of(kind: SparseSpec | MultiSpec) -> dict[str, Any]:
    """What the vectors depend on, which is not how they are searched. What is as it always was is left out: models from
    before these keys keep their names."""
    as_before = {"fixed": None, "first_row": True, "forms": False, "length_norm": 0.0, "query_tf": 0.0}
    given = {name: value for name, value in asdict(kind).items() if name != "exclude_from_hybrid"}
    return {name: value for name, value in given.items() if name not in as_before or value != as_before[name]}


def _expansion(section: Section) -> Expansion:
    expansion = Expansion(
        token=section.take("token", str),
        length=section.take_count("length"),
        attended=section.take("attended", bool),
    )
    section.close()
    return expansion


def file_record(section: Section) -> FileRecord:
    """The file that a section names."""
    record = FileRecord(
        file=section.take("file", str), sha256=section.take("sha256", str), bytes=section.take_count("bytes")
    )
    if Path(record.file).name != record.file:
        raise ModelError(f"{section.where} names the file {record.file!r}; a model's files are inside its folder")
    section.close()
    return record


class Section:
    """A JSON object that is taken apart key by key; what is left at the end is unknown, and refused."""

    def __init__(self, raw: object, where: str) -> None:
        if not isinstance(raw, dict):
            raise ModelError(f"{where} must be a JSON object; it is {type(raw).__name__}")
        self.where = where
        self._left: dict[str, Any] = dict(raw)
        self._known: list[str] = []

    def take(self, key: str, kind: type[T]) -> T:
        self._known.append(key)
        if key not in self._left:
            raise ModelError(f"{self.where} has no {key!r}; {self._near(key)}")
        value = self._left.pop(key)
        # In Python a bool is an int; in a card it is a mistake.
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            raise ModelError(f"{self.where}: {key!r} is {value!r}; it must be of type {kind.__name__}")
        return value

    def take_count(self, key: str) -> int:
        value = self.take(key, int)
        if value < 1:
            raise ModelError(f"{self.where}: {key!r} is {value}; it must be at least 1")
        return value

    def take_count_or_none(self, key: str) -> int | None:
        if self._left.get(key) is None:
            self._known.append(key)
            self._left.pop(key, None)
            return None
        return self.take_count(key)

    def take_or(self, key: str, *, default: T) -> T:
        if key not in self._left:
            self._known.append(key)
            return default
        return self.take(key, type(default))

    def take_share_or(self, key: str, *, default: float) -> float:
        """A number from 0 to 1, whole or not: JSON has one kind of number."""
        if type(self._left.get(key)) is int:
            self._left[key] = float(self._left[key])
        value = self.take_or(key, default=default)
        if not 0 <= value <= 1:
            raise ModelError(f"{self.where}: {key!r} is {value}; it must be from 0 to 1")
        return value

    def take_one_of(self, key: str, allowed: tuple[str, ...]) -> str:
        value = self.take(key, str)
        if value not in allowed:
            raise ModelError(f"{self.where}: {key!r} is {value!r}; plait knows {', '.join(allowed)}")
        return value

    def take_strings(self, key: str) -> tuple[str, ...]:
        values = self.take(key, list)
        if not all(isinstance(value, str) for value in values):
            raise ModelError(f"{self.where}: {key!r} must be a list of strings; it is {values!r}")
        return tuple(values)

    def section(self, key: str) -> Section:
        return Section(self.take(key, dict), f"{self.where}, {key}")

    def section_or_none(self, key: str) -> Section | None:
        if self._left.get(key) is None:
            self._known.append(key)
            self._left.pop(key, None)
            return None
        return self.section(key)

    def each_section(self, key: str, parse: Any) -> dict[str, FileRecord]:
        inner = self.section(key)
        return {name: parse(Section(raw, f"{inner.where}, {name}")) for name, raw in inner._left.items()}

    def close(self) -> None:
        """Refuse the keys that nothing asked for."""
        for key in self._left:
            raise ModelError(f"{self.where} has the unknown key {key!r}; {self._near(key, self._known)}")

    def _near(self, key: str, names: list[str] | None = None) -> str:
        found = difflib.get_close_matches(key, list(self._left) if names is None else names, n=1)
        if found:
            return f"did you mean {found[0]!r}?" if names else f"is {found[0]!r} meant to be it?"
        return f"known keys: {', '.join(names)}" if names else "add it, or build the model again"

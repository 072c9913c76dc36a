"""`plait.json`, the card of a model folder. Parsed once into frozen records. An unknown key is an error, because a
misspelt setting would otherwise be ignored silently."""

from __future__ import annotations

import difflib
import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

from plait.encode.protocol import EmbeddingSpec
from plait.errors import ModelError

CARD_NAME = "plait.json"
FORMAT = 1
CROSS_KIND = "cross-encoder"  # the `kind` of the cards that `plait.rerank` reads
# Names of sentence-transformers; several are joined with "+", and their vectors are concatenated.
POOLINGS = ("mean", "cls", "max", "mean_sqrt_len_tokens", "weightedmean", "lasttoken")
SIMILARITIES = COSINE, DOT = ("cosine", "dot")
SPARSE_OUTPUTS = BY_TOKEN, BY_TERM = ("tokens", "vocabulary")
SPARSE_QUERIES = BY_MODEL, STATIC = ("model", "static")
OPTIMISATIONS = ("none", "basic", "all")

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class FileRecord:
    """A file of the folder, with its hash and size."""

    file: str
    sha256: str
    bytes: int

    @property
    def files(self) -> tuple[FileRecord, ...]:
        """All files of the record."""
        return (self,)

    def to_json(self) -> dict[str, Any]:
        """The record in a card."""
        return {"file": self.file, "sha256": self.sha256, "bytes": self.bytes}


@dataclass(frozen=True, slots=True)
class GraphRecord(FileRecord):
    """The graph of a precision."""

    data: tuple[FileRecord, ...] = ()  # files with its tensors (external data), for a graph of more than 2 GB
    # What onnxruntime may change in the graph when it is loaded. Empty is the default: "none" for encoders, whose
    # graphs plait writes in the form in which they should run, and "all" for cross-encoders.
    optimise: str = ""
    # A small graph with the output `sparse_query` alone, for a model whose queries need nothing else: onnxruntime runs
    # a graph as a whole, the backbone too.
    query: FileRecord | None = None

    @property
    def files(self) -> tuple[FileRecord, ...]:
        """The graph, the files with its tensors, and the graph of queries."""
        return (self, *self.data, *((self.query,) if self.query else ()))

    def to_json(self) -> dict[str, Any]:
        """The record in a card; fields of older cards only, if the others have their defaults."""
        record = {"file": self.file, "sha256": self.sha256, "bytes": self.bytes}
        more: dict[str, Any] = {"data": [file.to_json() for file in self.data], "optimise": self.optimise}
        more["query"] = self.query.to_json() if self.query else None
        return record | {name: value for name, value in more.items() if value}


@dataclass(frozen=True, slots=True)
class DenseSpec:
    """The dense vector, which the graph pools from the tokens."""

    dim: int
    pooling: str  # one of `POOLINGS`, or several, joined with "+"
    normalize: bool = True  # the graph normalizes the vector to length 1


@dataclass(frozen=True, slots=True)
class SparseSpec:
    """The sparse vector, from the graph's output `sparse`. With output "tokens" it is (texts, length), the weight of
    each token; 0 for tokens that are not terms, such as [CLS]. With "vocabulary" it is (texts, vocabulary)."""

    vocabulary: int  # term ids are below this number
    forms: bool = False  # forms of a word share one term: the graph's output `terms` has the term id of each token
    exclude_from_hybrid: bool = False  # hybrid search leaves the sparse vector out unless it is given a weight
    # Weights of a passage are divided by this power of their sum, because a long passage shares more terms with any
    # query.
    length_norm: float = 0.0
    # A repeated term of a query weighs (1 - query_tf) * its largest weight + query_tf * the sum of its weights.
    query_tf: float = 0.0
    output: str = BY_TOKEN
    # "static": the weights of a query's tokens come from a table, the graph's output `sparse_query`, (texts, length);
    # the backbone does not run.
    query: str = BY_MODEL


@dataclass(frozen=True, slots=True)
class MultiSpec:
    """Multi vectors, one for each token: the graph projects them and normalizes them to length 1."""

    dim: int
    special_rows: bool  # keep the vectors of special tokens such as [CLS]
    skip: tuple[str, ...]  # tokens without a vector in documents, mostly punctuation
    # The number of vectors of every document (ConstBERT), from the graph's output `fixed`, (texts, rows, dim). None is
    # one vector for each token. Queries always have one for each token.
    fixed: int | None = None
    first_row: bool = True  # False drops the vector of the first token, as BGE-M3 does
    skip_queries: bool = False  # queries have no vectors for the tokens of `skip` either


@dataclass(frozen=True, slots=True)
class Expansion:
    """Query expansion (ColBERT): shorter queries are padded to `length` with `token`, and its vectors are kept."""

    token: str
    length: int
    attended: bool  # whether the other tokens attend to the padding


@dataclass(frozen=True, slots=True)
class QueryInput:
    """How a query becomes the input of the model."""

    length: int  # in tokens, special ones included
    prefix: str
    expansion: Expansion | None
    marker: str = ""  # a token that is inserted by its id after the first special token, such as ColBERT's [unused0]
    # Whether the prefix is joined with the text before both are tokenized. Cards without this key do not.
    joined: bool = True
    strip: bool = False  # whitespace at both ends of the text is removed before it is tokenized, as in PyLate


@dataclass(frozen=True, slots=True)
class DocumentInput:
    """How a document becomes the input of the model; a longer one is split into passages that overlap."""

    length: int  # in tokens, special ones included
    prefix: str
    overlap: int  # tokens that a passage shares with the previous one
    # MCLS (BGE-M3): the first token ([CLS]) is repeated after every `mcls` tokens of a passage, and the dense vector is
    # the mean over all of them. None: only one, at the beginning.
    mcls: int | None = None
    marker: str = ""  # as in `QueryInput`
    joined: bool = True  # as in `QueryInput`
    strip: bool = False  # as in `QueryInput`


@dataclass(frozen=True, slots=True)
class ModelCard:
    """The content of `plait.json`."""

    name: str
    version: str
    dense: DenseSpec | None
    sparse: SparseSpec | None
    multi: MultiSpec | None
    query: QueryInput
    document: DocumentInput
    similarity: str
    weights: str  # sha256 of the weights before rounding, the same for every precision
    tokenizer: FileRecord
    precisions: Mapping[str, GraphRecord]
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
        """The name and a short hash of all that vectors depend on: weights, tokenizer and settings. Not of the
        precision: an index made with one precision may be searched with another."""
        identity: dict[str, Any] = {"weights": self.weights, "tokenizer": self.tokenizer.sha256}
        for name in ("dense", "sparse", "multi", "query", "document"):
            settings = getattr(self, name)
            identity[name] = None if settings is None else _identity(settings)
        if self.similarity != COSINE:
            identity["similarity"] = self.similarity
        text = json.dumps(identity, sort_keys=True, ensure_ascii=True)
        return f"{self.name}:{hashlib.sha256(text.encode()).hexdigest()[:12]}"


# Fields that came later. The values that older cards mean are not part of the fingerprint, which stays the same.
_LATER = {
    "normalize": True,
    "output": BY_TOKEN,
    "query": BY_MODEL,
    "marker": "",
    "joined": False,
    "strip": False,
    "skip_queries": False,
}


def _identity(settings: Any) -> dict[str, Any]:
    """The settings that vectors depend on."""
    values = {name: value for name, value in asdict(settings).items() if _LATER.get(name, ...) != value}
    values.pop("exclude_from_hybrid", None)
    if not values.get("prefix"):
        values.pop("joined", None)
    return values


def read_card(folder: Path) -> ModelCard:
    """The card of a model folder; ModelError if it is missing or invalid."""
    path = folder / CARD_NAME
    if not folder.is_dir():
        raise ModelError(f"there is no model folder {folder}; give the path of a folder with a {CARD_NAME}")
    try:
        raw = read_json(path)
    except FileNotFoundError:
        seen = ", ".join(sorted(entry.name for entry in folder.iterdir())[:8]) or "nothing"
        raise ModelError(f"{folder} is not a model folder: it has no {CARD_NAME}, only {seen}") from None
    except (OSError, ValueError, RecursionError) as error:
        raise ModelError(f"{path} cannot be read: {error}; fetch or build the model again") from error
    return parse_card(raw, str(path))


def read_json(path: Path) -> object:
    """The content of a card. ValueError if it is not JSON, or not a plain file: opening a FIFO would wait for ever."""
    if path.exists() and not path.is_file():
        raise ValueError("it is not a plain file")
    return json.loads(path.read_text(encoding="utf-8"))


def parse_card(raw: object, where: str) -> ModelCard:
    """The card from parsed JSON; `where` names it in messages."""
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
        raise ModelError(f"{where} has no embeddings; a model gives dense, sparse or multi vectors, or several of them")
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
            marker=query.take_or("marker", default=""),
            joined=query.take_or("joined", default=False),
            strip=query.take_or("strip", default=False),
        ),
        document=DocumentInput(
            length=document.take_count("length"),
            prefix=document.take("prefix", str),
            overlap=document.take("overlap", int),
            mcls=document.take_count_or_none("mcls"),
            marker=document.take_or("marker", default=""),
            joined=document.take_or("joined", default=False),
            strip=document.take_or("strip", default=False),
        ),
        similarity=top.take_one_of("similarity", SIMILARITIES),
        weights=top.take("weights", str),
        tokenizer=file_record(top.section("tokenizer")),
        precisions=top.each_section("precisions", graph_record),
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
    if card.dense is not None and not card.dense.normalize and card.similarity == COSINE:
        raise ModelError(
            f"{where} has dense vectors that are not normalized, and the similarity {COSINE!r}; an index scores by the "
            f"inner product, so normalize them, or set the similarity {DOT!r}"
        )
    if card.document.mcls is not None and (card.dense is None or card.dense.pooling != "cls"):
        raise ModelError(f"{where} has 'mcls', which needs a dense vector with pooling 'cls'; remove 'mcls'")
    return card


def _dense(section: Section) -> DenseSpec:
    spec = DenseSpec(
        dim=section.take_count("dim"),
        pooling=section.take("pooling", str),
        normalize=section.take_or("normalize", default=True),
    )
    section.close()
    for pooling in spec.pooling.split("+"):
        if pooling not in POOLINGS:
            raise ModelError(f"{section.where}: 'pooling' is {spec.pooling!r}; plait knows {', '.join(POOLINGS)}")
    return spec


def _sparse(section: Section) -> SparseSpec:
    spec = SparseSpec(
        vocabulary=section.take_count("vocabulary"),
        forms=section.take_or("forms", default=False),
        exclude_from_hybrid=section.take_or("exclude_from_hybrid", default=False),
        length_norm=section.take_share_or("length_norm", default=0.0),
        query_tf=section.take_share_or("query_tf", default=0.0),
        output=section.take_one_of_or("output", SPARSE_OUTPUTS),
        query=section.take_one_of_or("query", SPARSE_QUERIES),
    )
    section.close()
    return spec


def _multi(section: Section) -> MultiSpec:
    spec = MultiSpec(
        dim=section.take_count("dim"),
        special_rows=section.take("special_rows", bool),
        skip=section.take_strings("skip"),
        fixed=section.take_count_or_none("fixed"),
        first_row=section.take_or("first_row", default=True),
        skip_queries=section.take_or("skip_queries", default=False),
    )
    section.close()
    return spec


def _expansion(section: Section) -> Expansion:
    expansion = Expansion(
        token=section.take("token", str),
        length=section.take_count("length"),
        attended=section.take("attended", bool),
    )
    section.close()
    return expansion


def file_record(section: Section) -> FileRecord:
    """The file of a section."""
    record = _file(section)
    section.close()
    return record


def graph_record(section: Section) -> GraphRecord:
    """The graph of a section."""
    graph = _file(section)
    data: list[Any] = section.take_or("data", default=[])
    files = tuple(file_record(Section(raw, f"{section.where}, data")) for raw in data)
    query = section.section_or_none("query")
    optimise = section.take_or("optimise", default="")
    if optimise and optimise not in OPTIMISATIONS:
        raise ModelError(f"{section.where}: 'optimise' is {optimise!r}; plait knows {', '.join(OPTIMISATIONS)}")
    section.close()
    query_file = file_record(query) if query else None
    record = GraphRecord(graph.file, graph.sha256, graph.bytes, files, optimise, query_file)
    if len({file.file for file in record.files}) != len(record.files):
        raise ModelError(f"{section.where} names a file twice; the files of a graph are different")
    return record


def _file(section: Section) -> FileRecord:
    record = FileRecord(
        file=section.take("file", str), sha256=section.take("sha256", str), bytes=section.take_count("bytes")
    )
    if Path(record.file).name != record.file:
        raise ModelError(
            f"{section.where} names the file {record.file!r}; the files of a model must be inside its folder"
        )
    return record


class Section:
    """A JSON object whose keys are taken one by one; `close` refuses the keys that are left."""

    def __init__(self, raw: object, where: str) -> None:
        if not isinstance(raw, dict):
            raise ModelError(f"{where} must be a JSON object; it is {type(raw).__name__}")
        self.where = where
        self._left: dict[str, Any] = dict(raw)
        self._known: list[str] = []

    def take(self, key: str, kind: type[T]) -> T:
        self._known.append(key)
        if key not in self._left:
            raise ModelError(f"{self.where} has no {key!r}; {self._hint(key)}")
        value = self._left.pop(key)
        # In Python a bool is an int; in a card it is an error.
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
        """A number from 0 to 1; 0 and 1 may be written as integers."""
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

    def take_one_of_or(self, key: str, allowed: tuple[str, ...]) -> str:
        """As `take_one_of`; the first if there is none."""
        if key not in self._left:
            self._known.append(key)
            return allowed[0]
        return self.take_one_of(key, allowed)

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

    def each_section(self, key: str, parse: Callable[[Section], T]) -> dict[str, T]:
        inner = self.section(key)
        return {name: parse(Section(raw, f"{inner.where}, {name}")) for name, raw in inner._left.items()}

    def close(self) -> None:
        """Raises ModelError for keys that were not taken."""
        for key in self._left:
            raise ModelError(f"{self.where} has the unknown key {key!r}; {self._hint(key, self._known)}")

    def _hint(self, key: str, names: list[str] | None = None) -> str:
        similar = difflib.get_close_matches(key, list(self._left) if names is None else names, n=1)
        if similar:
            return f"did you mean {similar[0]!r}?" if names else f"is {similar[0]!r} misspelt?"
        return f"known keys: {', '.join(names)}" if names else "add it, or build the model again"

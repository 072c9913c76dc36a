"""The bodies of requests, with examples. Unknown fields are refused, with the name that was probably meant."""

from __future__ import annotations

from difflib import get_close_matches
from typing import Annotated, Any, ClassVar, Literal, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from plait.serve.protocol import INDEX_NAME

B = TypeVar("B", bound=BaseModel)
Text = Annotated[str, Field(min_length=1)]
Timeout = Annotated[
    float | None, Field(gt=0, allow_inf_nan=False, description="Seconds; at most what the server allows.")
]
Filter = Annotated[str | None, Field(description="A condition on metadata, such as `year >= 2020 and not draft`.")]
# The first wrong item ends the check of a list: an error for each of a million takes seconds.
FIRST_ERROR = Field(fail_fast=True)
Strings = Annotated[list[str], FIRST_ERROR]
Numbers = Annotated[list[float], FIRST_ERROR]
MAX_PARAMS = 100  # of a mode; modes have some dozens
_STRICT = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)


class Body(BaseModel):
    """A JSON object of a request."""

    model_config = _STRICT

    @model_validator(mode="before")
    @classmethod
    def _known_fields(cls, given: Any) -> Any:
        if not isinstance(given, dict):
            return given
        known = list(cls.model_fields)
        for name in given:
            if name not in known:
                close = get_close_matches(shown(name), known, n=1)
                hint = f"did you mean {close[0]}?" if close else f"the fields are {', '.join(known)}"
                raise PydanticCustomError(
                    "unknown_field", "there is no field {name}; {hint}", {"name": shown(name), "hint": hint}
                )
        return given


def shown(name: object) -> str:
    text = str(name)
    return text if len(text) <= 40 else text[:40] + "..."


def _few(given: Any) -> Any:
    """Checked before the values are: each may have several errors."""
    if isinstance(given, dict) and len(given) > MAX_PARAMS:
        raise PydanticCustomError("too_many", "there are more than {most} parameters", {"most": MAX_PARAMS})
    return given


def _objects(given: Any) -> Any:
    """Checks that all values are objects, up to the first that is not."""
    for name, value in given.items() if isinstance(given, dict) else ():
        if not isinstance(value, dict):
            raise PydanticCustomError("dict_type", "{name} should be an object", {"name": shown(name)})
    return given


def _example(**fields: Any) -> ConfigDict:
    return ConfigDict(**_STRICT, json_schema_extra={"examples": [fields]})


# -- searching


class SearchOptions(Body):
    """What all searches take, beside their query."""

    k: int = Field(10, ge=1, description="Documents to return.")
    offset: int = Field(0, ge=0, description="Documents to skip: those of the pages before.")
    mode: str = Field("hybrid", description="hybrid, dense, sparse, multi, bm25, or another mode of the index.")
    params: Annotated[dict[str, bool | int | float | str | None] | None, BeforeValidator(_few)] = Field(
        None, description='Parameters of the mode, such as `{"n_probe": 16}`.'
    )
    weights: Annotated[
        dict[Literal["dense", "sparse", "multi", "bm25"], Annotated[float, Field(ge=0)]] | None, BeforeValidator(_few)
    ] = Field(None, description="Fusion weights of hybrid search; the same as `params` of these names.")
    filter: Filter = None
    candidates: Strings | None = Field(None, min_length=1, description="Ids: no other documents are scored.")
    exact: bool = Field(False, description="Score every passage.")
    explain: bool = Field(False, description="Say why each document is a hit.")
    timings: bool = Field(False, description="Give the stages of the search with their times.")
    passages: int = Field(1, ge=1, description="Passages of each hit, at most.")
    min_score: float | Literal["auto"] | None = Field(
        None, description="Leave out hits that score less; `auto`: those that hardly answer the query."
    )
    sort: str | None = Field(None, description="Order the best `window` documents by a field; `-year` descends.")
    group_by: str | None = Field(
        None, description="Of the best `window` documents, the best for each value of a field."
    )
    window: int = Field(100, ge=1, description="Documents that sort, group_by and facets look at.")
    syntax: bool = Field(True, description='Read operators in queries: "a phrase", -word, field:word, prefix*.')
    highlight: bool = Field(False, description="Give the ranges of the text that matched.")
    timeout: Timeout = None

    NOT_KEYWORDS: ClassVar[frozenset[str]] = frozenset({"k", "params", "weights", "timings", "timeout"})

    def keywords(self) -> dict[str, Any]:
        """The fields that are keywords of `Index.search` as they are."""
        return {name: getattr(self, name) for name in SearchOptions.model_fields if name not in self.NOT_KEYWORDS}


class SearchBody(SearchOptions):
    """A search: one `query`, or several `queries`."""

    model_config = _example(query="how are vectors combined", k=3, filter="year >= 2020", timings=True)

    query: str | None = Field(None, description="What to search for.")
    queries: Strings | None = Field(None, min_length=1, description="Several queries at once, instead of `query`.")
    rerank: bool | str | None = Field(
        None, description="Reorder the best documents by a cross-encoder: true, or its name."
    )
    text: bool = Field(False, description="Give the whole text of each document.")

    @model_validator(mode="after")
    def _one_of(self) -> SearchBody:
        return _exactly_one(self, "query", "queries")


class SimilarBody(SearchOptions):
    """A search for documents that are similar to a document of the index, a text or embeddings."""

    model_config = _example(id="intro", k=5)

    id: str | None = None
    text: str | None = Field(None, description="A text, encoded as a document.")
    embeddings: EmbeddingBody | None = None
    include_text: bool = Field(False, description="Give the whole text of each document.")

    @model_validator(mode="after")
    def _one_of(self) -> SimilarBody:
        return _exactly_one(self, "id", "text", "embeddings")


class EmbeddingBody(Body):
    """The embeddings of one document."""

    dense: Numbers | None = Field(None, min_length=1)
    sparse: SparseBody | None = None
    multi: Annotated[list[Numbers], FIRST_ERROR] | None = Field(None, min_length=1)


class SparseBody(Body):
    terms: Annotated[list[Annotated[int, Field(ge=0, lt=2**31)]], FIRST_ERROR]
    weights: Numbers


class ExplainBody(SearchOptions):
    """Why a document has its rank for a query, also if the search does not find it."""

    model_config = _example(query="how are vectors combined", id="intro")

    query: Text
    id: Text


class FacetsBody(SearchOptions):
    """The values of a field with their counts: in all documents that the filter accepts, or in the best of a query."""

    model_config = _example(field="year", filter='lang = "en"')

    field: Text
    query: str | None = None


class CountBody(Body):
    model_config = _example(filter="year >= 2020")

    filter: Filter = None
    timeout: Timeout = None


# -- indexes


class ChunkingBody(Body):
    size: int | None = Field(None, ge=1)
    overlap: int | None = Field(None, ge=0)
    by: Literal["pause", "sentence", "paragraph", "heading", "tokens"] = "pause"
    late: bool = False


class PoolingBody(Body):
    fixed: int | None = Field(None, ge=1)
    factor: int | None = Field(None, ge=1)


class CreateBody(Body):
    """A new index."""

    model_config = _example(name="notes", language="de")

    name: str = Field(pattern=f"^{INDEX_NAME}$")
    model: str | None = Field(None, description="A model of the server: see GET /v1/models.")
    language: str | None = Field(None, description="Stems the full text for this language.")
    pooling: PoolingBody | None = None
    chunking: ChunkingBody | None = None


# -- documents


class AddBody(Body):
    """Documents to add, or to replace by id. Fields other than `id`, `text` and `title` are metadata."""

    model_config = _example(
        documents=[{"id": "intro", "text": "Vectors are combined.", "title": "Intro", "year": 2024}]
    )

    documents: list[dict[str, Any]] = Field(min_length=1, fail_fast=True)


class GetBody(Body):
    model_config = _example(ids=["intro", "loom"])

    ids: Strings = Field(min_length=1)
    timeout: Timeout = None


class DeleteBody(Body):
    """Documents to delete: by id, or all that a filter accepts."""

    model_config = _example(ids=["intro"])

    ids: Strings | None = Field(None, min_length=1)
    filter: str | None = None

    @model_validator(mode="after")
    def _one_of(self) -> DeleteBody:
        return _exactly_one(self, "ids", "filter")


class UpdateBody(Body):
    """Metadata to change, by id; texts are not encoded again."""

    model_config = _example(changes={"intro": {"year": 2025}})

    changes: Annotated[dict[str, dict[str, Any]], BeforeValidator(_objects)] = Field(min_length=1)
    replace: bool = Field(False, description="Drop the fields that are not named.")


class CompactBody(Body):
    model_config = _example(bits=2)

    bits: Literal[1, 2, 4, 8] | None = None
    retrain: bool = False


# -- models


class EncodeBody(Body):
    """Texts to encode."""

    model_config = _example(texts=["how are vectors combined"], kind="query")

    texts: Strings = Field(min_length=1)
    kind: Literal["query", "document"] = "query"
    model: str | None = None
    kinds: Annotated[list[Literal["dense", "sparse", "multi"]], FIRST_ERROR] | None = Field(
        None, min_length=1, description="All, if left out."
    )
    timeout: Timeout = None


def _exactly_one(body: B, *names: str) -> B:
    if sum(getattr(body, name) is not None for name in names) != 1:
        raise PydanticCustomError("one_of", "give one of {names}", {"names": ", ".join(names)})
    return body


SimilarBody.model_rebuild()
EmbeddingBody.model_rebuild()

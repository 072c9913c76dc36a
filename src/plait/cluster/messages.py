"""What a coordinator and its shards say to each other: plain values that can be pickled. Document and row numbers in
them are those of the shard."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from plait.embeddings import Embeddings
from plait.errors import StoreError
from plait.search.fusion import Bounds
from plait.search.multivector.steps import Sizes, SteppedMethod
from plait.search.params import Params
from plait.search.ranking import Ranking
from plait.search.text_query import TextQuery
from plait.search.word_statistics import WordStatistics

Docs = NDArray[np.int64]


class StaleShardError(StoreError):
    """The commit that a search began with is no longer open in a shard; the search must begin again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardFacts:
    """A shard, at its newest commit."""

    commit: int
    n_documents: int
    n_passages: int
    field_names: frozenset[str]  # of metadata
    codebook: str | None  # digest of its codec


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardQuery:
    """Queries of one search, as a shard reads them."""

    commit: int  # that the search sees of this shard
    texts: Sequence[str]  # the words of each query
    embeddings: Embeddings
    asked: Sequence[TextQuery]  # with the names of documents of this shard; empty for queries that are vectors only
    statistics: WordStatistics | None  # of the collection; None if the search reads no words
    mode: str
    params: Params | None
    exact: bool
    n_passages: int  # of the collection
    bounds: Mapping[str, Bounds]
    exclude_from_hybrid: Sequence[str]
    filter: str | None = None
    candidates: Sequence[str] | None = None  # ids of this shard
    without_text: bool = False
    seconds: float | None = None  # until the search must end


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """What a shard knows of the words of some queries."""

    absent: Sequence[frozenset[str]]  # for each query: its words that no document of the shard has
    names: Sequence[Mapping[int, float]]  # for each query: documents whose name it is
    statistics: WordStatistics


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardLists:
    """What the retrievers of a shard find, for each query."""

    lists: Sequence[Mapping[str, Ranking]]
    named: Sequence[Docs]  # documents whose name is the query, and that its filter accepts
    peaks: Sequence[NDArray[np.float64]] | None  # the largest weight of each term of a sparse query; None: not sparse


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardScores:
    """Documents as the rescorers of a shard score them, for each query, and the dense vectors of their passages."""

    lists: Sequence[Mapping[str, Ranking]]
    rows: Sequence[NDArray[np.int64]] = ()
    vectors: Sequence[NDArray[np.float32]] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchOptions:
    """What the hits of a page are to have."""

    passages: int = 1
    explain: bool = False
    highlight: bool = False


@dataclass(frozen=True, slots=True)
class SpellingQuestion:
    """Whether documents have these words; and how many have each together with other terms."""

    words: Sequence[str] = ()
    variants: Sequence[str] = ()
    known: Sequence[str] = field(default_factory=tuple)


@dataclass(frozen=True, slots=True, kw_only=True)
class MethodSizes:
    """What a shard has for a method that runs in steps, for one query."""

    sizes: Sizes | None  # of its compressed segment; None if it has none with documents that may be found
    n_documents: int  # of that segment, that may be found
    rest: Ranking  # the best documents of segments that are not compressed


@dataclass(frozen=True, slots=True, kw_only=True)
class MethodStep:
    """The next step of a method for one query: see `plait.search.multivector.steps`."""

    number: int  # of the query
    method: SteppedMethod
    n_wanted: int  # passages
    sizes: Sizes  # of all shards
    answers: Sequence[Any]  # to the parts that this shard gave so far


@dataclass(frozen=True, slots=True, eq=False)
class FoundRows:
    """The passages that a method found in a shard, best first."""

    docs: Docs
    rows: NDArray[np.int64]
    scores: NDArray[np.float32]
    imputed: NDArray[np.float32] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredQuery:
    """A document of a shard as a query for similar ones."""

    doc: int
    embeddings: Embeddings
    words: str

"""Retrievers: they take the text of a query, and need no embedder before them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from haystack import component, default_from_dict, default_to_dict
from haystack.dataclasses import Document
from haystack.document_stores.types import FilterPolicy, apply_filter_policy

from plait.checks import check_count, shown
from plait.errors import ConfigError
from plait.integrations.haystack.documents import from_hit
from plait.integrations.haystack.filters import haystack_filter
from plait.integrations.haystack.store import PlaitDocumentStore
from plait.integrations.opening import Content, check_content, plain_search
from plait.search.hybrid import HybridParams

DEFAULT_TOP_K = 10
Result = dict[str, list[Document]]


@component
class PlaitRetriever:
    """Finds the documents of a `PlaitDocumentStore` for a query, in any mode of plait: "hybrid", "multi", "dense",
    "sparse", "bm25".

    `filters` and `filter_policy` are as in other retrievers. A result is the whole document; with content="passages",
    its best `passages`. `search` are further options of `Index.search`, such as {"min_score": "auto"}.
    """

    def __init__(
        self,
        document_store: PlaitDocumentStore,
        *,
        top_k: int = DEFAULT_TOP_K,
        mode: str = "hybrid",
        filters: dict[str, Any] | None = None,
        filter_policy: str | FilterPolicy = FilterPolicy.REPLACE,
        content: Content = "document",
        passages: int = 1,
        search: dict[str, Any] | None = None,
    ) -> None:
        self.document_store, self.mode, self.search = document_store, mode, search
        self._finder = _Finder(document_store, top_k, filters, as_policy(filter_policy), content, passages)
        self._finder.options(self._options())

    def _options(self) -> dict[str, Any]:
        return {"mode": self.mode, **(self.search or {})}

    def to_dict(self) -> dict[str, Any]:
        return default_to_dict(  # type: ignore[no-any-return]
            self, **self._finder.to_dict(), mode=self.mode, search=self.search
        )

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> PlaitRetriever:
        return default_from_dict(cls, with_store(data))  # type: ignore[no-any-return]

    @component.output_types(documents=list[Document])
    def run(self, query: str, filters: dict[str, Any] | None = None, top_k: int | None = None) -> Result:
        return self._finder.find(query, filters, top_k, self._options())

    @component.output_types(documents=list[Document])
    async def run_async(self, query: str, filters: dict[str, Any] | None = None, top_k: int | None = None) -> Result:
        return await asyncio.to_thread(self.run, query, filters, top_k)


@component
class PlaitHybridRetriever:
    """Finds documents by dense, sparse and multi vectors and BM25 together, in one index and one call.

    `dense`, `sparse`, `multi` and `bm25` are weights; None is the weight that was fitted on the index, or the default,
    and 0 leaves a kind out. `fusion` is one of plait's ("bounds", "rank", ...). `rerank` is True for plait-cross-small,
    or the name or folder of a cross-encoder. The other arguments are those of `PlaitRetriever`.
    """

    def __init__(
        self,
        document_store: PlaitDocumentStore,
        *,
        top_k: int = DEFAULT_TOP_K,
        dense: float | None = None,
        sparse: float | None = None,
        multi: float | None = None,
        bm25: float | None = None,
        fusion: str | None = None,
        rerank: str | bool | None = None,
        filters: dict[str, Any] | None = None,
        filter_policy: str | FilterPolicy = FilterPolicy.REPLACE,
        content: Content = "document",
        passages: int = 1,
    ) -> None:
        self.document_store, self.rerank = document_store, rerank
        self.params = HybridParams(dense=dense, sparse=sparse, multi=multi, bm25=bm25, fusion=fusion)
        self._finder = _Finder(document_store, top_k, filters, as_policy(filter_policy), content, passages)
        self._finder.options(self._options())

    def _options(self) -> dict[str, Any]:
        return {"params": self.params, "rerank": self.rerank}

    def to_dict(self) -> dict[str, Any]:
        weights = {name: getattr(self.params, name) for name in ("dense", "sparse", "multi", "bm25", "fusion")}
        return default_to_dict(  # type: ignore[no-any-return]
            self, **self._finder.to_dict(), **weights, rerank=self.rerank
        )

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> PlaitHybridRetriever:
        return default_from_dict(cls, with_store(data))  # type: ignore[no-any-return]

    @component.output_types(documents=list[Document])
    def run(self, query: str, filters: dict[str, Any] | None = None, top_k: int | None = None) -> Result:
        return self._finder.find(query, filters, top_k, self._options())

    @component.output_types(documents=list[Document])
    async def run_async(self, query: str, filters: dict[str, Any] | None = None, top_k: int | None = None) -> Result:
        return await asyncio.to_thread(self.run, query, filters, top_k)


@dataclass(frozen=True, slots=True)
class _Finder:
    """What both retrievers hold: the store, and how its hits become documents."""

    store: PlaitDocumentStore
    top_k: int
    filters: dict[str, Any] | None
    policy: FilterPolicy
    content: Content
    passages: int

    def __post_init__(self) -> None:
        if not isinstance(self.store, PlaitDocumentStore):
            raise ConfigError(
                f"document_store must be a PlaitDocumentStore; got {type(self.store).__name__}: {shown(self.store)}"
            )
        check_count("top_k", self.top_k)
        check_content(self.content)

    def options(self, search: Mapping[str, Any]) -> dict[str, Any]:
        """The options of `Index.search`, checked."""
        return plain_search({"passages": self.passages, **search})

    def find(self, query: str, filters: dict[str, Any] | None, top_k: int | None, search: Mapping[str, Any]) -> Result:
        filter = haystack_filter(apply_filter_policy(self.policy, self.filters, filters))
        k = self.top_k if top_k is None else top_k
        hits = self.store.index.search(query, k, **{**self.options(search), "filter": filter})
        return {"documents": [from_hit(hit, self.content) for hit in hits]}

    def to_dict(self) -> dict[str, Any]:
        """The arguments that both retrievers have."""
        return {
            "document_store": self.store.to_dict(),
            "top_k": self.top_k,
            "filters": self.filters,
            "filter_policy": self.policy.value,
            "content": self.content,
            "passages": self.passages,
        }


def as_policy(policy: str | FilterPolicy) -> FilterPolicy:
    return policy if isinstance(policy, FilterPolicy) else FilterPolicy.from_str(policy)


def with_store(data: dict[str, Any]) -> dict[str, Any]:
    """The dictionary of a component, with the document store itself in place of its dictionary."""
    arguments = data.get("init_parameters", {})
    store = arguments.get("document_store")
    if isinstance(store, dict):
        arguments = {**arguments, "document_store": PlaitDocumentStore.from_dict(store)}
    return {**data, "init_parameters": arguments}

"""Retrievers: they take the text of a query, and need no embedder before them."""

from __future__ import annotations

import asyncio
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
        check_store(document_store)
        check_count("top_k", top_k)
        check_content(content)
        self.document_store, self.top_k, self.mode, self.filters = document_store, top_k, mode, filters
        self.filter_policy = as_policy(filter_policy)
        self.content, self.passages, self.search = content, passages, search
        self._options()

    def _options(self) -> dict[str, Any]:
        return plain_search({"mode": self.mode, "passages": self.passages, **(self.search or {})})

    def to_dict(self) -> dict[str, Any]:
        return default_to_dict(  # type: ignore[no-any-return]
            self,
            document_store=self.document_store.to_dict(),
            top_k=self.top_k,
            mode=self.mode,
            filters=self.filters,
            filter_policy=self.filter_policy.value,
            content=self.content,
            passages=self.passages,
            search=self.search,
        )

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> PlaitRetriever:
        return default_from_dict(cls, with_store(data))  # type: ignore[no-any-return]

    @component.output_types(documents=list[Document])
    def run(
        self, query: str, filters: dict[str, Any] | None = None, top_k: int | None = None
    ) -> dict[str, list[Document]]:
        filter = haystack_filter(apply_filter_policy(self.filter_policy, self.filters, filters))
        return find(
            self.document_store, query, top_k or self.top_k, self.content, {**self._options(), "filter": filter}
        )

    @component.output_types(documents=list[Document])
    async def run_async(
        self, query: str, filters: dict[str, Any] | None = None, top_k: int | None = None
    ) -> dict[str, list[Document]]:
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
        check_store(document_store)
        check_count("top_k", top_k)
        check_content(content)
        self.document_store, self.top_k, self.filters = document_store, top_k, filters
        self.dense, self.sparse, self.multi, self.bm25, self.fusion = dense, sparse, multi, bm25, fusion
        self.rerank, self.filter_policy = rerank, as_policy(filter_policy)
        self.content, self.passages = content, passages
        self._options()

    def _options(self) -> dict[str, Any]:
        params = HybridParams(
            dense=self.dense, sparse=self.sparse, multi=self.multi, bm25=self.bm25, fusion=self.fusion
        )
        return plain_search({"params": params, "rerank": self.rerank, "passages": self.passages})

    def to_dict(self) -> dict[str, Any]:
        return default_to_dict(  # type: ignore[no-any-return]
            self,
            document_store=self.document_store.to_dict(),
            top_k=self.top_k,
            dense=self.dense,
            sparse=self.sparse,
            multi=self.multi,
            bm25=self.bm25,
            fusion=self.fusion,
            rerank=self.rerank,
            filters=self.filters,
            filter_policy=self.filter_policy.value,
            content=self.content,
            passages=self.passages,
        )

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> PlaitHybridRetriever:
        return default_from_dict(cls, with_store(data))  # type: ignore[no-any-return]

    @component.output_types(documents=list[Document])
    def run(
        self, query: str, filters: dict[str, Any] | None = None, top_k: int | None = None
    ) -> dict[str, list[Document]]:
        filter = haystack_filter(apply_filter_policy(self.filter_policy, self.filters, filters))
        return find(
            self.document_store, query, top_k or self.top_k, self.content, {**self._options(), "filter": filter}
        )

    @component.output_types(documents=list[Document])
    async def run_async(
        self, query: str, filters: dict[str, Any] | None = None, top_k: int | None = None
    ) -> dict[str, list[Document]]:
        return await asyncio.to_thread(self.run, query, filters, top_k)


def find(
    store: PlaitDocumentStore, query: str, top_k: int, content: Content, options: dict[str, Any]
) -> dict[str, list[Document]]:
    return {"documents": [from_hit(hit, content) for hit in store.index.search(query, top_k, **options)]}


def check_store(store: object) -> None:
    if not isinstance(store, PlaitDocumentStore):
        raise ConfigError(f"document_store must be a PlaitDocumentStore; got {type(store).__name__}: {shown(store)}")


def as_policy(policy: str | FilterPolicy) -> FilterPolicy:
    return policy if isinstance(policy, FilterPolicy) else FilterPolicy.from_str(policy)


def with_store(data: dict[str, Any]) -> dict[str, Any]:
    """The dictionary of a component, with the document store itself in place of its dictionary."""
    arguments = data.get("init_parameters", {})
    store = arguments.get("document_store")
    if isinstance(store, dict):
        arguments = {**arguments, "document_store": PlaitDocumentStore.from_dict(store)}
    return {**data, "init_parameters": arguments}

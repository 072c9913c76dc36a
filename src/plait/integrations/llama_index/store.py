"""`PlaitVectorStore`: a plait index with the calls of a LlamaIndex vector store."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from llama_index.core.bridge.pydantic import PrivateAttr
from llama_index.core.schema import BaseNode
from llama_index.core.vector_stores.types import (
    BasePydanticVectorStore,
    MetadataFilters,
    VectorStoreQuery,
    VectorStoreQueryMode,
    VectorStoreQueryResult,
)

from plait.embeddings import Embeddings
from plait.errors import ConfigError, QueryError
from plait.index import Index
from plait.integrations.filters.conditions import ALWAYS, join, one_of
from plait.integrations.filters.llama_index import filter_text, in_documents
from plait.integrations.llama_index.nodes import from_hit, from_plait, to_plait
from plait.integrations.opening import Content, IndexOrPath, as_index, check_content, plain_search
from plait.records import Document, Hit
from plait.search.hybrid import HybridParams

MODES = {
    VectorStoreQueryMode.SPARSE: "sparse",
    VectorStoreQueryMode.HYBRID: "hybrid",
    VectorStoreQueryMode.TEXT_SEARCH: "bm25",
}


class PlaitVectorStore(BasePydanticVectorStore):
    """A plait index as a vector store. plait encodes nodes and queries itself: give a `VectorStoreIndex` the embedding
    model `MockEmbedding(embed_dim=1)`, whose embeddings are ignored.

    `index` is an open index or the path of one; `options` are those of `plait.open`, such as create=True. `search` are
    options of every search, such as {"mode": "multi"}. The modes of a query are default, which takes the mode of
    `search` or hybrid, and hybrid, sparse and text_search.
    """

    stores_text: bool = True
    is_embedding_query: bool = False
    content: Content = "document"
    search: dict[str, Any] = {}  # noqa: RUF012  # a field of pydantic, which copies it
    _index: Any = PrivateAttr()

    def __init__(
        self,
        index: IndexOrPath,
        *,
        search: Mapping[str, Any] | None = None,
        content: Content = "document",
        **options: Any,
    ) -> None:
        check_content(content)
        super().__init__(search=plain_search(search), content=content)
        self._index = as_index(index, **options)

    @classmethod
    def class_name(cls) -> str:
        return "PlaitVectorStore"

    @property
    def client(self) -> Index:
        """The plait index."""
        index: Index = self._index
        return index

    def add(self, nodes: Sequence[BaseNode], **options: Any) -> list[str]:
        """Adds nodes, and returns their ids; further options are those of `Index.add`."""
        documents = [to_plait(node) for node in nodes]
        self.client.add(documents, **options)
        return [document.id for document in documents]

    def delete(self, ref_doc_id: str, **_options: Any) -> None:
        """Deletes the nodes of a source document."""
        self.client.delete(filter=in_documents([ref_doc_id]))

    def delete_nodes(
        self, node_ids: list[str] | None = None, filters: MetadataFilters | None = None, **_options: Any
    ) -> None:
        """Deletes nodes by id, those that filters accept, or those of the ids that filters accept."""
        filter = filter_text(filters)
        if node_ids is None and filter is None:
            raise ConfigError("delete_nodes needs ids or filters; clear deletes all nodes")
        if filter is None:
            self.client.delete(node_ids)
        else:
            self.client.delete(filter=_both(node_ids, filter))

    def clear(self) -> None:
        self.client.delete(filter=ALWAYS)

    def get_nodes(self, node_ids: list[str] | None = None, filters: MetadataFilters | None = None) -> list[BaseNode]:
        """Nodes by id, those that filters accept, or all."""
        if node_ids is None:
            return self._nodes(filter_text(filters))
        if filters is None:
            return [_node(document) for document in self.client.get(node_ids) if document is not None]
        by_id = {node.node_id: node for node in self._nodes(_both(node_ids, filter_text(filters)))}
        return [by_id[id] for id in node_ids if id in by_id]

    def _nodes(self, filter: str | None) -> list[BaseNode]:
        batches = self.client.iterate(filter=filter)
        return [_node(document) for batch in batches for document in batch]

    def query(self, query: VectorStoreQuery, **search: Any) -> VectorStoreQueryResult:
        """The nodes for the text of a query; for its embedding, by dense vectors, if it has no text. Further options
        are those of `Index.search`."""
        hits = self._hits(query, {**self.search, **self._mode(query), **search, "filter": self._filter(query, search)})
        return VectorStoreQueryResult(
            nodes=[from_hit(hit, self.content) for hit in hits],
            similarities=[hit.score for hit in hits],
            ids=[hit.id for hit in hits],
        )

    def _hits(self, query: VectorStoreQuery, options: dict[str, Any]) -> list[Hit]:
        if query.node_ids:  # a VectorStoreIndex sends an empty list for all nodes
            known = list(self.client.snapshot.lookup(query.node_ids))
            if not known:
                return []
            options["candidates"] = known
        k = (query.hybrid_top_k if query.mode == VectorStoreQueryMode.HYBRID else None) or query.similarity_top_k
        if query.query_str is not None:
            return self.client.search(query.query_str, k, **options)
        if query.query_embedding is None:
            raise QueryError("the query has neither text nor embedding")
        vector = Embeddings(dense=np.asarray([query.query_embedding], np.float32))
        (hits,) = self.client.search_embeddings(vector, k, **{**options, "mode": "dense"})
        return hits

    def _mode(self, query: VectorStoreQuery) -> dict[str, Any]:
        if query.mode == VectorStoreQueryMode.DEFAULT:
            return {}
        if query.mode not in MODES:
            names = ", ".join(mode.value for mode in MODES)
            raise ConfigError(f"plait has no query mode {query.mode.value!r}; there are default, {names}")
        options: dict[str, Any] = {"mode": MODES[query.mode]}
        if query.mode == VectorStoreQueryMode.HYBRID and query.alpha is not None:
            kinds = {kind: query.alpha for kind in ("dense", "multi") if kind in self.client.spec.sizes()}
            options["params"] = HybridParams(**kinds, bm25=1 - query.alpha)
        return options

    def _filter(self, query: VectorStoreQuery, search: Mapping[str, Any]) -> str | None:
        parts = [
            filter_text(query.filters),
            in_documents(query.doc_ids) if query.doc_ids else None,
            search.get("filter", self.search.get("filter")),
        ]
        return _all_of(parts)

    # -- the same calls for asyncio, in a thread

    async def async_add(self, nodes: Sequence[BaseNode], **options: Any) -> list[str]:
        return await asyncio.to_thread(self.add, nodes, **options)

    async def adelete(self, ref_doc_id: str, **options: Any) -> None:
        await asyncio.to_thread(self.delete, ref_doc_id, **options)

    async def adelete_nodes(
        self, node_ids: list[str] | None = None, filters: MetadataFilters | None = None, **options: Any
    ) -> None:
        await asyncio.to_thread(self.delete_nodes, node_ids, filters, **options)

    async def aclear(self) -> None:
        await asyncio.to_thread(self.clear)

    async def aget_nodes(
        self, node_ids: list[str] | None = None, filters: MetadataFilters | None = None
    ) -> list[BaseNode]:
        return await asyncio.to_thread(self.get_nodes, node_ids, filters)

    async def aquery(self, query: VectorStoreQuery, **search: Any) -> VectorStoreQueryResult:
        return await asyncio.to_thread(self.query, query, **search)


def _node(document: Document) -> BaseNode:
    return from_plait(document.id, document.text, document.metadata)


def _both(node_ids: list[str] | None, filter: str | None) -> str | None:
    """The nodes of these ids that the filter accepts; None stands for all nodes."""
    return _all_of([None if node_ids is None else one_of("id", node_ids), filter])


def _all_of(parts: Sequence[str | None]) -> str | None:
    conditions = [part for part in parts if part is not None]
    return join("and", conditions) if conditions else None

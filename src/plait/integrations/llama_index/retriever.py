"""`PlaitRetriever`: finds nodes in any plait index."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.schema import NodeWithScore, QueryBundle
from llama_index.core.vector_stores.types import MetadataFilters

from plait.checks import check_count
from plait.integrations.filters.llama_index import filter_text
from plait.integrations.llama_index.nodes import from_hit
from plait.integrations.opening import Content, IndexOrPath, as_index, check_content, plain_search

DEFAULT_TOP_K = 2  # as elsewhere in LlamaIndex


class PlaitRetriever(BaseRetriever):
    """Finds passages in a plait index: `PlaitRetriever("my-index", similarity_top_k=5, mode="hybrid")`.

    `index` is an open index or the path of one. A node is the best passages of a document, which is what a prompt
    needs; content="document" gives whole documents. `filters` are metadata filters or a plait filter; `search` are
    further options of `Index.search`.
    """

    def __init__(
        self,
        index: IndexOrPath,
        *,
        similarity_top_k: int = DEFAULT_TOP_K,
        mode: str = "hybrid",
        filters: MetadataFilters | str | None = None,
        passages: int = 1,
        content: Content = "passages",
        search: Mapping[str, Any] | None = None,
        **base: Any,
    ) -> None:
        check_count("similarity_top_k", similarity_top_k)
        check_content(content)
        self._index, self._top_k, self._content = as_index(index), similarity_top_k, content
        filter = filter_text(filters)
        self._search = plain_search({"mode": mode, "passages": passages, "filter": filter, **(search or {})})
        super().__init__(**base)

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        hits = self._index.search(query_bundle.query_str, self._top_k, **self._search)
        return [NodeWithScore(node=from_hit(hit, self._content), score=hit.score) for hit in hits]

    async def _aretrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return await asyncio.to_thread(self._retrieve, query_bundle)

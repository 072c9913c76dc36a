"""What `RAGPretrainedModel.as_langchain_retriever` and `as_langchain_document_compressor` return. Needs
langchain-core."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from langchain_core.callbacks import CallbackManagerForRetrieverRun, Callbacks
from langchain_core.documents import BaseDocumentCompressor, Document
from langchain_core.retrievers import BaseRetriever
from pydantic import Field


class CompatRetriever(BaseRetriever):
    """Documents with the text of each passage and the metadata of its document."""

    model: Any
    kwargs: dict[str, Any] = Field(default_factory=dict)

    def _get_relevant_documents(self, query: str, *, run_manager: CallbackManagerForRetrieverRun) -> list[Document]:
        del run_manager
        results = self.model.search(query, **self.kwargs)
        return [Document(page_content=one["content"], metadata=one.get("document_metadata", {})) for one in results]


class CompatCompressor(BaseDocumentCompressor):
    """The k best documents by MaxSim, each with its score in the metadata, as relevance_score."""

    model: Any
    kwargs: dict[str, Any] = Field(default_factory=dict)
    k: int = 5

    def compress_documents(
        self, documents: Sequence[Document], query: str, callbacks: Callbacks | None = None, **kwargs: Any
    ) -> list[Document]:
        del callbacks
        given = list(documents)
        texts = [one.page_content for one in given]
        results = self.model.rerank(query=query, documents=texts, k=kwargs.get("k", self.k), **self.kwargs)
        for result in results:
            given[result["result_index"]].metadata["relevance_score"] = result["score"]
        return [given[result["result_index"]] for result in results]

"""plait's model for LanceDB."""

from __future__ import annotations

from typing import Any

from lancedb.embeddings import EmbeddingFunction, register

from benchmarks.calls.model import embed_documents, embed_queries, n_dims


@register("plait")
class PlaitFunction(EmbeddingFunction):  # type: ignore[misc]
    def ndims(self) -> int:
        return n_dims()

    def compute_query_embeddings(self, query: str, *args: Any, **kwargs: Any) -> list[list[float]]:  # noqa: ARG002
        return embed_queries([query])

    def compute_source_embeddings(self, texts: Any, *args: Any, **kwargs: Any) -> list[list[float]]:  # noqa: ARG002
        return embed_documents(self.sanitize_input(texts))

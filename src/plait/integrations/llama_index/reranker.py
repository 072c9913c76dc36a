"""`PlaitReranker`: reorders nodes by a cross-encoder."""

from __future__ import annotations

from typing import Any

from llama_index.core.bridge.pydantic import ConfigDict
from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.schema import MetadataMode, NodeWithScore, QueryBundle

from plait.errors import QueryError
from plait.integrations.reranking import best_texts, check_scorer, check_top_n


class PlaitReranker(BaseNodePostprocessor):
    """Reorders nodes by a cross-encoder and keeps the best `top_n`; None keeps all.

    `model` is the name or folder of a cross-encoder, an object of `plait.adapters` that scores pairs, or None for
    plait-cross-small.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True, protected_namespaces=())

    model: Any = None
    top_n: int | None = 2

    def __init__(self, model: Any = None, top_n: int | None = 2, **base: Any) -> None:
        check_scorer(model)
        check_top_n(top_n)
        super().__init__(model=model, top_n=top_n, **base)

    @classmethod
    def class_name(cls) -> str:
        return "PlaitReranker"

    def _postprocess_nodes(
        self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None
    ) -> list[NodeWithScore]:
        if query_bundle is None:
            raise QueryError("a reranker needs the query; pass query_str or query_bundle")
        texts = [node.node.get_content(metadata_mode=MetadataMode.NONE) for node in nodes]
        best = best_texts(self.model, query_bundle.query_str, texts, self.top_n)
        return [NodeWithScore(node=nodes[position].node, score=score) for position, score in best]

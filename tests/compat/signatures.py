"""The names, kinds and defaults of the parameters of calls, as JSON values: of a library, or of its shape in plait."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

# The calls that have a shape in plait, by library: the path of each below the library's root.
CALLS = {
    "pylate": [
        "models.ColBERT.__init__",
        "models.ColBERT.load",
        "models.ColBERT.encode",
        "models.ColBERT.get_sentence_embedding_dimension",
        "indexes.PLAID.__init__",
        "indexes.PLAID.add_documents",
        "indexes.PLAID.remove_documents",
        "indexes.PLAID.update_documents",
        "indexes.PLAID.__call__",
        "indexes.PLAID.get_documents_embeddings",
        "indexes.Voyager.__init__",
        "indexes.Voyager.add_documents",
        "indexes.Voyager.remove_documents",
        "indexes.Voyager.__call__",
        "indexes.Voyager.get_documents_embeddings",
        "retrieve.ColBERT.__init__",
        "retrieve.ColBERT.retrieve",
        "retrieve.XTR.__init__",
        "retrieve.XTR.retrieve",
        "rank.rerank",
        "rank.score_xtr",
    ],
    "ragatouille": [
        f"RAGPretrainedModel.{name}"
        for name in (
            "from_pretrained",
            "from_index",
            "index",
            "add_to_index",
            "delete_from_index",
            "search",
            "rerank",
            "encode",
            "search_encoded_docs",
            "clear_encoded_docs",
            "as_langchain_retriever",
            "as_langchain_document_compressor",
        )
    ],
    "flagembedding": [
        "BGEM3FlagModel.__init__",
        "BGEM3FlagModel.encode",
        "BGEM3FlagModel.encode_queries",
        "BGEM3FlagModel.encode_corpus",
        "BGEM3FlagModel.compute_score",
        "BGEM3FlagModel.convert_id_to_token",
        "BGEM3FlagModel.compute_lexical_matching_score",
        "BGEM3FlagModel.colbert_score",
        "FlagModel.__init__",
        "FlagModel.encode",
        "FlagModel.encode_queries",
        "FlagModel.encode_corpus",
        "FlagReranker.__init__",
        "FlagReranker.compute_score",
    ],
}


def signatures(root: Any, calls: Sequence[str]) -> dict[str, list[list[str]]]:
    """[name, kind, default] of each parameter of each call; the default of a required one is empty."""
    return {call: _parameters(_named(root, call)) for call in calls}


def _named(root: Any, path: str) -> Any:
    for name in path.split("."):
        root = getattr(root, name)
    return root


def _parameters(call: Any) -> list[list[str]]:
    parameters: Mapping[str, inspect.Parameter] = inspect.signature(call).parameters
    return [[one.name, one.kind.name.lower(), _default(one.default)] for one in parameters.values()]


def _default(value: Any) -> str:
    if value is inspect.Parameter.empty:
        return ""
    return f"function {value.__name__}" if inspect.isfunction(value) else repr(value)

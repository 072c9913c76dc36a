"""plait's model for Chroma."""

from __future__ import annotations

from typing import Any

from chromadb import EmbeddingFunction  # type: ignore[import-not-found,unused-ignore]

from benchmarks.calls.model import embed_documents, embed_queries


class PlaitFunction(EmbeddingFunction):  # type: ignore[misc,unused-ignore]
    def __init__(self) -> None:
        pass  # Chroma warns of a function without its own __init__

    def __call__(self, input: Any) -> Any:  # noqa: A002 - Chroma checks the name
        return embed_documents(list(input))

    def embed_query(self, input: Any) -> Any:  # noqa: A002
        return embed_queries(list(input))

    @staticmethod
    def name() -> str:
        return "plait"

    def get_config(self) -> dict[str, Any]:
        return {}

    @staticmethod
    def build_from_config(config: dict[str, Any]) -> PlaitFunction:  # noqa: ARG004
        return PlaitFunction()

"""`PlaitRanker`: reorders documents by a cross-encoder."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

from haystack import component, default_from_dict, default_to_dict
from haystack.dataclasses import Document

from plait.checks import shown
from plait.errors import ConfigError
from plait.integrations.reranking import best_texts, check_scorer, check_top_n


@component
class PlaitRanker:
    """Reorders documents by a cross-encoder and keeps the best `top_k`; None keeps all.

    `model` is the name or folder of a cross-encoder, an object of `plait.adapters` that scores pairs, or None for
    plait-cross-small. Documents without content are left out.
    """

    def __init__(self, model: Any = None, *, top_k: int | None = 10) -> None:
        check_scorer(model)
        check_top_n(top_k)
        self.model, self.top_k = model, top_k

    def to_dict(self) -> dict[str, Any]:
        if self.model is not None and not isinstance(self.model, str | Path):
            raise ConfigError(f"model is {shown(self.model)}, which cannot be saved; name a model or its folder")
        model = None if self.model is None else str(self.model)
        return default_to_dict(self, model=model, top_k=self.top_k)  # type: ignore[no-any-return]

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> PlaitRanker:
        return default_from_dict(cls, data)  # type: ignore[no-any-return]

    @component.output_types(documents=list[Document])
    def run(self, query: str, documents: list[Document], top_k: int | None = None) -> dict[str, list[Document]]:
        check_top_n(top_k)
        with_text = [document for document in documents if document.content]
        texts = [document.content or "" for document in with_text]
        best = best_texts(self.model, query, texts, self.top_k if top_k is None else top_k)
        return {"documents": [replace(with_text[position], score=score) for position, score in best]}

    @component.output_types(documents=list[Document])
    async def run_async(
        self, query: str, documents: list[Document], top_k: int | None = None
    ) -> dict[str, list[Document]]:
        return await asyncio.to_thread(self.run, query, documents, top_k)

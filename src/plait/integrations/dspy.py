"""DSPy: a retriever for programs, as a tool of agents, and for `dspy.configure(rm=...)`.

from plait.integrations.dspy import PlaitRetriever

search = PlaitRetriever("my-index", k=5)
search("what does a loom do").passages
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from plait.checks import check_count
from plait.integrations.extras import missing_extra
from plait.integrations.filters.dictionaries import filter_text
from plait.integrations.opening import (
    Content,
    IndexOrPath,
    as_index,
    check_content,
    hit_metadata,
    hit_text,
    plain_search,
)

try:
    import dspy
    from dspy.dsp.utils import dotdict
except ModuleNotFoundError as error:
    raise missing_extra("dspy", error) from error


class PlaitRetriever:
    """Finds passages in a plait index, by calling it with a query.

    `index` is an open index or the path of one. The prediction has `passages`, the texts, and beside each text its
    `ids`, `scores` and `metadata`. A text is the best passages of a document; content="document" gives whole documents.
    `filter` is a plait filter or a dictionary; `search` are further options of `Index.search`. k and filter may be
    given to a call.
    """

    def __init__(
        self,
        index: IndexOrPath,
        *,
        k: int = 3,
        mode: str = "hybrid",
        filter: str | Mapping[str, Any] | None = None,
        passages: int = 1,
        content: Content = "passages",
        search: Mapping[str, Any] | None = None,
    ) -> None:
        check_count("k", k)
        check_content(content)
        self.index, self.k, self._content, self._filter = as_index(index), k, content, filter
        self._search = plain_search({"mode": mode, "passages": passages, **(search or {})})

    def __call__(self, query: str, k: int | None = None, filter: str | Mapping[str, Any] | None = None) -> Any:
        """A `dspy.Prediction`."""
        conditions = self._filter if filter is None else filter
        options = {**self._search, "filter": filter_text(conditions)}
        hits = self.index.search(query, self.k if k is None else k, **options)
        return dspy.Prediction(
            passages=[hit_text(hit, self._content) for hit in hits],
            ids=[hit.id for hit in hits],
            scores=[hit.score for hit in hits],
            metadata=[hit_metadata(hit) for hit in hits],
        )

    forward = __call__

    async def acall(self, query: str, k: int | None = None, filter: str | Mapping[str, Any] | None = None) -> Any:
        """The same for asyncio, in a thread."""
        return await asyncio.to_thread(self, query, k, filter)

    def __deepcopy__(self, memo: dict[int, Any]) -> PlaitRetriever:
        """Itself: optimizers copy programs, and an open index is shared."""
        return self

    def as_tool(self, name: str = "search", description: str = "Finds passages of documents for a query.") -> Any:
        """A `dspy.Tool` for agents, which takes a query and returns a list of passages."""

        def search(query: str) -> list[str]:
            passages: list[str] = self(query).passages
            return passages

        return dspy.Tool(search, name=name, desc=description)

    def as_rm(self) -> Any:
        """For `dspy.configure(rm=...)`, which `dspy.Retrieve` calls: a function that returns a list of passages."""

        def rm(query: str, k: int | None = None, **options: Any) -> list[Any]:
            prediction = self(query, k, **options)
            columns = zip(prediction.passages, prediction.ids, prediction.scores, strict=True)
            return [dotdict(long_text=text, pid=id, score=score) for text, id, score in columns]

        return rm

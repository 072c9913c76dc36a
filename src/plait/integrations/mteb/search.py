"""`PlaitSearch`: a search model of MTEB, in which plait indexes the corpus and searches by itself."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from mteb.models.model_meta import ModelMeta

from plait.checks import shown
from plait.encode.protocol import Encoder
from plait.errors import ConfigError, InputError
from plait.evaluate.rank import rank_queries
from plait.evaluate.runs import ordered, strictly_decreasing
from plait.index import Index, open_index
from plait.integrations.opening import check_search
from plait.integrations.temporary import remove_with, temporary_path
from plait.records import Document
from plait.search.params import Params
from plait.version import __version__


class PlaitSearch:
    """Searches the corpus of a task with an index of plait: `PlaitSearch("plait-small", mode="hybrid")`.

    `model` is the name of a bundled or installed model or a model folder, `encoder` any encoder of plait. Without
    `folder`, an index lives in a temporary folder until the next task; with one, it is kept there by the name of the
    task, and documents that did not change are not encoded again. `mode`, `params` and `rerank` are those of
    `Index.search`; `options` are those of `plait.open`, such as pooling.
    """

    def __init__(
        self,
        model: str | Path | None = None,
        *,
        encoder: Encoder | None = None,
        mode: str = "hybrid",
        params: Params | None = None,
        rerank: Any = None,
        folder: str | Path | None = None,
        **options: Any,
    ) -> None:
        self._search: dict[str, Any] = {"mode": mode, "params": params, "rerank": rerank, "syntax": False}
        check_search(self._search)
        if model is not None and encoder is not None:
            raise ConfigError("give model or encoder, not both")
        self._options = {**options, "model": model, "encoder": encoder}
        self._folder = None if folder is None else Path(folder)
        self._owner: object = None  # of a temporary index: it is removed when this is replaced
        self._index: Index | None = None
        name = Path(str(model)).name if model is not None else "given encoder" if encoder is not None else "plait-small"
        self.mteb_model_meta = make_meta(name, mode)

    def index(self, corpus: Any, *, task_metadata: Any, hf_split: str, hf_subset: str, **_options: Any) -> None:
        """Indexes the corpus. Blank documents, which no search can find, are left out."""
        self.close()
        name = re.sub(r"[^\w.-]+", "_", f"{task_metadata.name}-{hf_subset}-{hf_split}")
        path = temporary_path() if self._folder is None else self._folder / name
        self._index = open_index(path, create=True, **self._options)
        if self._folder is None:
            self._owner = _Owner()
            remove_with(self._owner, self._index)
        report = self._index.add(corpus_documents(corpus))
        n_documents = report.added + report.updated + report.unchanged
        if len(self._index) != n_documents:
            raise ConfigError(
                f"{path} has {len(self._index)} documents, and the corpus {n_documents}; remove it, or choose another "
                f"folder"
            )

    def search(
        self, queries: Any, *, top_k: int, top_ranked: Mapping[str, list[str]] | None = None, **_options: Any
    ) -> dict[str, dict[str, float]]:
        """Scores of the `top_k` best documents of each query. They decrease strictly, so that no evaluator has ties to
        break: scores that are equal are lowered by the least that 32 bits can hold."""
        if self._index is None:
            raise ConfigError("search was called before index")
        texts = query_texts(queries)
        if top_ranked is None:
            rankings = rank_queries(self._index, list(texts.values()), top_k, **self._search)
            return {id: _scores(ranking) for id, ranking in zip(texts, rankings, strict=True)}
        results: dict[str, dict[str, float]] = {}
        for id, text in texts.items():
            candidates = [one for one in top_ranked.get(id, []) if one in self._index]
            ranking: list[tuple[str, float]] = []
            if candidates:
                (ranking,) = rank_queries(self._index, [text], top_k, candidates=candidates, **self._search)
            results[id] = _scores(ranking)
        return results

    def close(self) -> None:
        """Closes the index; a temporary one is removed. MTEB does not call this."""
        if self._index is not None:
            self._index.close()
        self._index = self._owner = None


class _Owner:
    """Nothing but an owner."""


def _scores(ranking: list[tuple[str, float]]) -> dict[str, float]:
    entries = ordered(ranking)
    scores = strictly_decreasing([score for _, score in entries])
    return {id: score for (id, _), score in zip(entries, scores, strict=True)}


def corpus_documents(corpus: Any) -> Iterator[Document]:
    """The documents of an MTEB corpus: rows with id, text and, if they have one, title."""
    for row in corpus:
        text, title = row.get("text"), row.get("title") or ""
        if not isinstance(text, str):
            raise InputError(f"document {shown(row.get('id'))} has no text; plait searches texts")
        if text.strip() or title.strip():
            yield Document(str(row["id"]), text, title)


def query_texts(queries: Any) -> dict[str, str]:
    """Texts by query id, with the instruction after the text if a query has one."""
    texts: dict[str, str] = {}
    for row in queries:
        text, instruction = row.get("text"), row.get("instruction")
        if not isinstance(text, str):
            raise InputError(f"query {shown(row.get('id'))} is {shown(text)}; plait searches with texts")
        texts[str(row["id"])] = f"{text} {instruction}" if instruction else text
    return texts


def make_meta(model: str, mode: str) -> ModelMeta:
    """What MTEB stores with results."""
    return ModelMeta.create_empty({"name": f"plait/{model} {mode}".replace(" ", "-"), "revision": __version__})

"""LangChain: a vector store, a retriever, and a cross-encoder as a document compressor.

    from plait.integrations.langchain import PlaitVectorStore

    store = PlaitVectorStore("my-index", create=True)
    store.add_documents(documents)
    retriever = store.as_retriever(search_kwargs={"k": 5, "filter": "year >= 2020"})

Async calls run the same code in a thread: an index may be shared by threads.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np

from plait.adapters import FunctionEncoder
from plait.checks import as_list, check_count
from plait.embeddings import Embeddings as PlaitEmbeddings
from plait.encode.protocol import Encoder
from plait.errors import ConfigError, DocumentError
from plait.index import Index
from plait.integrations.extras import missing_extra
from plait.integrations.filters.conditions import ALWAYS
from plait.integrations.filters.dictionaries import filter_text
from plait.integrations.opening import (
    Content,
    IndexOrPath,
    as_index,
    check_content,
    dense_vectors,
    hit_metadata,
    hit_text,
    plain_search,
)
from plait.integrations.reranking import best_texts, check_scorer, check_top_n
from plait.integrations.temporary import remove_with, temporary_path
from plait.records import Document as PlaitDocument
from plait.records import Hit

try:
    from langchain_core.callbacks import CallbackManagerForRetrieverRun, Callbacks
    from langchain_core.documents import BaseDocumentCompressor, Document
    from langchain_core.embeddings import Embeddings
    from langchain_core.retrievers import BaseRetriever
    from langchain_core.vectorstores import VectorStore
    from langchain_core.vectorstores.utils import maximal_marginal_relevance
    from pydantic import ConfigDict, Field, PrivateAttr
except ModuleNotFoundError as error:
    raise missing_extra("langchain", error) from error

Filter = str | Mapping[str, Any] | None  # a plait filter, or a dictionary such as {"year": {"$gte": 2020}}
DEFAULT_K = 4  # as elsewhere in LangChain


class PlaitVectorStore(VectorStore):
    """A plait index as a vector store.

    `index` is an open index or the path of one; `options` are then those of `plait.open`, such as create=True. plait
    encodes texts itself. To use another model, give `embedding`, LangChain embeddings, with the path of an index that
    was or is to be made with them.

    `search` are options of every search, such as {"mode": "multi", "rerank": True}; calls may override them. A result
    is the whole document, as it was added; with content="passages", its best passages. `title_field` names a metadata
    field whose text is encoded with every passage.
    """

    def __init__(
        self,
        index: IndexOrPath,
        *,
        embedding: Embeddings | None = None,
        search: Mapping[str, Any] | None = None,
        content: Content = "document",
        title_field: str | None = None,
        **options: Any,
    ) -> None:
        check_content(content)
        if embedding is not None:
            options["encoder"] = encoder_of(embedding)
        self.index: Index = as_index(index, **options)
        self._embedding, self._content, self._title_field = embedding, content, title_field
        self._search = plain_search(search)

    @classmethod
    def from_texts(
        cls,
        texts: list[str],
        embedding: Embeddings | None = None,
        metadatas: list[dict[str, Any]] | None = None,
        *,
        ids: list[str] | None = None,
        path: str | Path | None = None,
        **options: Any,
    ) -> Self:
        """A store with these texts: at `path`, or in a temporary folder that is removed with the store. Further
        options are those of the class. `embedding` may be None: plait has a model of its own."""
        store = cls(path or temporary_path(), embedding=embedding, **{"create": True, **options})
        if path is None:
            remove_with(store, store.index)
        store.add_texts(texts, metadatas, ids=ids)
        return store

    @property
    def embeddings(self) -> Embeddings | None:
        return self._embedding

    def add_texts(
        self,
        texts: Iterable[str],
        metadatas: list[dict[str, Any]] | None = None,
        *,
        ids: Sequence[str | None] | None = None,
        **options: Any,
    ) -> list[str]:
        """Adds texts and returns their ids; a text whose id exists replaces it. Further options are those of
        `Index.add`."""
        texts = as_list("texts", texts, "texts", DocumentError)
        fields = metadatas if metadatas is not None else [{} for _ in texts]
        names = ids if ids is not None else [None for _ in texts]
        if not len(texts) == len(fields) == len(names):
            raise DocumentError(
                f"there are {len(texts)} texts, {len(fields)} metadatas and {len(names)} ids; give one for each text"
            )
        documents = [
            PlaitDocument(str(uuid.uuid4()) if id is None else id, text, self._title(metadata), metadata)
            for text, metadata, id in zip(texts, fields, names, strict=True)
        ]
        self.index.add(documents, **options)
        return [document.id for document in documents]

    def _title(self, metadata: Mapping[str, Any]) -> str:
        title = metadata.get(self._title_field) if self._title_field is not None else None
        return title if isinstance(title, str) else ""

    def delete(self, ids: list[str] | None = None, *, filter: Filter = None, **_options: Any) -> bool:
        """Deletes documents by id, those that a filter accepts, or all of them."""
        if ids is not None and filter is not None:
            raise ConfigError("delete takes ids or a filter: one of the two")
        if ids is not None:
            self.index.delete(ids)
        else:
            self.index.delete(filter=filter_text(filter) or ALWAYS)
        return True

    def get_by_ids(self, ids: Sequence[str], /) -> list[Document]:
        """The documents with these ids, in this order; unknown ids are left out."""
        return [
            Document(id=document.id, page_content=document.text, metadata=dict(document.metadata))
            for document in self.index.get(ids)
            if document is not None
        ]

    def similarity_search(self, query: str, k: int = DEFAULT_K, **search: Any) -> list[Document]:
        """The k best documents. `filter` is a plait filter or a dictionary; further options are those of
        `Index.search`: mode, params, rerank, min_score, passages, timeout."""
        return [self._document(hit) for hit in self._hits(query, k, **search)]

    def similarity_search_with_score(
        self, query: str, k: int = DEFAULT_K, **search: Any
    ) -> list[tuple[Document, float]]:
        """The same with scores, where more is better. In mode hybrid they are from 0 to 1."""
        return [(self._document(hit), hit.score) for hit in self._hits(query, k, **search)]

    def _similarity_search_with_relevance_scores(
        self, query: str, k: int = DEFAULT_K, **search: Any
    ) -> list[tuple[Document, float]]:
        mode = {**self._search, **search}.get("mode", "hybrid")
        if mode != "hybrid":
            raise ConfigError(f"scores of mode {mode} are not relevances from 0 to 1; use mode hybrid, or min_score")
        return self.similarity_search_with_score(query, k, **search)

    def similarity_search_by_vector(self, embedding: list[float], k: int = DEFAULT_K, **search: Any) -> list[Document]:
        """The documents whose dense vectors are most similar to one that the caller made with the model of the
        index."""
        vector = PlaitEmbeddings(dense=np.asarray([embedding], np.float32))
        options = self._options({"mode": "dense", **search})
        (hits,) = self.index.search_embeddings(vector, k, **options)
        return [self._document(hit) for hit in hits]

    def max_marginal_relevance_search(
        self, query: str, k: int = DEFAULT_K, fetch_k: int = 20, lambda_mult: float = 0.5, **search: Any
    ) -> list[Document]:
        """k of the `fetch_k` best documents that differ from one another, by their dense vectors."""
        if not 0 <= lambda_mult <= 1:
            raise ConfigError(f"lambda_mult is {lambda_mult}; it is a share, from 0 (diverse) to 1 (similar)")
        hits = self._hits(query, max(k, fetch_k), **search)
        vectors = dense_vectors(self.index, [hit.id for hit in hits])
        hits = [hit for hit in hits if hit.id in vectors]
        query_vector = self.index.encoder.encode_queries([query]).dense
        assert query_vector is not None
        chosen = maximal_marginal_relevance(query_vector[0], [vectors[hit.id] for hit in hits], lambda_mult, k)
        return [self._document(hits[position]) for position in chosen]

    def _hits(self, query: str, k: int, **search: Any) -> list[Hit]:
        return self.index.search(query, k, **self._options(search))

    def _options(self, search: Mapping[str, Any]) -> dict[str, Any]:
        options = plain_search({**self._search, **search, "filter": None})
        given = search.get("filter", self._search.get("filter"))
        return {**options, "filter": filter_text(given)}

    def _document(self, hit: Hit) -> Document:
        return Document(id=hit.id, page_content=hit_text(hit, self._content), metadata=dict(hit.metadata))


class PlaitRetriever(BaseRetriever):
    """Finds documents in a plait index: `PlaitRetriever(index="my-index", k=5, mode="hybrid")`.

    `index` is an open index or the path of one. A result is the best passages of a document, which is what a prompt
    needs; content="document" gives whole documents. The metadata are those of the document, with score, title,
    headings and location. `search` are further options of `Index.search`. A call may override them:
    `retriever.invoke(query, k=3, filter="year >= 2020")`.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True)

    index: Any
    k: int = DEFAULT_K
    mode: str = "hybrid"
    filter: str | dict[str, Any] | None = None
    passages: int = 1
    content: Content = "passages"
    search: dict[str, Any] = Field(default_factory=dict)
    _opened: Any = PrivateAttr(default=None)

    def model_post_init(self, context: Any, /) -> None:
        super().model_post_init(context)
        check_content(self.content)
        check_count("k", self.k)
        self._opened = as_index(self.index)
        self._options({})

    def _options(self, search: Mapping[str, Any]) -> dict[str, Any]:
        fields = {"mode": self.mode, "passages": self.passages, "filter": self.filter}
        options = {**fields, **self.search, **search}
        return plain_search({**options, "filter": filter_text(options["filter"])})

    def _get_relevant_documents(
        self, query: str, *, run_manager: CallbackManagerForRetrieverRun, k: int | None = None, **search: Any
    ) -> list[Document]:
        del run_manager
        hits = self._opened.search(query, self.k if k is None else k, **self._options(search))
        return [
            Document(id=hit.id, page_content=hit_text(hit, self.content), metadata=hit_metadata(hit)) for hit in hits
        ]


class PlaitReranker(BaseDocumentCompressor):
    """Reorders documents by a cross-encoder and keeps the best `top_n`; None keeps all.

    `model` is the name or folder of a cross-encoder, an object of `plait.adapters` that scores pairs, or None for
    plait-cross-small. The score is added to the metadata as relevance_score.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True, protected_namespaces=())

    model: Any = None
    top_n: int | None = 3

    def model_post_init(self, context: Any, /) -> None:
        super().model_post_init(context)
        check_scorer(self.model)
        check_top_n(self.top_n)

    def compress_documents(
        self, documents: Sequence[Document], query: str, callbacks: Callbacks | None = None
    ) -> list[Document]:
        del callbacks
        best = best_texts(self.model, query, [document.page_content for document in documents], self.top_n)
        return [
            documents[position].model_copy(
                update={"metadata": {**documents[position].metadata, "relevance_score": score}}
            )
            for position, score in best
        ]


def encoder_of(embedding: Embeddings) -> Encoder:
    """LangChain embeddings as a dense encoder of plait."""
    if not isinstance(embedding, Embeddings):
        raise ConfigError(f"embedding must be LangChain embeddings; got {type(embedding).__name__}")
    model = next((str(name) for key in ("model", "model_name") if (name := getattr(embedding, key, None))), "")
    return FunctionEncoder(
        embedding.embed_documents,
        lambda texts: [embedding.embed_query(text) for text in texts],
        name=f"langchain {type(embedding).__name__} {model}".strip(),
        normalize=True,
    )

"""`RAGPretrainedModel`, with the arguments and results of RAGatouille 0.0.9.

An index is a plait index in `.ragatouille/colbert/indexes/NAME`, and each of its documents is a passage. Passages of
`max_document_length` words are cut after whole sentences; what is longer than the model takes is split further, never
cut off. Documents in memory (`rerank`, `encode`) are cut at the length of the model's card. A `k` that is larger than
the number of documents gives them all. Many vectors are compressed, to 4 bits a dimension, or 2 from 10,000 passages.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from uuid import uuid4

import numpy as np

from plait.checks import as_list, check_count, check_flag, shown
from plait.compat.arguments import refuse_unknown, warn, warn_unused
from plait.compat.compression import compress_if_large
from plait.compat.loading import check_kind, encode, load_encoder, model_folder
from plait.embeddings import Embeddings, MultiVectors
from plait.encode.chunking import Chunking, WindowChunker, WordTokenizer
from plait.encode.hub_models import hub_name
from plait.encode.onnx import OnnxEncoder
from plait.errors import ConfigError, EncoderMismatchError, InputError, ModelError, NotAnIndexError
from plait.index import Index, open_index
from plait.records import Document, Hit
from plait.scoring.maxsim import maxsim
from plait.storage.folder import ATTACHMENTS, remove_index_copy
from plait.storage.store import FILE_NAMES

if TYPE_CHECKING:
    from plait.compat.langchain import CompatCompressor, CompatRetriever

DEFAULT_ROOT = ".ragatouille/"
INDEXES = Path("colbert", "indexes")
DEFAULT_LENGTH = 256
DOCUMENT_ID, PASSAGE_ID, METADATA = "document_id", "passage_id", "document_metadata"
WORDS_TO_TOKENS = 1.35  # RAGatouille's estimate of a query's tokens
MIN_QUERY_LENGTH = 32
MANY_PASSAGES = 10_000
ENCODE_AT_ONCE = 2000  # documents of one commit

Chunk = dict[str, str]  # document_id, content
Result = dict[str, Any]


def llama_index_sentence_splitter(documents: list[str], document_ids: list[str], chunk_size: int = 256) -> list[Chunk]:
    """Passages of at most `chunk_size` words that end with sentences; the name is that of RAGatouille's splitter, which
    calls LlamaIndex. This one is plait's."""
    overlap = int(min(chunk_size / 4, 64))
    words = WindowChunker(WordTokenizer(), size=chunk_size, overlap=overlap)
    chunker = words.with_chunking(Chunking(size=chunk_size, overlap=overlap, by="sentence"), max_size=None)
    return [
        {"document_id": id, "content": text[span.start : span.end].strip()}
        for id, text in zip(document_ids, documents, strict=True)
        for span in chunker.split("", text)
    ]


class RAGPretrainedModel:
    """A late-interaction model with one index at a time. Make one with `from_pretrained` or `from_index`."""

    def __init__(self) -> None:
        self.model_name: str | None = None
        self._encoder: OnnxEncoder | None = None
        self._model: str | Path | None = None  # by which an index finds the model again
        self._root = Path(DEFAULT_ROOT)
        self._index: Index | None = None
        self._index_name: str | None = None
        self._length = DEFAULT_LENGTH
        self._texts: list[str] = []  # of `encode`
        self._metadata: list[dict[str, Any] | None] = []
        self._vectors: list[Any] = []

    @classmethod
    def from_pretrained(
        cls,
        pretrained_model_name_or_path: str | Path,
        n_gpu: int = -1,
        verbose: int = 1,
        index_root: str | None = None,
    ) -> RAGPretrainedModel:
        """Loads a model: a plait model, a checkpoint of the hub, or a local one."""
        _check_gpus(n_gpu)
        check_count("verbose", verbose, least=0)  # plait prints nothing while it indexes
        rag = cls()
        folder = model_folder(pretrained_model_name_or_path)
        rag._encoder = load_encoder(folder, precision=None, device=None, needs="multi")
        rag.model_name = str(pretrained_model_name_or_path)
        is_name = not Path(pretrained_model_name_or_path).is_dir()
        rag._model = rag.model_name if is_name or hub_name(rag.model_name) is not None else folder
        rag._root = Path(DEFAULT_ROOT if index_root is None else index_root)
        return rag

    @classmethod
    def from_index(cls, index_path: str | Path, n_gpu: int = -1, verbose: int = 1) -> RAGPretrainedModel:
        """Opens an index with the model that it was made with. A model folder is not loaded because an index names it:
        then use `from_pretrained(folder)` and `search(query, index_name=...)`."""
        _check_gpus(n_gpu)
        check_count("verbose", verbose, least=0)
        rag = cls()
        path = Path(index_path)
        index = _open(path, None)
        try:
            encoder = index.encoder
        except (ModelError, EncoderMismatchError) as error:
            index.close()
            raise ModelError(
                f"{error}. Or load the model and name the index: RAGPretrainedModel.from_pretrained(FOLDER, "
                f"index_root=ROOT).search(query, index_name={path.name!r})"
            ) from error
        if not isinstance(encoder, OnnxEncoder):
            raise ConfigError(f"{path} was made with the live encoder {shown(encoder)}; use plait.open for it")
        check_kind(encoder.spec, encoder.name, "multi")
        rag._encoder, rag.model_name = encoder, encoder.name
        rag._model = str(index.info().properties.get("model") or encoder.name)
        rag._index, rag._index_name = index, path.name
        rag._root = path.parents[2] if len(path.parents) > 2 else Path(DEFAULT_ROOT)
        return rag

    def index(
        self,
        collection: list[str],
        document_ids: list[str] | None = None,
        document_metadatas: list[dict[str, Any]] | None = None,
        index_name: str | None = None,
        overwrite_index: bool | str = True,
        max_document_length: int = DEFAULT_LENGTH,
        split_documents: bool = True,
        document_splitter_fn: Callable[..., Any] | None = llama_index_sentence_splitter,
        preprocessing_fn: Callable[..., Any] | list[Callable[..., Any]] | None = None,
        bsize: int = 32,
        use_faiss: bool = False,
    ) -> str:
        """Makes an index of documents; returns its path. `overwrite_index` "reuse" keeps an index that exists, False
        refuses to replace it."""
        if overwrite_index not in (True, False, "reuse", "force_silent_overwrite"):
            raise ConfigError(f"overwrite_index is {shown(overwrite_index)}; give True, False or 'reuse'")
        check_count("max_document_length", max_document_length, least=8)
        name = index_name or f"{Path(self._named()).name}new_index"
        path = self._root / INDEXES / name
        exists = path.is_dir() and any(path.iterdir())
        if exists and overwrite_index is False:
            raise ConfigError(f"{path} exists, and overwrite_index is False; choose another index_name")
        documents = self._passages(
            collection,
            document_ids,
            document_metadatas,
            document_splitter_fn if split_documents else None,
            preprocessing_fn,
            max_document_length,
        )
        self._close_index()
        self._index_name, self._length = name, max_document_length
        if exists and overwrite_index == "reuse":
            self._index = _open(path, self._model)
            return str(path)
        remove_index_copy(path, {*FILE_NAMES, ATTACHMENTS})
        path.parent.mkdir(parents=True, exist_ok=True)
        self._index = open_index(path, create=True, model=self._model)
        self._add(documents, 0, bsize, use_faiss)
        return str(path)

    def add_to_index(
        self,
        new_collection: list[str],
        new_document_ids: list[str] | None = None,
        new_document_metadatas: list[dict[str, Any]] | None = None,
        index_name: str | None = None,
        split_documents: bool = True,
        document_splitter_fn: Callable[..., Any] | None = llama_index_sentence_splitter,
        preprocessing_fn: Callable[..., Any] | list[Callable[..., Any]] | None = None,
        bsize: int = 32,
        use_faiss: bool = False,
    ) -> None:
        """Adds documents. Those whose ids the index has are left as they are, as in RAGatouille."""
        index = self._opened(index_name)
        splitter = document_splitter_fn if split_documents else None
        documents = self._passages(
            new_collection, new_document_ids, new_document_metadatas, splitter, preprocessing_fn, self._length
        )
        known = {str(one.metadata[DOCUMENT_ID]) for one in index}
        new = [document for document in documents if document["document_id"] not in known]
        first = 1 + max((int(one.metadata[PASSAGE_ID]) for one in index), default=-1)
        self._add(new, first, bsize, use_faiss)

    def delete_from_index(self, document_ids: list[str] | str, index_name: str | None = None) -> None:
        """Deletes all passages of documents; unknown ids are ignored."""
        ids = [document_ids] if isinstance(document_ids, str) else as_list("document_ids", document_ids, "ids")
        index = self._opened(index_name)
        index.delete([one.id for one in index if one.metadata.get(DOCUMENT_ID) in set(ids)])

    def search(
        self,
        query: str | list[str],
        index_name: str | None = None,
        k: int = 10,
        force_fast: bool = False,
        zero_index_ranks: bool = False,
        doc_ids: list[str] | None = None,
        **kwargs: Any,
    ) -> Any:
        """The k best passages: a list of dicts for one query, a list of lists for several. `doc_ids` searches in the
        passages of these documents."""
        refuse_unknown("search", kwargs)
        warn_unused("force_fast", force_fast, default=False, why="plait has one search, which is the fast one")
        check_flag("zero_index_ranks", zero_index_ranks)
        check_count("k", k)
        index = self._opened(index_name)
        embeddings = Embeddings(multi=self._encode_queries(query))
        condition = None
        if doc_ids is not None:
            ids = ", ".join(json.dumps(str(id), ensure_ascii=False) for id in doc_ids)
            condition = f"{DOCUMENT_ID} in ({ids})"
        hits: list[list[Hit]] = [[] for _ in range(len(embeddings))]
        if doc_ids is None or doc_ids:
            hits = index.search_embeddings(embeddings, k, mode="multi", filter=condition)
        first = 0 if zero_index_ranks else 1
        results = [[_result(hit, rank) for rank, hit in enumerate(of_query, first)] for of_query in hits]
        return results[0] if len(results) == 1 else results

    def rerank(
        self,
        query: str | list[str],
        documents: list[str],
        k: int = 10,
        zero_index_ranks: bool = False,
        bsize: Literal["auto"] | int = "auto",
    ) -> Any:
        """Encodes documents and ranks them by MaxSim. As in RAGatouille 0.0.9, ranks of this call begin at 0, or at -1
        with `zero_index_ranks`."""
        texts = _as_texts("documents", documents)
        vectors = self._encode_documents(texts, bsize, "auto")
        return self._in_memory(query, texts, vectors, k, -1 if zero_index_ranks else 0)

    def encode(
        self,
        documents: list[str],
        bsize: Literal["auto"] | int = "auto",
        document_metadatas: list[dict[str, Any]] | None = None,
        verbose: bool = True,
        max_document_length: Literal["auto"] | int = "auto",
    ) -> None:
        """Encodes documents and keeps them in memory, for `search_encoded_docs`; a second call adds to the first."""
        check_flag("verbose", verbose)
        texts = _as_texts("documents", documents)
        if document_metadatas is not None and len(document_metadatas) != len(texts):
            raise ValueError("document_metadatas must be the same length as documents")
        self._vectors += self._encode_documents(texts, bsize, max_document_length)
        self._texts += texts
        self._metadata += list(document_metadatas) if document_metadatas is not None else [None] * len(texts)

    def search_encoded_docs(self, query: str | list[str], k: int = 10, bsize: int = 32) -> list[dict[str, Any]]:
        """The k best of the documents in memory; ranks begin at 0, as in RAGatouille 0.0.9."""
        check_count("bsize", bsize)
        if not self._texts:
            raise InputError("no documents are in memory; call encode first")
        results = self._in_memory(query, self._texts, self._vectors, k, 0)
        if any(metadata is not None for metadata in self._metadata):
            for result in results if isinstance(results[0], dict) else chain.from_iterable(results):
                result[METADATA] = self._metadata[result["result_index"]]
        return results  # type: ignore[no-any-return]

    def clear_encoded_docs(self, force: bool = False) -> None:
        """Forgets the documents in memory, at once: RAGatouille waits ten seconds unless `force`."""
        check_flag("force", force)
        self._texts, self._metadata, self._vectors = [], [], []

    def as_langchain_retriever(self, **kwargs: Any) -> CompatRetriever:
        """A retriever of LangChain; the keywords are those of `search`. Needs langchain-core."""
        from plait.compat.langchain import CompatRetriever

        return CompatRetriever(model=self, kwargs=kwargs)

    def as_langchain_document_compressor(self, k: int = 5, **kwargs: Any) -> CompatCompressor:
        """A document compressor of LangChain, which reranks; the keywords are those of `rerank`. Needs
        langchain-core."""
        from plait.compat.langchain import CompatCompressor

        return CompatCompressor(model=self, k=k, kwargs=kwargs)

    # -- inside

    def _named(self) -> str:
        if self._encoder is None or self.model_name is None:
            raise ConfigError("no model is loaded; use RAGPretrainedModel.from_pretrained or from_index")
        return self.model_name

    def _loaded(self) -> OnnxEncoder:
        self._named()
        assert self._encoder is not None
        return self._encoder

    def _close_index(self) -> None:
        if self._index is not None:
            self._index.close()
        self._index = None

    def _opened(self, name: str | None) -> Index:
        """The index of a name, or the present one."""
        if name is not None and name != self._index_name:
            self._named()
            opened = _open(self._root / INDEXES / name, self._model)
            self._close_index()
            self._index, self._index_name = opened, name
        if self._index is None:
            raise ConfigError("there is no index; call index, or give the index_name of one that exists")
        return self._index

    def _passages(
        self,
        collection: Sequence[str],
        ids: Sequence[str] | None,
        metadatas: Sequence[dict[str, Any]] | None,
        splitter: Callable[..., Any] | None,
        preprocess: Callable[..., Any] | list[Callable[..., Any]] | None,
        length: int,
    ) -> list[dict[str, Any]]:
        """The passages of documents, each with the id and the metadata of its document."""
        texts = _as_texts("collection", collection)
        chosen = [str(uuid4()) for _ in texts] if ids is None else [str(id) for id in ids]
        if len(chosen) != len(texts):
            raise ValueError("document_ids must be the same length as collection")
        if len(set(chosen)) != len(chosen):
            raise ValueError("document_ids must be unique")
        if any(not id.strip() for id in chosen):
            raise ValueError("document_ids must not contain empty strings")
        if metadatas is not None and len(metadatas) != len(texts):
            raise ValueError("document_metadatas must be the same length as collection")
        parts: Any = [{"document_id": id, "content": text} for id, text in zip(chosen, texts, strict=True)]
        if splitter is not None:
            parts = splitter(texts, chosen, chunk_size=length)
        steps = preprocess if isinstance(preprocess, list) else [] if preprocess is None else [preprocess]
        for step in steps:
            parts = step(parts if splitter is not None else texts, chosen)
        of_document = {} if metadatas is None else dict(zip(chosen, metadatas, strict=True))
        passages = []
        for part in parts:
            if not isinstance(part, Mapping) or not {"document_id", "content"} <= set(part):
                raise InputError(f"a passage is {shown(part)}; splitters give dicts with document_id and content")
            metadata = of_document.get(part["document_id"])
            passages.append({**part, **({} if metadata is None else {METADATA: metadata})})
        return passages

    def _add(self, passages: Sequence[Mapping[str, Any]], first: int, bsize: int, use_faiss: bool) -> None:
        check_count("bsize", bsize)
        warn_unused("use_faiss", use_faiss, default=False, why="plait trains its codes by itself")
        assert self._index is not None
        documents = [
            Document(
                f"{number}",
                passage["content"],
                metadata={
                    DOCUMENT_ID: passage["document_id"],
                    PASSAGE_ID: number,
                    **({METADATA: passage[METADATA]} if METADATA in passage else {}),
                },
            )
            for number, passage in enumerate(passages, first)
        ]
        self._index.add(documents, commit_every=ENCODE_AT_ONCE)
        compress_if_large(self._index, 4 if len(self._index) < MANY_PASSAGES else 2)

    def _encode_queries(self, query: str | list[str]) -> MultiVectors:
        """As in RAGatouille, a model that pads its queries pads them to 32 tokens, or to an estimate of the longest."""
        queries = _as_texts("query", [query] if isinstance(query, str) else query)
        if not queries:
            raise InputError("query is empty; give one text at least")
        encoder = self._loaded()
        card = encoder.card
        if card.query.expansion is not None:
            longest = max(int(len(text.split(" ")) * WORDS_TO_TOKENS) for text in queries)
            length = max(min(longest, card.document.length), MIN_QUERY_LENGTH)
            expansion = replace(card.query.expansion, length=length)
            encoder = encoder.with_card(replace(card, query=replace(card.query, length=length, expansion=expansion)))
        multi = encode(encoder, queries, is_query=True, batch_size=32).multi
        assert multi is not None
        return multi

    def _encode_documents(
        self, texts: list[str], bsize: Literal["auto"] | int, length: Literal["auto"] | int
    ) -> list[Any]:
        encoder = self._loaded()
        if bsize != "auto":
            check_count("bsize", bsize)
        if length != "auto":
            check_count("max_document_length", length)
            document = encoder.card.document
            overlap = min(document.overlap, length // 4)
            encoder = encoder.with_card(
                replace(encoder.card, document=replace(document, length=length, overlap=overlap))
            )
        multi = encode(encoder, texts, is_query=False, batch_size=32 if bsize == "auto" else bsize).multi
        assert multi is not None
        return [multi[item] for item in range(len(multi))]

    def _in_memory(self, query: str | list[str], texts: Sequence[str], vectors: list[Any], k: int, first: int) -> Any:
        check_count("k", k)
        queries = self._encode_queries(query)
        documents = MultiVectors.from_items(vectors, dim=self._loaded().spec.multi)
        results = []
        for item in range(len(queries)):
            scores = maxsim(np.asarray(queries[item], np.float32), documents)
            order = np.argsort(-scores, kind="stable")[:k].tolist()
            results.append(
                [
                    {"content": texts[at], "score": float(scores[at]), "rank": rank, "result_index": at}
                    for rank, at in enumerate(order, first)
                ]
            )
        return results[0] if len(results) == 1 else results


def _result(hit: Hit, rank: int) -> Result:
    result = {
        "content": hit.text,
        "score": float(hit.score),
        "rank": rank,
        DOCUMENT_ID: hit.metadata[DOCUMENT_ID],
        PASSAGE_ID: hit.metadata[PASSAGE_ID],
    }
    return result | ({METADATA: hit.metadata[METADATA]} if METADATA in hit.metadata else {})


def _open(path: Path, model: str | Path | None) -> Index:
    try:
        index = open_index(path, model=model)
    except NotAnIndexError as error:
        raise NotAnIndexError(
            f"{error}. An index of RAGatouille becomes one of plait with: plait import {path} --to FOLDER"
        ) from None
    first = next(iter(index), None)
    if first is not None and DOCUMENT_ID not in first.metadata:
        index.close()
        raise ConfigError(f"{path} is an index that RAGPretrainedModel did not make; search it with plait.open")
    return index


def _check_gpus(n_gpu: int) -> None:
    if n_gpu not in (-1, 0):
        warn("n_gpu has no effect: plait runs models on the processor here")


def _as_texts(name: str, texts: Any) -> list[str]:
    given = as_list(name, texts, "texts")
    for text in given:
        if not isinstance(text, str):
            raise InputError(f"{name} has {shown(text)}; it takes texts")
    return given

"""What `Index.similar` searches for: a document of the index, a text or embeddings become the query of a search."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from plait.checks import check_type, shown
from plait.embeddings import Embeddings
from plait.encode.chunking import with_title
from plait.encode.load import LazyEncoder
from plait.encode.protocol import EmbeddingSpec
from plait.errors import ConfigError, DocumentError, InputError
from plait.search.hybrid import HybridParams
from plait.search.modes import find_mode
from plait.search.stored_embeddings import stored_embeddings
from plait.searcher import SearchRequest, check_query
from plait.storage.snapshot import Snapshot

MAX_CHARACTERS = 2000  # of a document whose words are searched


@dataclass(frozen=True, slots=True)
class SimilarQuery:
    """A query for similar documents."""

    embeddings: Embeddings
    texts: Sequence[str] | None
    request: SearchRequest
    exclude: int | None = None  # the number of the document itself; then the embeddings are those of the index


def similar_request(request: SearchRequest, spec: EmbeddingSpec) -> tuple[SearchRequest, list[str], bool]:
    """The search for similar documents, the kinds of embeddings that it reads, and whether it reads text."""
    if request.rerank:
        raise ConfigError("similar does not rerank: a cross-encoder compares a query with a document; leave out rerank")
    request = _without_words(request, spec)
    return request, _kinds(request, spec), "bm25" in find_mode(request.mode).needs


def similar_query(
    snapshot: Snapshot,
    source: LazyEncoder,
    request: SearchRequest,
    *,
    id: str | None,
    text: str | None,
    embeddings: Embeddings | None,
) -> SimilarQuery:
    """The query for documents similar to one of these three."""
    request, kinds, reads_text = similar_request(request, snapshot.spec)
    if id is None:
        return given_query(source, request, kinds, reads_text=reads_text, text=text, embeddings=embeddings)
    check_type("the id of a document", id, str, "text", DocumentError)
    made = document_query(snapshot, id, kinds)
    if made is None:
        raise unknown_document(id)
    number, stored, words = made
    return SimilarQuery(stored, [words] if reads_text else None, request, exclude=number)


def given_query(
    source: LazyEncoder,
    request: SearchRequest,
    kinds: Sequence[str],
    *,
    reads_text: bool,
    text: str | None,
    embeddings: Embeddings | None,
) -> SimilarQuery:
    """The query for documents similar to a text or to embeddings."""
    if embeddings is not None:
        check_type("embeddings", embeddings, Embeddings, "plait.Embeddings of one document", InputError)
        if len(embeddings) != 1:
            raise InputError(f"similar takes the embeddings of one document; got those of {len(embeddings)}")
        return SimilarQuery(embeddings, None, request)
    assert text is not None
    check_query(text)
    made = source.get().encode_documents([text]) if kinds else Embeddings()
    return SimilarQuery(made, [text[:MAX_CHARACTERS]] if reads_text else None, request)


def document_query(snapshot: Snapshot, id: str, kinds: Sequence[str]) -> tuple[int, Embeddings, str] | None:
    """The number of a document, its stored embeddings and its words; None if the index does not have it."""
    number = snapshot.lookup([id]).get(id)
    if number is None:
        return None
    (stored,) = snapshot.fetch([number])
    words = with_title(stored.title, stored.text)[:MAX_CHARACTERS]
    return number, stored_embeddings(snapshot, stored, kinds), words


def unknown_document(id: str) -> DocumentError:
    return DocumentError(f"there is no document {shown(id)} in this index; check the id, or give a text")


def _without_words(request: SearchRequest, spec: EmbeddingSpec) -> SearchRequest:
    """Hybrid search by dense and multi vectors. They say what a text is about; its words and terms would find texts
    that share many of them. An index with neither is searched by its terms or its words."""
    if request.mode != "hybrid" or request.params is not None:
        return request
    kinds = [kind for kind in ("dense", "multi") if getattr(spec, kind) is not None]
    if len(kinds) == 2:
        sparse = None if spec.sparse is None else 0.0
        return replace(request, params=HybridParams(bm25=0.0, sparse=sparse))
    return replace(request, mode=kinds[0] if kinds else "sparse" if spec.sparse is not None else "bm25")


def _kinds(request: SearchRequest, spec: EmbeddingSpec) -> list[str]:
    """The kinds of embeddings that the search reads."""
    kinds = [kind for kind in ("dense", "sparse", "multi") if getattr(spec, kind) is not None]
    if isinstance(request.params, HybridParams):
        return [kind for kind in kinds if getattr(request.params, kind) != 0]
    return kinds if request.mode == "hybrid" else [kind for kind in kinds if kind in find_mode(request.mode).needs]
